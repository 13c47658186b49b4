"""The audit log of a real broker: refusals and changes are in it, with who asked and from where."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from zhumq.testing.cluster import wait_for
from zhumq.testing.process import broker_process

SECONDS_MAX = 30.0
SETTINGS = {
    "authorizer.class.name": "zhumq",
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": "false",
}
ACL = AclBinding(
    ResourceType.TOPIC,
    "orders",
    ResourcePatternType.LITERAL,
    "User:bob",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)


def events(data: Path) -> list[dict[str, Any]]:
    path = data / "audit.log"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def create(bootstrap: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    error = admin.create_topics([NewTopic(name)])[name].exception(SECONDS_MAX)
    return "" if error is None else str(error.args[0].name())


def test_a_refusal_is_in_the_audit_log_with_who_and_what_and_from_where(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker_process(data, settings=SETTINGS) as broker:
        assert create(broker.bootstrap, "orders") == "TOPIC_AUTHORIZATION_FAILED"
        found = wait_for(
            lambda: [each for each in events(data) if each["resource"] == "topic:orders"] or None,
            "a line of the audit log",
        )
        assert found[0]["action"] == "CREATE_TOPICS"
        assert found[0]["principal"] == "User:ANONYMOUS"
        assert found[0]["host"] == "127.0.0.1"
        assert found[0]["operation"] == "CREATE"
        assert found[0]["allowed"] is False
        assert found[0]["listener"] == "PLAINTEXT"


def test_an_allowed_change_is_in_the_audit_log_and_what_the_last_requests_did(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    settings = {**SETTINGS, "super.users": "User:ANONYMOUS"}
    with broker_process(data, settings=settings) as broker:
        assert create(broker.bootstrap, "orders") == ""
        assert broker.stop() == 0
    assert [
        (each["resource"], each["operation"], each["allowed"])
        for each in events(data)
        if each["action"] == "CREATE_TOPICS"
    ] == [("topic:orders", "CREATE", True)]


def test_a_change_of_users_and_acls_says_which(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker_process(data, settings={**SETTINGS, "super.users": "User:ANONYMOUS"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for acl, done in admin.create_acls([ACL]).items():
            assert acl == ACL
            done.result(SECONDS_MAX)
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
        change = UserScramCredentialUpsertion("alice", credential, b"a-password")
        admin.alter_user_scram_credentials([change])["alice"].result(SECONDS_MAX)
        assert broker.stop() == 0
    found = {each["action"]: each["resource"] for each in events(data) if each["allowed"]}
    assert found["CREATE_ACLS"] == "acl:ALLOW User:bob READ topic:orders from *"
    assert found["ALTER_USER_SCRAM_CREDENTIALS"] == "user:alice"
    assert "a-password" not in (data / "audit.log").read_text()


@pytest.mark.parametrize("settings", [{}, {**SETTINGS, "audit.log.enable": "false"}])
def test_without_an_authorizer_or_when_turned_off_there_is_no_file(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    data = tmp_path / "data"
    with broker_process(data, settings=settings) as broker:
        create(broker.bootstrap, "orders")
        assert broker.stop() == 0
    assert not (data / "audit.log").exists()
