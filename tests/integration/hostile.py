"""Bytes that no correct peer sends, to real processes: frames, streams of frames, and batches that lie."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import google_crc32c
import msgspec

from delivery.batch import Row, encode
from delivery.batch.encode import Columns, assemble
from delivery.batch.layout import HEADER_BYTES, KEYS, NULL_KEYS, SPARSE, peek
from delivery.rpc.protocol import FRAME_BYTES_MAX, encode_call
from tests.unit.rpc_peers import HOSTILE

SECONDS = 10.0
SEED = 20_190_104
"""Of all random bytes, so that a failure can be had again."""


class Peer:
    """A raw connection with a deadline."""

    def __init__(self, port: int, seconds: float = SECONDS) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), seconds)

    def send(self, data: bytes, *, more: bool = True) -> None:
        """Send as much as the other side takes; without `more`, end this side of the stream."""
        with contextlib.suppress(OSError):
            self.socket.sendall(data)
            if not more:
                self.socket.shutdown(socket.SHUT_WR)

    def until_closed(self) -> bytes:
        """What comes before the other side closes. Raises TimeoutError when it does not."""
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := self.socket.recv(65_536):
                received += data
        return received

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()


def memory_bytes(pid: int, what: str = "VmRSS") -> int:
    """What a process takes now, or with VmHWM took at most since `forget_peak`."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields[what].split()[0]) * 1024


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


# -- frames ---------------------------------------------------------------------------------------------------------


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def call(method: str, arguments: bytes, kind: int = 1) -> bytes:
    """The frame of a message with these bytes as arguments."""
    name = method.encode()
    return framed(struct.pack(f">HHi{len(name)}si", 0x8001, kind, len(name), name, 1) + arguments)


def proper(service: str, method: str, *arguments: Any) -> bytes:
    """The frame that a correct peer sends."""
    return b"".join(encode_call(service, method, 1, arguments)[0])


def frames(method: str) -> Iterator[tuple[str, bytes]]:
    """Each must end its connection without an answer. `method` takes a text as its first argument."""
    yield "a negative length", struct.pack(">i", -1)
    yield "the most negative length", struct.pack(">i", -(2**31))
    yield "a length of two gigabytes", struct.pack(">i", 2**31 - 1) + bytes(1 << 20)
    yield "a length just over the limit", struct.pack(">i", FRAME_BYTES_MAX + 1) + bytes(1 << 20)
    yield "an empty frame", framed(b"")
    yield "zeros", bytes(1 << 20)
    yield "HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    yield "TLS", bytes.fromhex("16030100f8010000f4")
    yield "the old protocol without a version", framed(struct.pack(">i4s", 4, b"read") + bytes(12))
    yield "a reply", call(method, b"\0", kind=2)
    yield "an exception", call(method, b"\0", kind=3)
    yield "a call that wants no reply", call(method, b"\0", kind=4)
    yield "a method of 100 KB", call("m" * 100_000, b"\0")
    yield "a method that is not UTF-8", framed(struct.pack(">HHi2si", 0x8001, 1, 2, b"\xff\xfe", 1) + b"\0")
    yield "a method of two gigabytes", framed(struct.pack(">HHi", 0x8001, 1, 2**31 - 1) + bytes(100))
    yield "bytes behind the arguments", call(method, b"\0" * 1000)
    for name, arguments in HOSTILE.items():
        if "numbers where structs" not in name:  # a field of `putMessages`: others may skip it
            yield name, call(method, arguments)
    rng = random.Random(SEED)
    for n in range(40):
        yield f"a frame of random bytes {n}", framed(rng.randbytes(rng.randrange(1, 5000)))
    for n in range(40):
        # Fields of the types that the protocol knows, so that many get far; the end is missing.
        arguments = bytes(rng.choice((2, 8, 10, 11, 12, 13, 15, 0, 1, 255)) for _ in range(2000)) + b"\x0b"
        yield f"random arguments {n}", call(method, b"\x0c\0\x09" + arguments)


