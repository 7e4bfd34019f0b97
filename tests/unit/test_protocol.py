"""The Thrift coding: the bytes of thriftpy2 in both directions, and nothing but ProtocolError from hostile ones."""

from __future__ import annotations

import struct
import tracemalloc
from functools import cache
from typing import Any

import pytest
from hypothesis import given, strategies as st
from thriftpy2.protocol import TCyBinaryProtocol
from thriftpy2.thrift import TApplicationException, TMessageType, TType
from thriftpy2.transport import TCyBufferedTransport, TCyMemoryBuffer

from delivery.errors import Fenced, HootError, InvalidRequest, MessageTooLarge, NotOwner, ProtocolError
from delivery.rpc.compiled import APART_BYTES
from delivery.rpc.decoder import DEPTH_MAX
from delivery.rpc.idl import load_idl, methods
from delivery.rpc.protocol import (
    Call,
    Frame,
    decode_call,
    decode_reply,
    encode_call,
    encode_error,
    encode_refusal,
    encode_result,
)
from tests.unit.rpc_peers import HOSTILE, MEGABYTES, put_messages

BINARY: Any = TCyBinaryProtocol  # partly typed
SERVICES = ("RegionHost", "Listener", "PlainListener")
METHODS = [(service, name) for service in SERVICES for name in methods(service)]
NUMBERS = {TType.BYTE: 8, TType.I16: 16, TType.I32: 32, TType.I64: 64}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BLOBS = st.one_of(st.binary(max_size=40), st.integers(APART_BYTES - 1, APART_BYTES + 1).map(bytes))


def values(kind: int, spec: Any = None) -> st.SearchStrategy[Any]:
    """Values of a type of the IDL."""
    if kind in NUMBERS:
        half = 1 << NUMBERS[kind] - 1
        return st.integers(-half, half - 1)
    if kind == TType.BOOL:
        return st.booleans()
    if kind == TType.DOUBLE:
        return st.floats(allow_nan=False)
    if kind in (TType.STRING, TType.BINARY):
        return TEXTS if kind == TType.STRING else BLOBS
    if kind == TType.STRUCT:
        return structs(spec)
    pairs = [part if isinstance(part, tuple) else (part,) for part in (spec if kind == TType.MAP else [spec])]
    if kind == TType.MAP:
        return st.dictionaries(values(*pairs[0]), values(*pairs[1]), max_size=3)
    return st.lists(values(*pairs[0]), max_size=3)


def structs(made: Any, absent: bool = True) -> st.SearchStrategy[Any]:
    """Instances of a struct class, fields left out now and then."""
    fields = {}
    for kind, name, *rest_of_spec in made.thrift_spec.values():
        given_value = values(kind, rest_of_spec[0] if len(rest_of_spec) == 2 else None)
        fields[name] = st.none() | given_value if absent else given_value
    return st.builds(made, **fields)


@cache
def arguments(service: str, name: str) -> st.SearchStrategy[Any]:
    """What a method can be called with. Made once, for to make it takes longer than to draw from it."""
    return structs(methods(service)[name].args)


@cache
def results(service: str, name: str) -> st.SearchStrategy[Any]:
    """What a method can give back, made once; None where that is nothing."""
    declared = methods(service)[name].result.thrift_spec.get(0)
    if declared is None:
        return st.none()
    return values(declared[0], declared[2] if len(declared) == 4 else None)


def args_of(args: Any) -> list[Any]:
    return [getattr(args, field[1]) for field in args.thrift_spec.values()]


def content(frame: Frame) -> bytes:
    """The frame without its length, which must be right."""
    parts, total = frame
    whole = b"".join(parts)
    assert len(whole) == total
    assert struct.unpack(">i", whole[:4])[0] == total - 4
    return whole[4:]


def by_thriftpy2(kind: int, name: str, seqid: int, value: Any) -> bytes:
    out = TCyMemoryBuffer(b"", 1 << 20)
    protocol = BINARY(out)
    protocol.write_message_begin(name, kind, seqid)
    protocol.write_struct(value)
    written: bytes = out.getvalue()
    return written


