"""An ensemble that is down, a wrong path, a broker id in use: one clear line each."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from zhumq.broker.app import BrokerApp
from zhumq.broker.config import BrokerConfig
from zhumq.cluster.dev_zookeeper import DevZookeeper, dev_zookeeper
from zhumq.cluster.store import BrokerIdTaken, StoreUnusable
from zhumq.model.errors import DataDirUnusable, SettingInvalid, ZhumqError
from zhumq.testing.process import BrokerProcess

pytestmark = pytest.mark.slow

ANY_PORT = "127.0.0.1:0"
NEW_PATH = {"zookeeper.chroot.create": "true"}
START_SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[DevZookeeper]:
    with dev_zookeeper() as ensemble:
        yield ensemble


def start_and_stop(data_dir: Path, zookeeper: str, broker_id: int = 1, **settings: str) -> None:
    """Start a broker in this process and stop it. Raises what start raises."""

    async def scenario() -> None:
        app = await BrokerApp.start(
            BrokerConfig.load(
                listen=ANY_PORT,
                http=ANY_PORT,
                data_dir=data_dir,
                broker_id=broker_id,
                zookeeper=zookeeper,
                settings={key.replace("_", "."): value for key, value in settings.items()},
            )
        )
        await app.stop()

    asyncio.run(scenario())


def refusal(
    kind: type[ZhumqError], data_dir: Path, zookeeper: str, broker_id: int = 1, **settings: str
) -> str:
    with pytest.raises(kind) as caught:
        start_and_stop(data_dir, zookeeper, broker_id, **settings)
    return str(caught.value)


def test_an_ensemble_that_is_down_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        closed_port = f"127.0.0.1:{closed.getsockname()[1]}"
    command = [sys.executable, "-m", "zhumq", "start", "--zookeeper", closed_port]
    command += ["--listen", ANY_PORT, "--http", ANY_PORT, "--data-dir", str(tmp_path / "data")]
    command += ["--set", "zookeeper.connection.timeout.ms=500", "--log-level", "error"]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=START_SECONDS_MAX, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert f"no ZooKeeper answers at {closed_port}" in line


def test_a_path_that_is_not_there_is_refused_or_made(
    tmp_path: Path, zookeeper: DevZookeeper
) -> None:
    place = f"{zookeeper.connect}/nowhere/yet"
    assert "no node /nowhere/yet" in refusal(StoreUnusable, tmp_path / "data", place)
    start_and_stop(tmp_path / "data", place, zookeeper_chroot_create="true")
    start_and_stop(tmp_path / "data", place)


def test_a_folder_of_another_cluster_is_refused(tmp_path: Path, zookeeper: DevZookeeper) -> None:
    one, two = (f"{zookeeper.connect}/{name}" for name in ("one", "two"))
    start_and_stop(tmp_path / "first", one, zookeeper_chroot_create="true")
    start_and_stop(tmp_path / "second", two, zookeeper_chroot_create="true")
    assert "belongs to cluster" in refusal(StoreUnusable, tmp_path / "first", two)
    # At an empty path a broker with an old cluster's data does not create a new cluster.
    empty = f"{zookeeper.connect}/empty"
    reason = refusal(StoreUnusable, tmp_path / "first", empty, zookeeper_chroot_create="true")
    assert "there is none at" in reason


def test_a_folder_of_another_broker_is_refused(tmp_path: Path, zookeeper: DevZookeeper) -> None:
    place = f"{zookeeper.connect}/numbers"
    start_and_stop(tmp_path / "data", place, zookeeper_chroot_create="true")
    reason = refusal(DataDirUnusable, tmp_path / "data", place, broker_id=2)
    assert "belongs to broker 1, this is broker 2" in reason


@pytest.mark.thorough
def test_a_broker_id_in_use_is_refused_and_the_holder_named(
    tmp_path: Path, zookeeper: DevZookeeper
) -> None:
    place = f"{zookeeper.connect}/taken"
    with running_broker(tmp_path / "first", place) as first:
        reason = refusal(
            BrokerIdTaken, tmp_path / "second", place, zookeeper_session_timeout_ms="1000"
        )
        assert f"broker 1 is already running at {first.bootstrap}" in reason


def test_more_replicas_than_brokers_are_refused(tmp_path: Path, zookeeper: DevZookeeper) -> None:
    with running_broker(tmp_path / "data", f"{zookeeper.connect}/alone") as only:
        admin = AdminClient({"bootstrap.servers": only.bootstrap, "log_level": 0})
        topic = NewTopic("too-many", 1, 3)
        with pytest.raises(KafkaException) as caught:
            admin.create_topics([topic])["too-many"].result(START_SECONDS_MAX)
        assert caught.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
        assert "3 replicas need as many brokers, and 1 are alive" in caught.value.args[0].str()


def test_a_port_for_the_other_brokers_that_is_in_use_is_named(
    tmp_path: Path, zookeeper: DevZookeeper
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        reason = refusal(
            SettingInvalid,
            tmp_path / "data",
            f"{zookeeper.connect}/port",
            zookeeper_chroot_create="true",
            inter_broker_listener=address,
        )
    assert f"cannot listen on inter.broker.listener {address}" in reason


@pytest.mark.parametrize(
    ("flag", "settings", "message"),
    [
        ("", {}, "is not HOST:PORT"),
        ("h:1", {"inter.broker.listener": "nonsense"}, "inter.broker.listener 'nonsense'"),
        ("h:1", {"inter.broker.advertised": "h"}, "inter.broker.advertised 'h'"),
        ("h:1", {"inter.broker.listener": "0.0.0.0:1"}, "add --insecure"),
        ("h:1", {"replication.mode": "hope"}, "replication.mode"),
        ("h:1", {"zookeeper.session.timeout.ms": "0"}, "zookeeper.session.timeout.ms"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    flag: str, settings: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingInvalid) as caught:
        BrokerConfig.load(zookeeper=flag, settings=settings)
    assert message in str(caught.value)


@contextlib.contextmanager
def running_broker(data_dir: Path, zookeeper: str) -> Iterator[BrokerProcess]:
    process = BrokerProcess(data_dir, broker_id=1, zookeeper=zookeeper, settings=NEW_PATH)
    process.start()
    try:
        yield process
    finally:
        process.kill()
