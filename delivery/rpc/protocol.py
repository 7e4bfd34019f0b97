"""Calls and replies as frames, without I/O: what the server, the trio client and the blocking client share.

A message is a head (version, kind, method name, sequence number; see wire.Encoder.message) and one struct: the
arguments of a call, or the outcome of it, in which field 0 is the result and field 1 the declared error.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from thriftpy2.thrift import TApplicationException, TMessageType

from delivery.errors import HootError, ProtocolError, from_code
from delivery.rpc.decoder import Decoder
from delivery.rpc.encoder import Encoder
from delivery.rpc.idl import load_idl, methods
from delivery.rpc.wire import Part

__all__ = [
    "FRAME_BYTES_MAX",
    "Call",
    "Frame",
    "answered_call",
    "decode_call",
    "decode_reply",
    "encode_call",
    "encode_error",
    "encode_refusal",
    "encode_result",
    "load_idl",
]

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
"""The default limit of one frame, as Apache Thrift's; it holds the largest batch."""
_ERROR_TEXT_MAX: Final = 4000
_METHOD_NAME_MAX: Final = 200
_INT: Final = struct.Struct(">i")

Frame = tuple[list[Part], int]
"""A frame to send: its parts, its length in front, and how many bytes they are together."""


class Call(msgspec.Struct, frozen=True):
    """One call as it arrived. `args` is the IDL's struct of arguments; a field that was not sent is None."""

    service: str
    method: str
    seqid: int
    args: Any
    """None when the service has no such method: answer with `encode_refusal`."""


def decode_call(service: str, frame: memoryview) -> Call:
    """The call in a frame. Raises ProtocolError when it is none."""
    decoder = Decoder(frame)
    kind, name, seqid = decoder.message()
    if kind != TMessageType.CALL or len(name) > _METHOD_NAME_MAX:
        raise ProtocolError(f"a message of kind {kind} where a call must be")
    method = methods(service).get(name)
    if method is None:
        return Call(service, name, seqid, None)
    args = decoder.struct(method.args)
    return Call(service, name, seqid, args)


def encode_call(
    service: str, method: str, seqid: int, args: Sequence[Any], frame_bytes_max: int = FRAME_BYTES_MAX
) -> Frame:
    """A call with its arguments in the IDL's order.

    Raises InvalidRequest for what a field's type cannot hold, MessageTooLarge above the limit.
    """
    called = methods(service)[method]
    names = [field[1] for field in called.args.thrift_spec.values()]
    packed = called.args(**dict(zip(names, args, strict=True)))
    return _frame(TMessageType.CALL, method, seqid, packed, frame_bytes_max)


def encode_result(call: Call, result: Any, frame_bytes_max: int = FRAME_BYTES_MAX) -> Frame:
    """The reply to a call that succeeded; `result` is None for a method without one. Errors as `encode_call`."""
    made = methods(call.service)[call.method].result
    outcome = made(success=result) if 0 in made.thrift_spec else made()
    return _frame(TMessageType.REPLY, call.method, call.seqid, outcome, frame_bytes_max)


def encode_error(call: Call, error: HootError) -> Frame:
    """The reply to a call that failed: the declared error, or Thrift's general exception where none is declared."""
    method = methods(call.service)[call.method]
    text = error.message[:_ERROR_TEXT_MAX]
    if method.error is None:
        return encode_refusal(call, TApplicationException.INTERNAL_ERROR, f"{error.code}: {text}")
    declared = method.error(code=error.code, message=text, retryable=error.retryable, address=error.address or "")
    return _frame(TMessageType.REPLY, call.method, call.seqid, method.result(error=declared), FRAME_BYTES_MAX)


def encode_refusal(
    call: Call, kind: int = TApplicationException.UNKNOWN_METHOD, text: str = "there is no such method"
) -> Frame:
    """Thrift's general exception as the reply to a call."""
    refusal = TApplicationException(kind, text)
    return _frame(TMessageType.EXCEPTION, call.method, call.seqid, refusal, FRAME_BYTES_MAX)


def answered_call(frame: memoryview) -> int:
    """The sequence number in a reply, by which to find its call; 0 when there is none."""
    try:
        length = _INT.unpack_from(frame, _INT.size)[0]
        return int(_INT.unpack_from(frame, 2 * _INT.size + length)[0]) if length >= 0 else 0
    except struct.error:
        return 0


def decode_reply(service: str, method: str, seqid: int, frame: memoryview) -> Any:
    """The result of the call that was sent as `seqid`, or the HootError that it failed with (returned, not raised).

    Raises ProtocolError when the frame is not the reply to that call.
    """
    decoder = Decoder(frame)
    kind, name, answered = decoder.message()
    if (name, answered) != (method, seqid) or kind not in (TMessageType.REPLY, TMessageType.EXCEPTION):
        raise ProtocolError(f"a message that is not the reply to call {seqid} ({method})")
    if kind == TMessageType.EXCEPTION:
        refusal = decoder.struct(TApplicationException)
        hint = "; it is older than this program" if refusal.type == TApplicationException.UNKNOWN_METHOD else ""
        return ProtocolError(f"the peer refused {method}: {str(refusal.message)[:_ERROR_TEXT_MAX]}{hint}")
    made = methods(service)[method].result
    outcome = decoder.struct(made)
    if (error := getattr(outcome, "error", None)) is not None:
        return from_code(error.code or HootError.code, (error.message or "")[:_ERROR_TEXT_MAX], error.address)
    if 0 in made.thrift_spec and outcome.success is None:
        raise ProtocolError(f"a reply to {method} without a result")
    return getattr(outcome, "success", None)


def _frame(kind: int, name: str, seqid: int, content: Any, frame_bytes_max: int) -> Frame:
    encoder = Encoder()
    encoder.message(kind, name, seqid)
    encoder.struct(content)
    return encoder.parts(frame_bytes_max)
