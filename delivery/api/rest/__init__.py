"""Topics over HTTP (seed 003): `/v1/namespaces/<namespace>/topics/…`, in JSON and in Avro.

`routes` has the paths; `bodies` reads what comes, within bounds; `codecs` chooses between `avro` and `texts` (JSON);
`administration` and `exchange` do what is asked for; `streams` sends a poll's answer; `forwarding` hands a request on
to the host that owns the topic; `errors` says what every error is on the wire.
"""
