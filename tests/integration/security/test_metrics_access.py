"""/metrics on an HTTP listener with SASL: for users that may describe the cluster. /healthz is for everyone."""

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from sasl_support import Issuer, sasl_broker
from test_push_authentication import basic
from tests.sasl_client import PASSWORD, USER

from zhumq.admin.acls import Acl, cluster_resource, create_acls
from zhumq.admin.connection import ClusterConnection
from zhumq.security.acl import AclEntry, Operation, Permission
from zhumq.testing.secured import SecuredBroker, secured_broker

SECONDS_MAX = 20.0
SETTINGS = {
    "http.security.protocol": "SASL_SSL",
    "authorizer.class.name": "zhumq",
    "connection.failed.authentication.delay.ms": "0",
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured"), settings=SETTINGS) as running:
        yield running


def get(secured: SecuredBroker, path: str, header: str | None = None) -> http.client.HTTPResponse:
    context = ssl.create_default_context(cafile=str(secured.authority))
    connection = http.client.HTTPSConnection(secured.http, context=context, timeout=SECONDS_MAX)
    connection.request("GET", path, headers={} if header is None else {"Authorization": header})
    return connection.getresponse()


def header_of(secured: SecuredBroker, user: str) -> str:
    security = secured.admin_security if user == "admin" else secured.security
    return basic(user, security.password.reveal())


def test_health_needs_no_login(secured: SecuredBroker) -> None:
    assert get(secured, "/healthz").status == http.HTTPStatus.OK


@pytest.mark.parametrize(
    "header", [None, "", "Basic", "Basic !!!", "Basic \xe4", "Bearer x", basic("alice", "wrong")]
)
def test_metrics_without_a_user_of_the_cluster_are_refused(
    secured: SecuredBroker, header: str | None
) -> None:
    answer = get(secured, "/metrics", header)
    assert answer.status == http.HTTPStatus.UNAUTHORIZED
    assert answer.headers["WWW-Authenticate"] == 'Basic realm="zhumq"'
    assert b"zhumq_" not in answer.read()


def test_metrics_are_for_users_that_may_describe_the_cluster(secured: SecuredBroker) -> None:
    answer = get(secured, "/metrics", header_of(secured, "admin"))
    assert answer.status == http.HTTPStatus.OK
    assert b"zhumq_authentications_total" in answer.read()
    refused = get(secured, "/metrics", header_of(secured, "alice"))
    assert refused.status == http.HTTPStatus.FORBIDDEN
    assert b"zhumq_" not in refused.read()
    with ClusterConnection(secured.bootstrap, security=secured.admin_security) as admin:
        entry = AclEntry("User:alice", "*", Operation.DESCRIBE, Permission.ALLOW)
        create_acls(admin, [Acl(resource=cluster_resource(), entry=entry)])
    assert get(secured, "/metrics", header_of(secured, "alice")).status == http.HTTPStatus.OK


def test_without_an_authorizer_every_user_and_token_may_read_metrics(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    issuer.write_jwks()
    settings = {**issuer.settings, "http__security__protocol": "SASL_PLAINTEXT"}
    data_dir = tmp_path / "data"
    with sasl_broker(mechanisms="PLAIN,OAUTHBEARER", data_dir=data_dir, **settings) as running:
        for header, status in (
            (basic(USER, PASSWORD), http.HTTPStatus.OK),
            (f"Bearer {issuer.token(sub='prometheus')}", http.HTTPStatus.OK),
            (f"Bearer {issuer.token(aud='another')}", http.HTTPStatus.UNAUTHORIZED),
        ):
            connection = http.client.HTTPConnection(running.http, timeout=SECONDS_MAX)
            connection.request("GET", "/metrics", headers={"authorization": header})
            assert connection.getresponse().status == status
    events = [json.loads(line) for line in (data_dir / "audit.log").read_text().splitlines()]
    found = {(each["listener"], each["principal"], each["allowed"]) for each in events}
    assert found == {
        ("HTTP", f"User:{USER}", True),
        ("HTTP", "User:prometheus", True),
        ("HTTP", "User:ANONYMOUS", False),
    }
