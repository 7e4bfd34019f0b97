"""A host whose instructions are counted while it answers a publish and a poll of a topic over a real connection."""

from __future__ import annotations

from tests.counting import counted
from tests.topics import poll_bytes, publish_bytes
from tests.unit.test_rest_serving import Served, post, read, tell

_BODY = b"12345678"
_END = b"\r\n\r\n"
_LAST_CHUNK = b"\r\n0\r\n\r\n"


def instructions_over_http(messages: int) -> tuple[dict[str, int], dict[str, int]]:
    """By function, for one publish of so many messages, and for a poll of what there is then, which is one more."""
    published: dict[str, int] = {}
    polled: dict[str, int] = {}

    async def story(served: Served) -> None:
        publish = post("publish", publish_bytes(*[_BODY] * messages))
        async with await served.say(post("publish", publish_bytes(_BODY))) as stream:  # warms caches
            await read(stream, _END)
            with counted("delivery", threads=False) as found:
                await stream.send_all(publish)
                assert (await read(stream, _END)).startswith(b"HTTP/1.1 200 ")
            published.update(found.by_function())
            with counted("delivery", threads=False) as found:
                await stream.send_all(post("poll", poll_bytes()))
                answer = await read(stream, _LAST_CHUNK)
            polled.update(found.by_function())
        assert answer.count(_BODY) == messages + 1

    tell(story)
    return published, polled
