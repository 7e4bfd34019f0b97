"""The settings of a host on the command line: `--set NAME=VALUE`, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from delivery.errors import ConfigError

if TYPE_CHECKING:
    from delivery.config import HostConfig


_OPTIONS = ("zookeeper", "data")
"""Settings that a command needs before it has them all."""


def with_settings(config: HostConfig, settings: list[str]) -> HostConfig:
    """`config` with `NAME=VALUE` settings over it. Raises ConfigError."""
    import msgspec

    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or name not in config.__struct_fields__:
            known = ", ".join(config.__struct_fields__)
            raise ConfigError(f"--set {setting[:60]!r}: use NAME=VALUE with a name of {known}")
        if name in _OPTIONS:
            raise ConfigError(f"--set {name}: give --{name} instead")
        values[name] = value
    fields = {name: getattr(config, name) for name in config.__struct_fields__} | values
    try:
        return msgspec.convert(fields, type(config), strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"--set: {error}") from None


def as_options(config: HostConfig) -> Iterator[str]:
    """The options of `hoot serve` that give these settings."""
    from delivery.config import HostConfig

    yield from ("--zookeeper", config.zookeeper, "--data", str(config.data), "--address", config.address)
    yield from ("--port", str(config.port))
    yield from ["--no-http"] if config.http_port is None else ["--http-port", str(config.http_port)]
    named = {"zookeeper", "data", "address", "port", "http_port"}
    default = HostConfig()
    for name in config.__struct_fields__:
        if name not in named and getattr(config, name) != getattr(default, name):
            yield from ("--set", f"{name}={getattr(config, name)}")
