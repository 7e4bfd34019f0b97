"""Topics of namespaces and transactions on them (seed 003), as plain decisions: names, ids, marks, what a reader sees.

`names` maps a topic to its queue and judges its properties. `ids` has the ids of 20 bytes and where a poll begins.
`marks` is what stands in the log, byte for byte, `ledger` what follows from it for later readers, `transactions` a
client's view of all transactions and the verdict on a message, and `polling` puts them together into one poll.
"""