def truncated(frame: bytes) -> Iterator[tuple[str, bytes]]:
    """A correct frame cut short: with a length that says so, and with the length that was meant."""
    content = frame[4:]
    for end in {1, 2, 5, 9, 13, len(content) // 3, len(content) // 2, len(content) - 1}:
        yield f"a frame that ends after {end} bytes", framed(content[:end])
    yield "a length cut short", frame[:3]
    yield "a stream that ends in a frame", frame[:-1]


def elapsed_until_closed(peer: Peer, frame: bytes, pause_seconds: float) -> float:
    """Send a frame byte by byte with pauses; how long the other side puts up with it."""
    start = time.monotonic()
    peer.socket.settimeout(pause_seconds)
    for at in range(len(frame)):
        peer.send(frame[at : at + 1])
        try:
            if not peer.socket.recv(1):
                break
        except TimeoutError:
            continue
        except ConnectionError:
            break
    return time.monotonic() - start


# -- batches --------------------------------------------------------------------------------------------------------

ROWS: list[Row] = [(b"body-%d" % n, b"key", "JFK" if n % 2 else "LGA", b"") for n in range(10)]
GOOD = encode(ROWS, 0)


def relabelled(batch: bytes, **fields: int) -> bytes:
    """The batch with other header fields, and the header's checksum right again."""
    header = peek(batch)
    assert header is not None
    return msgspec.structs.replace(header, **fields).pack() + batch[HEADER_BYTES:]


def repacked(payload: bytes, **fields: int) -> bytes:
    """`GOOD`'s header in front of another payload, both checksums right."""
    crc = google_crc32c.value(payload)
    return relabelled(GOOD[:HEADER_BYTES], length=HEADER_BYTES + len(payload), payload_crc=crc, **fields) + payload


def raw_header(**bytes_at: int) -> bytes:
    """`GOOD` with single bytes of the header changed (by offset, as `at_4=2`), and its checksum right again."""
    raw = bytearray(GOOD)
    for name, value in bytes_at.items():
        raw[int(name.removeprefix("at_"))] = value
    raw[60:64] = struct.pack("<I", google_crc32c.value(bytes(raw[:60])))
    return bytes(raw)


def flipped(at: int) -> bytes:
    raw = bytearray(GOOD)
    raw[at] ^= 1
    return bytes(raw)


def sparse() -> bytes:
    bodies = [row[0] for row in ROWS]
    columns = Columns([""] * 10, [None] * 10, [b""] * 10, bodies, positions=range(0, 20, 2))
    return assemble(columns, 0, span=20)


def named(topic: bytes) -> bytes:
    """A batch of one message whose topic is these bytes."""
    payload = bytes((len(topic),)) + topic + struct.pack("<I", 1) + b"x"
    return repacked(payload, flags=0, topic_count=1, count=1, span=1)


def lying_batches() -> Iterator[tuple[str, bytes, str]]:
    """(what is wrong, the batch, the code of the error that it gets)."""
    yield "no batch", b"noise" * 40, "corrupt_record"
    yield "a header cut short", GOOD[:63], "corrupt_record"
    yield "a payload cut short", GOOD[:-1], "corrupt_record"
    yield "a byte too many", GOOD + b"\0", "corrupt_record"
    yield "two batches", GOOD * 2, "corrupt_record"
    yield "a flipped bit in the header", flipped(33), "corrupt_record"
    yield "a flipped bit in the payload", flipped(len(GOOD) - 3), "corrupt_record"
    yield "a wrong checksum of the payload", relabelled(GOOD, payload_crc=7), "corrupt_record"
    yield "another version", raw_header(at_4=2), "corrupt_record"
    yield "an unknown flag", raw_header(at_5=128), "corrupt_record"
    yield "a reserved field that is used", raw_header(at_50=1), "corrupt_record"
    yield "a count of 0", relabelled(GOOD, count=0, span=0), "corrupt_record"
    yield "a count of 11 where there are 10", relabelled(GOOD, count=11, span=11), "corrupt_record"
    yield "a count of 9", relabelled(GOOD, count=9, span=9), "corrupt_record"
    yield "a count of 65536", relabelled(GOOD, count=65_536, span=65_536), "corrupt_record"
    yield "a count of four billion", relabelled(GOOD, count=2**32 - 1, span=2**32 - 1), "corrupt_record"
    yield "a span beyond the count", relabelled(GOOD, span=2**31), "corrupt_record"
    yield "a length of four gigabytes", relabelled(GOOD, length=2**32 - 1), "corrupt_record"
    yield "65535 topics", relabelled(GOOD, topic_count=65_535), "corrupt_record"
    yield "no topic", relabelled(GOOD, topic_count=0), "corrupt_record"
    yield "a topic number beyond the dictionary", relabelled(GOOD, topic_count=1), "corrupt_record"
    yield "key lengths that are not there", relabelled(GOOD, flags=KEYS | NULL_KEYS), "corrupt_record"
    yield "body lengths beyond the end", repacked(b"\0" + struct.pack("<I", 2**32 - 1), flags=0, topic_count=1, count=1,
                                                  span=1), "corrupt_record"  # fmt: skip
    yield "a topic that is not ASCII", named("Zürich".encode()), "corrupt_record"
    yield "another partition", encode(ROWS, 1), "invalid_request"
    yield "gaps", sparse(), "invalid_request"
    yield "gaps without their places", relabelled(GOOD, flags=SPARSE), "corrupt_record"
    yield "a stamped id", relabelled(GOOD, base_id=2**60), "invalid_request"
    yield "a negative id", relabelled(GOOD, base_id=-1), "corrupt_record"
    yield "a stamped epoch", relabelled(GOOD, epoch=2**60), "invalid_request"
    yield "a negative producer", relabelled(GOOD, producer_id=-1), "corrupt_record"
    for topic in (b"..", b".", b"a/b", b"a b", b"a\r\nb", b"\0", b"J" * 250):
        yield f"topic {topic[:9]!r}", named(topic), "invalid_request"
    yield "a large body", encode([(bytes(1001), None, "", b"")], 0), "message_too_large"
    yield "a large key", encode([(b"", bytes(32 * 1024 + 1), "", b"")], 0), "message_too_large"
    yield "large headers", encode([(b"", None, "", bytes(64 * 1024 + 1))], 0), "message_too_large"
