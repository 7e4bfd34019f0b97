"""The transaction service (the role that Tephra had beside seed 003), as plain decisions; times come in as `now`.

`state` is what outlives the host that manages transactions, `book` that host's view of them: it begins transactions,
finds conflicts between those that commit, and says what each sees. `asks` is what may be asked for. Who manages, and
how that is kept, is in `delivery/cluster`.
"""
