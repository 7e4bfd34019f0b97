"""Calls written and read by hand with stock Apache Thrift's own protocol, transports and threaded server.

A struct is a dict of field id to (type, value) when written, and of field id to value when read.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolFactory
from thrift.server.TServer import TThreadedServer
from thrift.Thrift import TApplicationException, TMessageType, TProcessor, TType
from thrift.transport.TSocket import TServerSocket, TSocket
from thrift.transport.TTransport import TFramedTransport, TFramedTransportFactory

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
            {
                TType.BOOL: protocol.writeBool, TType.I32: protocol.writeI32, TType.I64: protocol.writeI64,
                TType.DOUBLE: protocol.writeDouble,
            }[kind](value)  # fmt: skip


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


class DeclaredError(Exception):
    """The HootError of the IDL."""

    def __init__(self, fields: dict[int, Any]) -> None:
        self.code, self.message, self.retryable = fields[1].decode(), fields[2].decode(), fields[3]
        super().__init__(f"{self.code}: {self.message}")


class Client:
    """A client as Apache's generator would make it: sequence number 0 in every call."""

    def __init__(self, port: int) -> None:
        socket = TSocket("127.0.0.1", port)
        socket.setTimeout(SECONDS * 1000)
        self.transport = TFramedTransport(socket)
        self.protocol = TBinaryProtocol(self.transport, strictRead=True)
        self.transport.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.transport.close()

    def result(self, method: str, *arguments: tuple[int, Any] | None) -> Any:
        """What a call gives; its arguments in the order of the IDL, None for one left out. Raises DeclaredError."""
        fields = {number: argument for number, argument in enumerate(arguments, 1) if argument is not None}
        outcome = self.call(method, fields)
        if 1 in outcome:
            raise DeclaredError(outcome[1])
        return outcome.get(0)

    def call(self, method: str, fields: Fields) -> dict[int, Any]:
        message_to(self.protocol, method, TMessageType.CALL, 0, fields)
        name, kind, seqid = self.protocol.readMessageBegin()
        assert (name, seqid) == (method, 0)
        if kind == TMessageType.EXCEPTION:
            error = TApplicationException()
            error.read(self.protocol)
            raise error
        return read_struct(self.protocol)


Answer = Callable[[str, dict[int, Any]], Fields]


class Processor(TProcessor):  # type: ignore[misc]
    """As the generator would make it: an answer is a reply, and what the handler raises an INTERNAL_ERROR."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def process(self, iprot: Any, oprot: Any) -> None:
        name, _, seqid = iprot.readMessageBegin()
        fields = read_struct(iprot)
        iprot.readMessageEnd()
        try:
            outcome = self._answer(name, fields)
        except Exception as error:  # noqa: BLE001 (generated code does the same)
            refusal: Fields = {1: (TType.STRING, str(error)), 2: (TType.I32, TApplicationException.INTERNAL_ERROR)}
            message_to(oprot, name, TMessageType.EXCEPTION, seqid, refusal)
        else:
            message_to(oprot, name, TMessageType.REPLY, seqid, outcome)


class Server(TThreadedServer):  # type: ignore[misc]
    """Apache's threaded server on a free port, in the background while the block lasts.

    Its own loop cannot be ended, so there is another one here; how it serves a connection is its own.
    """

    def __init__(self, answer: Answer) -> None:
        transport = TServerSocket("127.0.0.1", 0, socket_family=socket.AF_INET)
        super().__init__(Processor(answer), transport, TFramedTransportFactory(), TBinaryProtocolFactory())
        transport.listen()
        self.port: int = transport.handle.getsockname()[1]
        self._clients: list[TSocket] = []
        self._threads = [threading.Thread(target=self.serve, name="apache")]

    def serve(self) -> None:
        while True:
            try:
                client = self.serverTransport.accept()
            except OSError:
                return
            self._clients.append(client)
            self._threads.append(threading.Thread(target=self.handle, args=(client,), name="apache"))
            self._threads[-1].start()

    def disconnect(self) -> None:
        """Break every connection."""
        for client in self._clients:
            with contextlib.suppress(OSError, AttributeError):  # it has gone by itself
                client.handle.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.serverTransport.handle.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(SECONDS)
        self.serverTransport.close()
        self.disconnect()
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
