"""Users of a cluster on ZooKeeper: every broker knows a change that any broker, or a command, made."""

import base64
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sasl_client import SaslClient, ScramLogin

from zhumq.testing.cluster import ClusterProcesses, cluster_processes
from zhumq.testing.process import BrokerProcess

pytestmark = pytest.mark.slow

SECONDS_MAX = 30.0
MECHANISM = "SCRAM-SHA-512"
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
}


@pytest.fixture(scope="module")
def secured() -> Iterator[ClusterProcesses]:
    with cluster_processes(nodes=3, settings=SETTINGS) as running:
        yield running


def sasl_address(broker: BrokerProcess) -> str:
    """Where clients have to authenticate, as the broker has kept it."""
    lines = (broker.data_dir / "chosen-ports").read_text().splitlines()
    ports = dict(line.split("=") for line in lines)
    return f"127.0.0.1:{next(port for name, port in ports.items() if 'sasl' in name.lower())}"


def logs_in(broker: BrokerProcess, user: str, password: str, mechanism: str = MECHANISM) -> bool:
    with SaslClient(sasl_address(broker)) as client:
        return client.log_in(mechanism, user=user, password=password).error_code == 0


def seconds_until_known(cluster: ClusterProcesses, user: str, password: str) -> float:
    begin = time.monotonic()
    for broker in cluster.brokers.values():
        while not logs_in(broker, user, password):
            assert time.monotonic() - begin < SECONDS_MAX, f"{broker.bootstrap} refuses {user}"
    return time.monotonic() - begin


def test_every_broker_knows_a_user_that_any_broker_created(secured: ClusterProcesses) -> None:
    took = []
    for broker_id, broker in secured.brokers.items():
        user = f"user-{broker_id}"
        for password in ("first", "second"):
            with SaslClient(broker.bootstrap) as admin:
                admin.create_user(user, password)
            took.append(seconds_until_known(secured, user, password))
        for each in secured.brokers.values():
            assert not logs_in(each, user, "first", "PLAIN")
    print(f"slowest of {len(took)} changes on three brokers: {max(took):.3f} s")


def test_a_broker_that_restarts_knows_the_users(secured: ClusterProcesses) -> None:
    with SaslClient(secured.brokers[1].bootstrap) as admin:
        admin.create_user("kept", "secret")
    secured.brokers[2].kill()
    secured.restart(2)
    assert logs_in(secured.brokers[2], "kept", "secret")


def test_all_brokers_answer_for_an_unknown_user_with_the_same_salt(
    secured: ClusterProcesses,
) -> None:
    salts = set()
    for broker in secured.brokers.values():
        with SaslClient(sasl_address(broker)) as client:
            client.handshake(MECHANISM)
            answer = client.send_token(ScramLogin(MECHANISM, "unknown", "").first)
            fields = dict(
                part.split("=", 1) for part in bytes(answer.auth_bytes).decode().split(",")
            )
            salts.add((base64.b64decode(fields["s"]), fields["i"]))
    assert len(salts) == 1


def test_a_command_creates_a_user_in_zookeeper(secured: ClusterProcesses, tmp_path: Path) -> None:
    zookeeper = secured.brokers[1].zookeeper
    assert zookeeper is not None
    command = [
        sys.executable,
        "-m",
        "zhumq",
        "user",
        "create",
        "bob",
        "--password",
        "${env:SECRET}",
    ]
    done = subprocess.run(
        [*command, "--zookeeper", zookeeper],
        cwd=tmp_path,
        env={**os.environ, "SECRET": "bob's secret"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seconds_until_known(secured, "bob", "bob's secret")
