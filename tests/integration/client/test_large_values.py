"""Claim check on a real broker: large values through every kind of producer and consumer, and their dead letters."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import storing
from client_support import until

from zhumq import (
    Admin,
    ClaimCheck,
    Consumer,
    FileStore,
    Producer,
    Task,
    TransactionalProducer,
    Worker,
)
from zhumq.client.errors import BlobMissing
from zhumq.testing.broker import RunningBroker

LARGE = bytes(range(256)) * 40_000  # 10 MB, ten times what a broker takes


def test_values_of_any_size_arrive_from_a_producer_and_a_transaction(
    zhumq_broker: RunningBroker, tmp_path: Path
) -> None:
    bootstrap = zhumq_broker.bootstrap
    claims = ClaimCheck(FileStore(tmp_path / "blobs"))
    with Admin(bootstrap) as admin:
        admin.create_topic("films", partitions=1)
    with Producer(bootstrap) as producer:
        claims.send(producer, "films", LARGE, key=b"k", headers={"source": "cam"})
        claims.send(producer, "films", b"small")
    with (
        TransactionalProducer(bootstrap, transactional_id="films") as transactional,
        transactional.transaction() as transaction,
    ):
        claims.send(transaction, "films", LARGE[::-1])
    found = []
    with Consumer("films", group="g", bootstrap=bootstrap) as consumer:
        for message in consumer:
            found.append(claims.unpack(message))
            assert len(message.value or b"") < 200
            if len(found) == 1:
                assert (message.key, message.headers[0]) == (b"k", ("source", b"cam"))
            claims.delete(message)
            if len(found) == 3:
                break
    assert found == [LARGE, b"small", LARGE[::-1]]
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []


def test_a_worker_dead_letters_a_message_without_its_blob_and_a_replay_finds_it_again(
    zhumq_broker: RunningBroker, tmp_path: Path
) -> None:
    bootstrap = zhumq_broker.bootstrap
    claims = ClaimCheck(FileStore(tmp_path / "blobs"))
    with Admin(bootstrap) as admin:
        admin.create_topic("films", partitions=1)
    with Producer(bootstrap) as producer:
        claims.send(producer, "films", LARGE)
    (blob,) = (path for path in (tmp_path / "blobs").rglob("*") if path.is_file())
    blob.rename(tmp_path / "away")
    found: list[bytes | None] = []

    def handle(task: Task) -> None:
        found.append(claims.unpack(task))

    def run_until(fact: Callable[[], bool]) -> None:
        worker = Worker(
            "films", handle, group="w", bootstrap=bootstrap, retries=0, on_failure="dead-letter"
        )
        worker.run(until=fact)

    with Admin(bootstrap) as admin:
        run_until(lambda: admin.dead_letter_topics().get("films.dlq") == 1)
        (dead,) = admin.dead_letters("films")
        assert "BlobMissing: blob " in dead.story.reason
        assert found == []
        (tmp_path / "away").rename(blob)
        admin.replay("films")
        run_until(lambda: bool(found))
    assert found == [LARGE]


def test_the_reader_of_another_folder_learns_what_is_wrong(
    zhumq_broker: RunningBroker, tmp_path: Path
) -> None:
    bootstrap = zhumq_broker.bootstrap
    with Producer(bootstrap) as producer:
        ClaimCheck(FileStore(tmp_path / "here")).send(producer, "films", LARGE)
    elsewhere = ClaimCheck(FileStore(tmp_path / "there"))
    with Consumer("films", bootstrap=bootstrap) as consumer:
        message = until(lambda: next(iter(consumer.poll(1)), None))
        with pytest.raises(BlobMissing, match=r"is not in .*there: it was deleted, or this is not"):
            elsewhere.unpack(message)


@pytest.mark.parametrize("count", [1, 5, 9])
def test_a_store_that_is_killed_has_every_blob_as_a_whole_or_not_at_all(
    tmp_path: Path, count: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, storing.__file__, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    stored = [process.stdout.readline().decode().strip() for _ in range(count)]
    process.kill()  # most likely in the middle of the next one
    rest, _ = process.communicate()
    stored += rest.decode().split()
    files = {path.name: path for path in tmp_path.rglob("*") if path.is_file()}
    whole = {name for name in files if not name.endswith(".tmp")}
    assert set(stored) <= whole
    assert {files[name].read_bytes() == storing.BLOB for name in whole} == {True}
    store = FileStore(tmp_path, now=lambda: time.time() + 60)
    assert store.delete_older_than(30) == len(files)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
