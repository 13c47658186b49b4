"""Lookup by key and tag on a real broker: real producers, kill -9, lost and damaged index files, bad input."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from zhumq import Admin
from zhumq.admin.errors import NotFound, Refused
from zhumq.admin.lookup import Lookup, lookup
from zhumq.admin.settings import alter_topic_settings
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.lookup import LookupRequest
from zhumq.testing.cluster import wait_for
from zhumq.testing.process import BrokerProcess, broker_process

WAIT_SECONDS = 60.0
INDEXED = {"index.keys": "true", "retention.ms": "-1"}
PAGE_BYTES = 4096


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path_factory.mktemp("lookup")) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"topic-{abs(hash(request.node.name)):x}"


@pytest.fixture
def admin(shared: BrokerProcess) -> Iterator[Admin]:
    with Admin(shared.bootstrap) as connected:
        yield connected


def producer_of(bootstrap: str, **settings: object) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "acks": "all", **settings})


def values(found: Lookup) -> list[bytes | None]:
    return [message.value for message in found.messages]


def indexed_lookup(admin: Admin, topic: str, **sought: object) -> Lookup:
    """The lookup once the index has everything."""

    def found() -> Lookup | None:
        answer = lookup(admin, topic, **sought)  # type: ignore[arg-type]
        return answer if answer.scanned == 0 else None

    return wait_for(found, f"the index of {topic}", WAIT_SECONDS)


def index_files(broker: BrokerProcess, topic: str) -> list[Path]:
    return sorted(broker.data_dir.glob(f"{topic}-*/*.keyindex"))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_messages_of_a_real_producer_are_found_by_key_and_by_tag(
    admin: Admin, shared: BrokerProcess, codec: str
) -> None:
    topic = f"codec-{codec}"
    admin.create_topic(topic, partitions=3, settings=INDEXED)
    producer = producer_of(shared.bootstrap, **{"compression.type": codec, "linger.ms": 20})
    for number in range(900):
        producer.produce(
            topic,
            b"value %d" % number,
            key=b"key %d" % (number % 300),
            headers=[("other", b"zhumq-tags"), ("zhumq-tags", b"all, mod%d" % (number % 9))],
            timestamp=1_000_000 + number,
        )
    assert producer.flush(WAIT_SECONDS) == 0
    expected = [b"value 607", b"value 307", b"value 7"]
    assert values(admin.lookup(topic, key="key 7")) == expected  # By a scan or not.
    assert values(indexed_lookup(admin, topic, key="key 7")) == expected
    newest = indexed_lookup(admin, topic, key="key 7", limit=1)
    assert (values(newest), newest.is_complete) == ([b"value 607"], False)
    tagged = indexed_lookup(admin, topic, tag="mod4", limit=1000)
    assert values(tagged) == [b"value %d" % number for number in range(895, 0, -9)]
    assert len(indexed_lookup(admin, topic, tag="all", limit=1000).messages) == 900
    assert values(indexed_lookup(admin, topic, tag="key 7")) == []
    between = indexed_lookup(admin, topic, key="key 7", from_ms=1_000_307, to_ms=1_000_607)
    assert values(between) == [b"value 307"]


def test_the_value_of_a_key_on_a_compacted_topic_is_its_newest_message(
    admin: Admin, shared: BrokerProcess, topic: str
) -> None:
    settings = {**INDEXED, "cleanup.policy": "compact", "segment.bytes": "2000"}
    admin.create_topic(topic, partitions=1, settings=settings)
    producer = producer_of(shared.bootstrap)
    for number in range(200):
        producer.produce(topic, b"%d" % number, key=b"k%d" % (number % 4))
        producer.flush(WAIT_SECONDS)
    producer.produce(topic, None, key=b"k1")
    assert producer.flush(WAIT_SECONDS) == 0
    (newest,) = indexed_lookup(admin, topic, key="k3", limit=1).messages
    assert (newest.value, newest.offset) == (b"199", 199)
    (deleted,) = indexed_lookup(admin, topic, key="k1", limit=1).messages
    assert deleted.value is None


def test_messages_of_aborted_and_open_transactions_are_not_found(
    admin: Admin, shared: BrokerProcess, topic: str
) -> None:
    admin.create_topic(topic, partitions=1, settings=INDEXED)
    producer = producer_of(shared.bootstrap, **{"transactional.id": topic})
    producer.init_transactions(WAIT_SECONDS)
    for ending in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(topic, ending.__name__.encode(), key=b"k", headers=[("zhumq-tags", b"t")])
        producer.flush(WAIT_SECONDS)
        ending(WAIT_SECONDS)
    committed = [b"commit_transaction"]
    assert values(indexed_lookup(admin, topic, key="k")) == committed
    assert values(indexed_lookup(admin, topic, tag="t")) == committed
    producer.begin_transaction()
    producer.produce(topic, b"open", key=b"k")
    producer.flush(WAIT_SECONDS)
    assert values(admin.lookup(topic, key="k")) == committed
    producer.commit_transaction(WAIT_SECONDS)
    assert values(indexed_lookup(admin, topic, key="k")) == [b"open", *committed]


def test_a_topic_without_the_index_is_refused_until_it_has_the_setting(
    admin: Admin, shared: BrokerProcess, topic: str
) -> None:
    admin.create_topic(topic, partitions=1)
    producer = producer_of(shared.bootstrap)
    producer.produce(topic, b"v", key=b"k")
    assert producer.flush(WAIT_SECONDS) == 0
    with pytest.raises(Refused, match="has no index"):
        admin.lookup(topic, key="k")
    alter_topic_settings(admin, topic, {"index.keys": "true"})
    assert values(indexed_lookup(admin, topic, key="k")) == [b"v"]
    wait_for(lambda: index_files(shared, topic) or None, "the index file")
    alter_topic_settings(admin, topic, {"index.keys": "false"})
    wait_for(lambda: not index_files(shared, topic) or None, "no index file")
    with pytest.raises(Refused, match="has no index"):
        admin.lookup(topic, key="k")


def test_bad_input_is_refused_and_odd_input_is_answered(
    admin: Admin, shared: BrokerProcess, topic: str
) -> None:
    admin.create_topic(topic, partitions=2, settings=INDEXED)
    producer = producer_of(shared.bootstrap, **{"message.max.bytes": 4_000_000})
    large = b"k" * 1_000_000
    for key in (None, b"", large):
        producer.produce(topic, b"value", key=key, headers={"zhumq-tags": b",,"})
    assert producer.flush(WAIT_SECONDS) == 0
    (empty,) = indexed_lookup(admin, topic, key=b"").messages
    assert empty.key == b""
    (found,) = indexed_lookup(admin, topic, key=large).messages
    assert found.key == large
    assert values(indexed_lookup(admin, topic, key="unknown")) == []
    assert values(indexed_lookup(admin, topic, tag="")) == []
    with pytest.raises(NotFound, match="there is no topic"):
        admin.lookup("unknown-topic", key="k")
    with pytest.raises(NotFound, match="no partition 2"):
        admin.lookup(topic, key="k", partition=2)
    with pytest.raises(Refused, match="a key or of a tag"):
        admin.lookup(topic, key="k", tag="t")
    with pytest.raises(Refused, match="a limit is"):
        admin.lookup(topic, key="k", limit=0)
    for kind, limit, partition in ((2, 1, 0), (0, 0, 0), (0, 10**6, 0), (0, 1, 9), (0, 1, -1)):
        request = LookupRequest(topic=topic, partition=partition, kind=kind, limit=limit)
        assert admin.request(ApiKey.LOOKUP, request).error_code


@pytest.mark.thorough
def test_kill_9_loses_no_message_of_the_index(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker, Admin(broker.bootstrap) as admin:
        settings = {**INDEXED, "segment.bytes": "200000"}
        admin.create_topic("t", partitions=1, settings=settings)
        number = 0
        for _ in range(4):
            producer = producer_of(broker.bootstrap, **{"linger.ms": 1})
            ends_at = number + 4_000
            while number < ends_at:
                producer.produce("t", b"%d" % number, key=b"k%d" % number)
                number += 1
            assert producer.flush(WAIT_SECONDS) == 0
            broker.kill()  # Somewhere in the middle of the index.
            broker.start()
            for each in (0, number // 2, number - 1):
                assert values(admin.lookup("t", key=f"k{each}")) == [b"%d" % each]
        for each in (0, 3_999, 4_000, number - 1):
            assert values(indexed_lookup(admin, "t", key=f"k{each}")) == [b"%d" % each]


@pytest.mark.thorough
def test_lost_and_damaged_index_files_are_noticed_and_built_again(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker, Admin(broker.bootstrap) as admin:
        settings = {**INDEXED, "segment.bytes": "50000"}
        admin.create_topic("t", partitions=1, settings=settings)
        producer = producer_of(broker.bootstrap)
        for number in range(12_000):
            producer.produce("t", b"%d" % number, key=b"k%d" % number)
            if number % 1_000 == 999:  # Batches are no larger, however slow the broker is.
                assert producer.flush(WAIT_SECONDS) == 0
        assert values(indexed_lookup(admin, "t", key="k5")) == [b"5"]
        files = index_files(broker, "t")
        assert len(files) >= 3
        # Under the running broker: the next lookup that reads the page notices.
        content = bytearray(files[0].read_bytes())
        for page in range(1, len(content) // PAGE_BYTES):
            content[page * PAGE_BYTES + 1_000] ^= 0xFF
        files[0].write_bytes(content)
        damaged = admin.lookup("t", key="k5")
        assert values(damaged) == [b"5"]
        assert damaged.scanned > 0
        assert values(indexed_lookup(admin, "t", key="k5")) == [b"5"]
        assert "is built again" in broker.log
        # While it is down: one is lost, one is cut, one is of zeros.
        broker.stop()
        files[0].unlink()
        files[1].write_bytes(files[1].read_bytes()[:5_000])
        files[2].write_bytes(bytes(files[2].stat().st_size))
        broker.start()
        for number in range(0, 12_000, 1_500):
            assert values(admin.lookup("t", key=f"k{number}")) == [b"%d" % number]
        for number in range(0, 12_000, 1_500):
            found = indexed_lookup(admin, "t", key=f"k{number}")
            assert values(found) == [b"%d" % number]


def test_an_index_goes_with_the_segments_that_retention_deletes(tmp_path: Path) -> None:
    fast = {"log.retention.check.interval.ms": "200"}
    with broker_process(tmp_path, settings=fast) as broker, Admin(broker.bootstrap) as admin:
        settings = {**INDEXED, "segment.bytes": "50000", "file.delete.delay.ms": "0"}
        admin.create_topic("t", partitions=1, settings=settings)
        producer = producer_of(broker.bootstrap)
        for number in range(6_000):
            producer.produce("t", b"%d" % number, key=b"k%d" % number)
            if number % 500 == 499:
                assert producer.flush(WAIT_SECONDS) == 0
        assert values(indexed_lookup(admin, "t", key="k5")) == [b"5"]
        count = len(index_files(broker, "t"))
        alter_topic_settings(admin, "t", {"retention.bytes": "20000"})
        wait_for(lambda: len(index_files(broker, "t")) < count or None, "fewer index files")
        wait_for(lambda: not values(admin.lookup("t", key="k5")) or None, "no deleted message")
        assert values(indexed_lookup(admin, "t", key="k5999")) == [b"5999"]


def test_new_messages_are_indexed_soon(admin: Admin, shared: BrokerProcess, topic: str) -> None:
    admin.create_topic(topic, partitions=1, settings=INDEXED)
    producer = producer_of(shared.bootstrap)
    for number in range(5):
        producer.produce(topic, b"%d" % number, key=b"k")
        assert producer.flush(WAIT_SECONDS) == 0
        begun = time.monotonic()
        found = indexed_lookup(admin, topic, key="k")
        assert len(found.messages) == number + 1
        assert time.monotonic() - begun < WAIT_SECONDS
