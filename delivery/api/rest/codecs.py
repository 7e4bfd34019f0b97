"""Which encoding a request has, and which its answer gets."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec
from starlette.datastructures import Headers

from delivery.api.rest import avro, texts
from delivery.api.rest.requests import ConsumeRequest, Published, PublishRequest
from delivery.api.rest.streams import Blocks
from delivery.errors import InvalidRequest


class Codec(msgspec.Struct, frozen=True):
    """One encoding."""

    content_type: str
    read_publish: Callable[[bytes], PublishRequest]
    read_published: Callable[[bytes], Published]
    read_consume: Callable[[bytes], ConsumeRequest]
    write_published: Callable[[Published], bytes]
    blocks: Callable[[], Blocks]


AVRO: Final = Codec(
    avro.CONTENT_TYPE, avro.read_publish, avro.read_published, avro.read_consume, avro.write_published, avro.AvroBlocks
)
JSON: Final = Codec(
    texts.CONTENT_TYPE, texts.read_publish, texts.read_published, texts.read_consume, texts.write_published,
    texts.JsonBlocks,
)  # fmt: skip
_QUALITY: Final = re.compile(r";\s*q=([01](?:\.\d{0,3})?)\s*(?:;|$)", re.ASCII | re.IGNORECASE)
_BY_TYPE: Final = {codec.content_type: codec for codec in (AVRO, JSON)}


def request_codec(headers: Headers) -> Codec:
    """The encoding of a request's body. Raises InvalidRequest for all others, and for none."""
    found = _BY_TYPE.get(_kind(headers.get("content-type", "")))
    if found is None:
        raise InvalidRequest(f"Only {' and '.join(_BY_TYPE)} content types are supported.")
    return found


def rollback_codec(headers: Headers) -> Codec:
    """The encoding of a rollback, whose body is what a publish answered: Avro unless it says JSON."""
    return _BY_TYPE.get(_kind(headers.get("content-type", "")), AVRO)


def answer_codec(headers: Headers, request: Codec) -> Codec:
    """The encoding of the answer: what `Accept` wants most of the two, the first of equals, otherwise the request's."""
    ranges = headers.get("accept", "").split(",")
    wanted = [(quality, kind) for part in ranges if (kind := _kind(part)) in _BY_TYPE and (quality := _quality(part))]
    return _BY_TYPE[max(wanted, key=lambda one: one[0])[1]] if wanted else request


def wants_json(headers: Headers) -> bool:
    """Whether whoever asks speaks JSON, so that an error is told in it, too."""
    kinds = [_kind(part) for part in (headers.get("content-type", ""), *headers.get("accept", "").split(","))]
    return JSON.content_type in kinds


def _quality(text: str) -> float:
    """How much a range of `Accept` is wanted, 0 for not at all (RFC 9110, section 12.4.2); what is none counts as 1."""
    found = _QUALITY.search(text)
    return 1.0 if found is None else min(float(found[1]), 1.0)


def _kind(text: str) -> str:
    return text.partition(";")[0].strip().lower()
