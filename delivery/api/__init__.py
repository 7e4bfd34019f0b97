"""What a region host answers: Thrift calls (`thrift`) and HTTP (`http`).

Of the calls `reading` has the packed ones, `plain` and `subscribing` those for any language.
"""
