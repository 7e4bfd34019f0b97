"""What a region host answers: Thrift calls (`thrift`; `reading` packed, `plain` for any language) and HTTP (`http`)."""
