"""Who is there: this host's registration and session, a mirror of the others' records, and the connections to them."""
