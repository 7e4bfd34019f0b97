"""`hoot demo`: a year of departures from New York through Hoot, with kills on the way, checked against file and Spark.

`flights` reads the records, `story` runs the demo from start to end, `crew` holds the publisher's thread and the
subscriber's process, whose side is `receiver`, `records` the form in which that notes its callbacks, `errands` what
Spark is asked for and its process, whose side is `spark_side`. `pipeline` is what follows the delivery, in `steps`,
`report` holds what was delivered against what was published, `show` prints, `cli` is the command.
"""
