"""Requests of every shape that the OpenAPI document allows, and of shapes that it does not: no server error."""

import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from rest_support import create, send
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
from zhumq.web.openapi import document
from zhumq.web.routes import ROUTES

EXAMPLES_MAX = int(os.environ.get("ZHUMQ_REST_EXAMPLES", "5"))  # for each operation
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

# The stream of events does not end.
schema = schemathesis.openapi.from_dict(document(ROUTES)).exclude(path_regex="/events$")


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


@schema.parametrize()
@settings(
    max_examples=EXAMPLES_MAX,
    derandomize="ZHUMQ_REST_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
)
def test_every_request_is_answered_as_described(case: Any, url: str) -> None:
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
