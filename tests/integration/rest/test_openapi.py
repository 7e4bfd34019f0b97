"""The OpenAPI document against a running host: schemathesis makes requests out of it, right ones and wrong ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from delivery.api.rest.operations import OPERATIONS
from delivery.api.rest.transaction_operations import TRANSACTION_OPERATIONS
from tests.integration.several import Several
from tests.topics import Topics

schemathesis: Any = pytest.importorskip("schemathesis")

pytestmark = pytest.mark.integration
LEFT_OUT = ("positive_data_acceptance", "not_a_server_error")
"""A request that has the right form may mean nothing: 400. And a transaction that is too old is answered 500."""
CASES = [
    (one.name, mode)
    for one in (*OPERATIONS, *TRANSACTION_OPERATIONS)
    for mode in ("positive", "negative")
    if (one.name, mode) != ("look", "negative")  # it takes nothing that could be wrong
]


@pytest.fixture(scope="module")
def document(hosts: Several) -> Any:
    host = hosts.hosts[0]
    return schemathesis.openapi.from_url(f"http://{host.address}:{host.http_port}/v1/openapi.json")


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_every_answer_is_one_that_the_document_tells_of(
    document: Any, topics: Topics, namespace: str, name: str, mode: str
) -> None:
    topics.create("t")
    operation = document.find_operation_by_id(name)

    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    @settings(
        max_examples=4, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def ask(case: Any) -> None:
        if mode == "positive" and name not in ("list", "create", "delete") and "topic" in case.path_parameters:
            case.path_parameters = {"namespace": namespace, "topic": "t"}
        response = case.call_and_validate(excluded_checks=schemathesis.checks.CHECKS.get_by_names(LEFT_OUT))
        assert response.status_code != 500 or response.json()["code"] == "transaction_expired"

    ask()
