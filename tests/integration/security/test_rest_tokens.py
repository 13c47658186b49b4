"""The REST API with tokens: a bearer is the OAUTHBEARER token of its caller, and the broker checks it."""

from collections.abc import Iterator

import httpx
import pytest
from sasl_support import Issuer, sasl_broker

from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig
from zhumq.web.credentials import BrokerSecurity

SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def api(issuer: Issuer) -> Iterator[httpx.Client]:
    with sasl_broker(mechanisms="OAUTHBEARER", **issuer.settings) as running:
        config = WebConfig(
            bootstrap=running.bootstrap, security=BrokerSecurity(mechanism="OAUTHBEARER")
        )
        with (
            rest_api(config) as url,
            httpx.Client(base_url=f"{url}/api/v1", timeout=SECONDS_MAX) as client,
        ):
            yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_valid_token_is_let_in(api: httpx.Client, issuer: Issuer) -> None:
    assert api.get("/topics", headers=bearer(issuer.token())).status_code == 200


def test_other_tokens_and_passwords_are_refused(api: httpx.Client, issuer: Issuer) -> None:
    for token in (issuer.token(exp=1), issuer.token(aud="other"), "no-token", "a.b.c"):
        answer = api.get("/topics", headers=bearer(token))
        assert (answer.status_code, token in answer.text) == (401, False)
    answer = api.get("/topics", auth=("alice", "x"))
    assert (answer.status_code, "tokens only" in answer.text) == (401, True)


def test_a_browser_logs_in_with_a_token(api: httpx.Client, issuer: Issuer) -> None:
    assert api.post("/session", json={"token": issuer.token(exp=1)}).status_code == 401
    answer = api.post("/session", json={"token": issuer.token()})
    assert answer.json()["authentication"] == "token"
    assert api.get("/topics").status_code == 200
    headers = {"X-CSRF-Token": answer.json()["csrf_token"]}
    assert api.post("/topics", json={"topic": "orders"}, headers=headers).status_code == 201
    assert api.delete("/session", headers=headers).status_code == 204
    assert api.get("/topics").status_code == 401
