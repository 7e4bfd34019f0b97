"""Settings of a region host: numbers that cannot be are refused, each by its name."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from delivery.config import HostConfig
from delivery.errors import ConfigError

NUMBERS = sorted(name for name, kind in get_type_hints(HostConfig).items() if kind in (int, float, int | None))


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "1", True], ids=repr)
def test_what_can_be_no_such_number_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"\b{name} must be .* not {value!r}") as caught:
        HostConfig(**{name: value}).check()
    assert not caught.value.retryable


def test_the_defaults_can_be_used() -> None:
    HostConfig().check()


def test_a_store_or_layout_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"store must be one of log, hbase, not 'tape'; hbase_layout .* not 'flat'"):
        HostConfig(store="tape", hbase_layout="flat").check()
