"""Topics over HTTP (seed 003): `/v1/namespaces/<namespace>/topics/…`, in JSON and in Avro.

`operations` lists the calls, of which `routes` has what each does and `openapi` the description; `shortcut` is the
quick way to those that are posted. `bodies` reads what comes, within bounds; `codecs` chooses between `avro` and
`texts` (JSON), and `asking` is Avro from the client's side. `administration` and `exchange` do what is asked for;
`reading` is a poll on its way, `polls` and `waits` bound them, and `streams` sends the answer; `forwarding` hands a
request on to the host that owns the topic; `errors` says what every error is on the wire.
"""
