"""The OpenAPI document of topics and transactions over HTTP, made from the operations of both.

The types of the JSON bodies give its schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from delivery.api.rest import avro, texts
from delivery.api.rest.errors import EVERYWHERE, STATUS_TEXTS, Problem
from delivery.api.rest.operations import OPERATIONS, Body, Operation
from delivery.api.rest.transaction_operations import TRANSACTION_OPERATIONS
from delivery.config import software_version
from delivery.messaging.names import NAMESPACE_PATTERN, TOPIC_PATTERN
from delivery.model import NAME_MAX

PATH: Final = "/v1/openapi.json"
_SCHEMAS: Final = "#/components/schemas/{name}"
_PATTERNS: Final = {"namespace": NAMESPACE_PATTERN, "topic": TOPIC_PATTERN, "pointer": "^[0-9]+$"}
_OPERATIONS: Final = (*OPERATIONS, *TRANSACTION_OPERATIONS)


def document() -> dict[str, Any]:
    """The document, version 3.1."""
    types = [Problem, *(body.json for body in _bodies() if not isinstance(body.json, dict))]
    shown, components = msgspec.json.schema_components(types, ref_template=_SCHEMAS)
    schemas = dict(zip(map(repr, types), shown, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in _OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Topics over HTTP", "version": software_version(),
            "description": "Transactional messaging. docs/rest.md tells what everything means.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {_error_name(code): _error(code, schemas) for code in STATUS_TEXTS},
        },
    }  # fmt: skip


def _bodies() -> Iterator[Body]:
    for operation in _OPERATIONS:
        yield from (body for body in (operation.body, operation.answer) if body is not None)


def _operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.name, "summary": operation.summary,
        "parameters": [
            *(_parameter(name, "path", {"type": "string", "pattern": pattern, "maxLength": NAME_MAX})
              for name, pattern in _PATTERNS.items() if f"{{{name}}}" in operation.path),
            *(_parameter(name, "query", schema) for name, schema in operation.query.items()),
        ],
        "responses": {"200": _answer(operation, schemas), **_errors(operation)},
    }  # fmt: skip
    if operation.body is not None:
        content = _content(operation.body, schemas)
        found["requestBody"] = {"required": operation.body.required, "content": content}
    return found


def _parameter(name: str, place: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _answer(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    if operation.answer is None:
        return {"description": "It is done; no body."}
    return {"description": operation.summary, "content": _content(operation.answer, schemas)}


def _errors(operation: Operation) -> dict[str, Any]:
    codes = sorted({*operation.errors, *EVERYWHERE})
    return {str(code): {"$ref": f"#/components/responses/{_error_name(code)}"} for code in codes}


def _error_name(code: int) -> str:
    return f"error{code}"


def _error(code: int, schemas: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": STATUS_TEXTS[code],
        "content": {
            texts.CONTENT_TYPE: {"schema": schemas[repr(Problem)]},
            "text/plain": {"schema": {"type": "string"}},
        },
    }
    if code == 503:
        found["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return found


def _content(body: Body, schemas: dict[str, Any]) -> dict[str, Any]:
    schema = body.json if isinstance(body.json, dict) else schemas[repr(body.json)]
    found: dict[str, Any] = {texts.CONTENT_TYPE: {"schema": schema}}
    if body.avro is not None:
        found[avro.CONTENT_TYPE] = {"schema": {"x-avro-schema": json.loads(avro.schema_text(body.avro))}}
    return found
