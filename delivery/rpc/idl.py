"""Loading the IDL: the struct classes that thriftpy2 makes of it, and the methods of each service."""

from __future__ import annotations

import threading
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import thriftpy2

from delivery.errors import ConfigError

_HERE = Path(__file__).resolve()
# Beside the package in a checkout, inside it in an installed wheel.
_FOLDERS = (_HERE.parents[1] / "idl", _HERE.parents[2] / "idl")
_FILES = {"RegionHost": "delivery", "Listener": "subscriber", "PlainListener": "subscriber"}
_loading = threading.Lock()  # thriftpy2's parser keeps its state in globals
_loaded: dict[str, Any] = {}


class Method(NamedTuple):
    """One method of a service: the struct of its arguments and the struct of its outcome."""

    name: str
    args: Any
    result: Any
    error: Any
    """The declared exception struct, None when the method declares none."""


def idl_path(name: str) -> Path:
    """Where a file of `idl/` is. Raises ConfigError when it is missing, as in a damaged installation."""
    path = next((folder / name for folder in _FOLDERS if (folder / name).is_file()), None)
    if path is None:
        raise ConfigError(f"{name} is missing from the installation; install hoot again")
    return path


def load_idl(name: str) -> Any:
    """The module made from `idl/<name>.thrift` (`delivery` or `subscriber`): its structs, constants and services.

    Loaded once per process. Raises ConfigError when the file is missing.
    """
    with _loading:
        if name not in _loaded:
            _loaded[name] = thriftpy2.load(str(idl_path(f"{name}.thrift")), module_name=f"hoot_{name}_thrift")
        return _loaded[name]


@lru_cache(maxsize=len(_FILES))
def methods(service: str) -> dict[str, Method]:
    """The methods of a service (`RegionHost`, `Listener` or `PlainListener`) by name."""
    made = getattr(load_idl(_FILES[service]), service)
    return {name: _method(made, name) for name in made.thrift_services}


def _method(service: Any, name: str) -> Method:
    result = getattr(service, f"{name}_result")
    declared = result.thrift_spec.get(1)
    return Method(name, getattr(service, f"{name}_args"), result, declared[2] if declared else None)
