"""Users: the API of Kafka's admin clients, `zhumq user`, and what happens to a user while the broker runs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.admin import (
    ScramMechanism as Mechanism,
)
from sasl_support import SCRAM, sasl_broker
from tests.sasl_client import PASSWORD, USER, SaslClient

from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from zhumq.security.credential import ScramMechanism
from zhumq.testing.broker import RunningBroker, broker

SECONDS_MAX = 30.0
SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with sasl_broker() as started:
        yield started


@pytest.fixture
def admin(running: RunningBroker) -> Iterator[SaslClient]:
    with SaslClient(running.bootstrap) as opened:
        opened.log_in()
        yield opened


def logs_in(running: RunningBroker, user: str, password: str, mechanism: str) -> bool:
    with SaslClient(running.bootstrap) as client:
        return client.log_in(mechanism, user=user, password=password).error_code == 0


def describe(client: SaslClient, *names: str) -> list[DescribeUserScramCredentialsResult]:
    users = [UserName(name=name) for name in names]
    request = DescribeUserScramCredentialsRequest(users=users or None)
    answer = client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, request, 0)
    assert answer.error_code == 0
    results: list[DescribeUserScramCredentialsResult] = answer.results
    return results


def alter(
    client: SaslClient,
    deletions: list[tuple[str, int]],
    upsertions: list[tuple[str, int]],
) -> dict[str, AlterUserScramCredentialsResult]:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=code) for name, code in deletions],
        upsertions=[
            ScramCredentialUpsertion(
                name=name, mechanism=code, iterations=4_096, salt=b"salt", salted_password=b"salted"
            )
            for name, code in upsertions
        ],
    )
    answer = client.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request, 0)
    return {result.user: result for result in answer.results}


def test_librdkafka_creates_describes_and_deletes_a_user(running: RunningBroker) -> None:
    client = AdminClient(
        {
            "bootstrap.servers": running.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
    )
    info = ScramCredentialInfo(Mechanism.SCRAM_SHA_256, 5_000)
    upsertion = UserScramCredentialUpsertion("rdkafka", info, b"rdkafka's secret")
    client.alter_user_scram_credentials([upsertion])["rdkafka"].result(SECONDS_MAX)
    described = client.describe_user_scram_credentials(["rdkafka"])["rdkafka"].result(SECONDS_MAX)
    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [
        (Mechanism.SCRAM_SHA_256, 5_000)
    ]
    assert logs_in(running, "rdkafka", "rdkafka's secret", "SCRAM-SHA-256")
    assert logs_in(running, "rdkafka", "rdkafka's secret", "PLAIN")
    assert not logs_in(running, "rdkafka", "rdkafka's secret", "SCRAM-SHA-512")
    deletion = UserScramCredentialDeletion("rdkafka", Mechanism.SCRAM_SHA_256)
    client.alter_user_scram_credentials([deletion])["rdkafka"].result(SECONDS_MAX)
    assert not logs_in(running, "rdkafka", "rdkafka's secret", "SCRAM-SHA-256")
    assert not logs_in(running, "rdkafka", "rdkafka's secret", "PLAIN")


def test_all_users_are_described_without_salts_and_keys(admin: SaslClient) -> None:
    found = {result.user: result for result in describe(admin)}
    assert found[USER].error_code == 0
    infos = [(each.mechanism, each.iterations) for each in found[USER].credential_infos]
    assert infos == [(SHA_256, 8_192), (SHA_512, 8_192)]


def test_unknown_and_repeated_users_are_described_with_an_error(admin: SaslClient) -> None:
    found = {each.user: each for each in describe(admin, USER, "unknown", "twice", "twice")}
    assert found[USER].error_code == 0
    assert found["unknown"].error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert found["twice"].error_code == ErrorCode.DUPLICATE_RESOURCE


@pytest.mark.parametrize(
    ("mechanism", "name", "password", "salt", "iterations", "expected"),
    [
        (SHA_256, "", "x", b"salt", 4_096, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (SHA_256, "u", "x", b"salt", 4_095, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (SHA_512, "u", "x", b"salt", 16_385, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (SHA_512, "u", "x", b"", 4_096, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (SHA_512, "u", "x", b"s" * 1_025, 4_096, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (SHA_512, "u", "", b"salt", 4_096, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (SHA_512, "u" * 256, "x", b"salt", 4_096, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (0, "u", "x", b"salt", 4_096, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (3, "u", "x", b"salt", 4_096, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_a_credential_is_refused(
    admin: SaslClient,
    mechanism: int,
    name: str,
    password: str,
    salt: bytes,
    iterations: int,
    expected: ErrorCode,
) -> None:
    result = admin.alter_user(mechanism, name, password, salt=salt, iterations=iterations)
    assert (result.user, result.error_code) == (name, expected)
    assert name not in {each.user for each in describe(admin)}


def test_a_user_that_is_altered_twice_in_a_request_is_refused_and_others_are_not(
    admin: SaslClient,
) -> None:
    admin.create_user("kept", "kept's secret")
    results = alter(
        admin,
        [("kept", SHA_256), ("missing", SHA_256)],
        [("kept", SHA_512), ("other", SHA_256), ("same", SHA_256), ("same", SHA_512)],
    )
    assert {name: ErrorCode(result.error_code) for name, result in results.items()} == {
        "kept": ErrorCode.DUPLICATE_RESOURCE,
        "missing": ErrorCode.RESOURCE_NOT_FOUND,
        "other": ErrorCode.NONE,
        "same": ErrorCode.DUPLICATE_RESOURCE,
    }
    names = {each.user: len(each.credential_infos) for each in describe(admin)}
    assert (names["kept"], names["other"], names.get("same")) == (2, 1, None)


def test_many_users_are_created_in_one_request(admin: SaslClient) -> None:
    names = [f"many-{number}" for number in range(100)]
    results = alter(admin, [], [(name, SHA_256) for name in names])
    assert not any(result.error_code for result in results.values())
    assert set(names) <= {each.user for each in describe(admin)}


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_a_changed_password_counts_at_once_and_open_connections_stay(
    running: RunningBroker, admin: SaslClient, mechanism: str
) -> None:
    user = f"changing-{mechanism}"
    admin.create_user(user, "old")
    with SaslClient(running.bootstrap) as client:
        client.log_in(mechanism, user=user, password="old")
        assert logs_in(running, user, "old", mechanism)  # remembered, if it is PLAIN
        admin.create_user(user, "new")
        assert not logs_in(running, user, "old", mechanism)
        assert logs_in(running, user, "new", mechanism)
        client.use()
    alter(admin, [(user, SHA_256)], [])
    alter(admin, [(user, SHA_512)], [])
    assert not logs_in(running, user, "new", mechanism)


def test_users_are_kept_over_a_restart(tmp_path: Path) -> None:
    with sasl_broker(data_dir=tmp_path / "data") as running, SaslClient(running.bootstrap) as admin:
        admin.log_in()
        admin.create_user("bob", "bob's secret")
    with sasl_broker(data_dir=tmp_path / "data") as running:
        for mechanism in ("PLAIN", *SCRAM):
            assert logs_in(running, "bob", "bob's secret", mechanism)


def test_the_admin_user_keeps_its_password_when_the_broker_starts_with_another(
    tmp_path: Path,
) -> None:
    with sasl_broker(data_dir=tmp_path / "data"):
        pass
    listen = "SASL_PLAINTEXT://127.0.0.1:0"
    with broker(data_dir=tmp_path / "data", listen=listen, admin=(USER, "another")) as running:
        assert logs_in(running, USER, PASSWORD, "SCRAM-SHA-512")
        assert not logs_in(running, USER, "another", "SCRAM-SHA-512")


# `zhumq user`.


def zhumq(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zhumq", "user", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text("bob's secret\n")
    file.chmod(0o600)
    return file


@pytest.mark.thorough
def test_users_are_created_before_the_first_start(tmp_path: Path, password_file: Path) -> None:
    data_dir = tmp_path / "data"
    place = ("--data-dir", str(data_dir))
    assert zhumq("create", "bob", "--password-file", str(password_file), *place).returncode == 0
    created = zhumq("create", "eve", "--password", "${env:EVE}", *place, EVE="eve's secret")
    assert (created.returncode, created.stderr) == (0, "")
    with sasl_broker(data_dir=data_dir) as running:
        assert logs_in(running, "bob", "bob's secret", "SCRAM-SHA-512")
        assert logs_in(running, "eve", "eve's secret", "PLAIN")
        refused = zhumq("list", *place)
        assert refused.returncode == 1
        assert "is using the data folder" in refused.stderr
    assert zhumq("delete", "eve", *place).returncode == 0
    listed = zhumq("list", *place)
    assert listed.stdout.split() == [
        *("USER", "MECHANISMS", USER, ",".join(SCRAM), "bob", ",".join(SCRAM))
    ]
    with sasl_broker(data_dir=data_dir) as running:
        assert not logs_in(running, "eve", "eve's secret", "PLAIN")


def test_a_stopped_folder_is_left_as_it_is_but_for_its_users(
    tmp_path: Path, password_file: Path
) -> None:
    data_dir = tmp_path / "data"
    with broker(data_dir=data_dir):
        pass
    before = {each.name: each.read_bytes() for each in data_dir.iterdir() if each.is_file()}
    zhumq("create", "bob", "--password-file", str(password_file), "--data-dir", str(data_dir))
    after = {each.name: each.read_bytes() for each in data_dir.iterdir() if each.is_file()}
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed == {"cluster-metadata.journal"}


def test_users_of_a_running_broker(tmp_path: Path, password_file: Path) -> None:
    with broker() as running:
        place = ("--bootstrap", running.bootstrap)
        assert "no users" not in zhumq("list", *place).stdout
        assert zhumq("create", "bob", "--password-file", str(password_file), *place).returncode == 0
        again = zhumq("create", "bob", "--password-file", str(password_file), *place)
        assert again.returncode == 1
        assert "already" in again.stderr
        assert "bob" in zhumq("list", *place).stdout
        password_file.write_text("another secret")
        assert zhumq("passwd", "bob", "--password-file", str(password_file), *place).returncode == 0
        assert zhumq("delete", "bob", *place).returncode == 0
        for command in (["delete", "bob"], ["passwd", "bob", "--password", "x"]):
            missing = zhumq(*command, *place)
            assert missing.returncode == 1
            assert "there is no user 'bob'" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["create", "bob", "--password", "literal"], "everyone who can list processes"),
        (["create", "bob", "--password", "${env:MISSING_VARIABLE}"], "is not set"),
        (["create", "bob", "--password-file", "/nonexistent"], "No such file"),
        (["create", "", "--password", "x"], "needs a name"),
        (["create", "bob", "--password", "ª"], "RFC 4013"),
    ],
)
def test_a_problem_is_printed_in_a_line(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    printed = zhumq(*arguments, "--data-dir", str(tmp_path / "data")).stderr
    assert expected in printed
    assert "Traceback" not in printed
