"""Requests of every shape that the OpenAPI document allows, and of shapes that it does not: no server error."""

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from rest_support import create, send
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from zhumq.testing.broker import broker
from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig
from zhumq.web.endpoint import PREFIX, Endpoint
from zhumq.web.openapi import document
from zhumq.web.routes import ROUTES

EXAMPLES_MAX = int(os.environ.get("ZHUMQ_REST_EXAMPLES", "5"))  # for each operation and mode
WAIT_MS_MAX = 50
SECONDS_MAX = 60.0
TOPIC = "orders"
GROUP = "billing"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]

schema = schemathesis.openapi.from_dict(document(ROUTES))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with broker() as running, rest_api(WebConfig(bootstrap=running.bootstrap)) as address:
        with httpx.Client(base_url=f"{address}/api/v1", timeout=SECONDS_MAX) as api:
            create(
                api, TOPIC, partitions=2, settings={"index.keys": "true", "delay.enable": "true"}
            )
            send(api, TOPIC, "text", {"base64": "/w=="}, None, key="k")
            api.post(f"/groups/{GROUP}/reset", json={"topic": TOPIC, "to": "earliest"})
        yield address


# Not by `schema.parametrize`: its tests have one id between them, of which xdist runs one.
@pytest.mark.thorough
@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
@pytest.mark.parametrize("row", ROUTES, ids=lambda row: f"{row.method} {row.path}")
def test_every_request_is_answered_as_described(
    row: Endpoint, mode: GenerationMode, url: str
) -> None:
    operation = schema[PREFIX + row.path][row.method]

    @settings(
        max_examples=EXAMPLES_MAX,
        derandomize="ZHUMQ_REST_EXAMPLES" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def request(case: Any) -> None:
        # Made-up names lead nowhere: half of the requests are about what is there.
        if len(str(case.path_parameters)) % 2 and case.method != "DELETE":
            known = {"topic": TOPIC, "group": GROUP}
            case.path_parameters |= {
                name: known[name] for name in case.path_parameters if name in known
            }
        wait = (case.query or {}).get("wait_ms")
        if isinstance(wait, int) and 0 <= wait <= 10_000:
            case.query["wait_ms"] = min(wait, WAIT_MS_MAX)
        response = case.call(base_url=url, timeout=SECONDS_MAX)
        case.validate_response(response, checks=CHECKS)

    try:
        request()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "no request fits the document"
