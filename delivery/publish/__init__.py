"""From a published batch to a stored one: admission, the producer's sequence, stamping, group commit.

`admission` and `producers` decide; `writer` stamps the batches of one partition in order; `committer` stores them in
groups, over a `lane`; `publisher` is the entrance. A publish ends in one of three: stored, refused (nothing stored),
unknown.
"""