class Reader:
    """A frame as a thriftpy2 transport with a real end."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size: int) -> bytes:
        data, self.data = self.data[:size], self.data[size:]
        return data


def read_by_thriftpy2(data: bytes, made: Any) -> Any:
    protocol = BINARY(TCyBufferedTransport(Reader(data), max(1024, len(data))), strict_decode=True)
    protocol.read_message_begin()
    return protocol.read_struct(made())


@pytest.mark.parametrize(("service", "name"), METHODS)
@given(st.data())
def test_calls_are_the_bytes_that_thriftpy2_writes_and_reads(service: str, name: str, data: st.DataObject) -> None:
    args = data.draw(arguments(service, name))
    seqid = data.draw(st.integers(0, 2**31 - 1))
    expected = by_thriftpy2(TMessageType.CALL, name, seqid, args)
    assert content(encode_call(service, name, seqid, args_of(args))) == expected
    assert decode_call(service, memoryview(expected)) == Call(service, name, seqid, args)
    assert read_by_thriftpy2(expected, methods(service)[name].args) == args


@pytest.mark.parametrize(("service", "name"), METHODS)
@given(st.data())
def test_fields_may_come_in_any_order_with_unknown_ones_and_earlier_values_between_them(
    service: str, name: str, data: st.DataObject
) -> None:
    earlier, args = (data.draw(arguments(service, name)) for _ in range(2))
    given_fields = [field[1] for field in args.thrift_spec.values() if getattr(args, field[1]) is not None]
    number, text, inner = b"\x08\x03\xe7" + bytes(4), b"\x0b\x03\xe8" + bytes(4), b"\x0c\x03\xe9\x02\x00\x01\x01\x00"
    order = data.draw(st.permutations([*(alone(args, field) for field in given_fields), number, text, inner]))
    before = [alone(earlier, field) for field in given_fields]
    raw = by_thriftpy2(TMessageType.CALL, name, 7, type(args)())[:-1] + b"".join([*before, *order]) + b"\0"
    assert decode_call(service, memoryview(raw)) == Call(service, name, 7, args)


def alone(args: Any, field: str) -> bytes:
    """One field as bytes."""
    made = type(args)
    nothing = len(by_thriftpy2(TMessageType.CALL, "", 7, made()))
    return by_thriftpy2(TMessageType.CALL, "", 7, made(**{field: getattr(args, field)}))[nothing - 1 : -1]


@pytest.mark.parametrize(("service", "name"), METHODS)
@given(st.data())
def test_replies_are_the_bytes_that_thriftpy2_writes(service: str, name: str, data: st.DataObject) -> None:
    made = methods(service)[name].result
    result = data.draw(results(service, name))
    call = Call(service, name, data.draw(st.integers(0, 2**31 - 1)), object())
    outcome = made() if made.thrift_spec.get(0) is None else made(success=result)
    expected = by_thriftpy2(TMessageType.REPLY, name, call.seqid, outcome)
    assert content(encode_result(call, result)) == expected
    assert decode_reply(service, name, call.seqid, memoryview(expected)) == result


CALL = Call("RegionHost", "publish", 7, object())
PLAIN = load_idl("delivery").Message


def a_call() -> bytes:
    """A valid call with every kind of value in it."""
    message = PLAIN(id=1, partition=2, topic="JFK", key=b"k", headers={"a": b"b"}, body=b"body")
    return content(encode_call("RegionHost", "putMessages", 3, ("flights", [message, message])))


def test_an_error_comes_back_with_its_code_and_address() -> None:
    reply = encode_error(CALL, NotOwner("elsewhere", address="10.0.0.1:99"))
    error = decode_reply("RegionHost", "publish", 7, memoryview(content(reply)))
    assert isinstance(error, NotOwner)
    assert (error.message, error.address) == ("elsewhere", "10.0.0.1:99")


def test_an_error_without_an_address_has_none() -> None:
    error = decode_reply("RegionHost", "publish", 7, memoryview(content(encode_error(CALL, Fenced("newer")))))
    assert (type(error), error.address) == (Fenced, None)


def test_an_error_of_a_method_that_declares_none_is_a_general_exception() -> None:
    call = Call("Listener", "push", 1, object())
    frame = content(encode_error(call, Fenced("newer epoch")))
    error = decode_reply("Listener", "push", 1, memoryview(frame))
    assert isinstance(error, ProtocolError)
    assert "fenced: newer epoch" in error.message


def test_an_unknown_method_is_refused_by_name() -> None:
    frame = by_thriftpy2(TMessageType.CALL, "dropEverything", 4, methods("Listener")["hello"].args(queue="q"))
    call = decode_call("RegionHost", memoryview(frame))
    assert call.args is None
    refusal = content(encode_refusal(call))
    assert refusal == by_thriftpy2(
        TMessageType.EXCEPTION,
        "dropEverything",
        4,
        TApplicationException(TApplicationException.UNKNOWN_METHOD, "there is no such method"),
    )


def test_whoever_asks_an_older_program_is_told_so() -> None:
    frame = content(encode_refusal(Call("RegionHost", "locateMessages", 4, None)))
    error = decode_reply("RegionHost", "locateMessages", 4, memoryview(frame))
    assert isinstance(error, ProtocolError)
    assert error.message == "the peer refused locateMessages: there is no such method; it is older than this program"


@pytest.mark.parametrize("wrong", [("publish", 8), ("read", 7)], ids=["another number", "another method"])
def test_a_reply_to_another_call_is_refused(wrong: tuple[str, int]) -> None:
    frame = content(encode_error(CALL, HootError("x")))
    with pytest.raises(ProtocolError, match="not the reply"):
        decode_reply("RegionHost", *wrong, memoryview(frame))


def test_a_reply_without_a_result_is_refused() -> None:
    frame = by_thriftpy2(TMessageType.REPLY, "publish", 7, methods("RegionHost")["publish"].result())
    with pytest.raises(ProtocolError, match="without a result"):
        decode_reply("RegionHost", "publish", 7, memoryview(frame))


@pytest.mark.parametrize("partition", [2**31, -(2**31) - 1, "one", 1.5])
def test_what_a_field_cannot_hold_is_an_invalid_request(partition: object) -> None:
    with pytest.raises(InvalidRequest, match="partition"):
        encode_call("RegionHost", "publish", 1, ("q", partition, b"", None))


def test_text_that_is_no_unicode_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest, match="queue"):
        encode_call("RegionHost", "publish", 1, ("\ud800", 1, b"", None))


def test_a_call_over_the_frame_limit_is_too_large() -> None:
    with pytest.raises(MessageTooLarge):
        encode_call("RegionHost", "publish", 1, ("q", 1, bytes(5000), None), 5000)


def test_every_proper_prefix_of_a_call_is_refused() -> None:
    frame = a_call()
    for length in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode_call("RegionHost", memoryview(frame[:length]))


def test_bytes_after_a_call_are_refused() -> None:
    with pytest.raises(ProtocolError):
        decode_call("RegionHost", memoryview(a_call() + b"\0"))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_call("RegionHost", memoryview(data))


@given(st.lists(st.tuples(st.integers(0, len(a_call()) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_mutated_call_is_refused_or_is_a_call(changes: list[tuple[int, int]]) -> None:
    frame = bytearray(a_call())
    for at, byte in changes:
        frame[at] = byte
    try:
        call = decode_call("RegionHost", memoryview(frame))
    except ProtocolError:
        return
    assert isinstance(call, Call)


@given(st.sampled_from(METHODS), st.binary(max_size=300))
def test_arbitrary_arguments_are_refused_or_are_a_call(method: tuple[str, str], data: bytes) -> None:
    service, name = method
    head = by_thriftpy2(TMessageType.CALL, name, 1, methods(service)[name].args())[:-1]
    try:
        call = decode_call(service, memoryview(head + data))
    except ProtocolError:
        return
    assert isinstance(call.args, methods(service)[name].args)


@pytest.mark.parametrize("arguments", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_arguments_are_refused_with_little_memory(arguments: bytes) -> None:
    frame = put_messages(arguments)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode_call("RegionHost", frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * MEGABYTES


def test_nesting_up_to_the_limit_is_skipped() -> None:
    lists = DEPTH_MAX - 2
    nested = struct.pack(">bh", TType.LIST, 9) + struct.pack(">bi", TType.LIST, 1) * (lists - 1)
    call = decode_call("RegionHost", put_messages(nested + struct.pack(">bi", TType.BYTE, 0) + b"\0"))
    assert call.args == methods("RegionHost")["putMessages"].args()
    deeper = struct.pack(">bh", TType.LIST, 9) + struct.pack(">bi", TType.LIST, 1) * (lists + 1)
    with pytest.raises(ProtocolError, match="nests deeper"):
        decode_call("RegionHost", put_messages(deeper + struct.pack(">bi", TType.BYTE, 0) + b"\0"))


def test_ten_thousand_plain_messages_are_no_bomb() -> None:
    message = PLAIN(id=1, partition=2, topic="JFK", key=b"k", headers={"a": b"b", "c": b"d"}, body=bytes(100))
    frame = content(encode_call("RegionHost", "putMessages", 3, ("flights", [message] * 10_000)))
    assert decode_call("RegionHost", memoryview(frame)).args.messages == [message] * 10_000


def test_what_is_decoded_does_not_refer_to_the_frame() -> None:
    frame = bytearray(a_call())
    call = decode_call("RegionHost", memoryview(frame))
    before = repr(call.args)
    frame[:] = bytes(len(frame))
    assert repr(call.args) == before
