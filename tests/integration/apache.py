"""Calls written and read by hand with stock Apache Thrift's own protocol and transports.

A struct is a dict of field id to (type, value) when written, and of field id to value when read.
"""

from __future__ import annotations

from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType, TType
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TFramedTransport

SECONDS = 20.0
Fields = dict[int, tuple[int, Any]]


def write_value(protocol: Any, kind: int, value: Any) -> None:
    """A list's value is (element type, elements); a map's is (key type, value type, pairs)."""
    match kind:
        case TType.STRUCT:
            write_struct(protocol, value)
        case TType.LIST:
            element, elements = value
            protocol.writeListBegin(element, len(elements))
            for each in elements:
                write_value(protocol, element, each)
            protocol.writeListEnd()
        case TType.MAP:
            key_kind, value_kind, pairs = value
            protocol.writeMapBegin(key_kind, value_kind, len(pairs))
            for key, each in pairs.items():
                write_value(protocol, key_kind, key)
                write_value(protocol, value_kind, each)
            protocol.writeMapEnd()
        case TType.STRING:
            (protocol.writeBinary if isinstance(value, bytes) else protocol.writeString)(value)
        case _:
            {TType.BOOL: protocol.writeBool, TType.I32: protocol.writeI32, TType.I64: protocol.writeI64}[kind](value)


def write_struct(protocol: Any, fields: Fields) -> None:
    protocol.writeStructBegin("")
    for number, (kind, value) in fields.items():
        protocol.writeFieldBegin("", kind, number)
        write_value(protocol, kind, value)
        protocol.writeFieldEnd()
    protocol.writeFieldStop()
    protocol.writeStructEnd()


def read_value(protocol: Any, kind: int) -> Any:
    match kind:
        case TType.STRUCT:
            return read_struct(protocol)
        case TType.LIST:
            element, count = protocol.readListBegin()
            return [read_value(protocol, element) for _ in range(count)]
        case TType.MAP:
            key_kind, value_kind, count = protocol.readMapBegin()
            return {read_value(protocol, key_kind): read_value(protocol, value_kind) for _ in range(count)}
        case TType.STRING:
            return protocol.readBinary()
        case _:
            return {TType.BOOL: protocol.readBool, TType.I32: protocol.readI32, TType.I64: protocol.readI64}[kind]()


def read_struct(protocol: Any) -> dict[int, Any]:
    protocol.readStructBegin()
    found: dict[int, Any] = {}
    while True:
        _, kind, number = protocol.readFieldBegin()
        if kind == TType.STOP:
            return found
        found[number] = read_value(protocol, kind)


def message_to(protocol: Any, name: str, kind: int, seqid: int, fields: Fields) -> None:
    protocol.writeMessageBegin(name, kind, seqid)
    write_struct(protocol, fields)
    protocol.writeMessageEnd()
    protocol.trans.flush()


class Client:
    """A client as Apache's generator would make it: sequence number 0 in every call."""

    def __init__(self, port: int) -> None:
        socket = TSocket("127.0.0.1", port)
        socket.setTimeout(SECONDS * 1000)
        self.transport = TFramedTransport(socket)
        self.protocol = TBinaryProtocol(self.transport, strictRead=True)
        self.transport.open()

    def call(self, method: str, fields: Fields) -> dict[int, Any]:
        message_to(self.protocol, method, TMessageType.CALL, 0, fields)
        name, kind, seqid = self.protocol.readMessageBegin()
        assert (name, seqid) == (method, 0)
        if kind == TMessageType.EXCEPTION:
            error = TApplicationException()
            error.read(self.protocol)
            raise error
        return read_struct(self.protocol)
