"""The systems that `hoot bench compare` measures beside one another, Hoot among them: an adapter each, behind one face.

`base` says what an adapter does; `hoot`, `redis`, `nats`, `kafka`, `rabbitmq` and `rabbitmq_streams` are they, and
`every` lists them. `servers` starts what they stand on, under a `keeper` that ends it with the bench; `consumer` is
the process of a subscriber. Clients' libraries are imported where they are used: each is optional.
"""
