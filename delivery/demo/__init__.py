"""`hoot demo`: a year of departures from New York through Hoot, with kills on the way, checked against file and Spark.

`flights` reads the records, `story` runs the demo from start to end, `crew` holds the processes and threads it needs,
`receiver` is the subscriber's process, `records` the form in which that process notes its callbacks, `spark_side` the
process that counts with Spark, `report` holds what was delivered against what was published, `show` prints, `cli` is
the command.
"""
