"""Transactions of the client: all messages of a block or none, fencing, two phases."""

import time
import uuid
from collections.abc import Iterator

import confluent_kafka
import pytest
from client_support import until
from committed_reads import PEER, new_topic, read

from zhumq import PreparedState, Producer, TransactionalProducer
from zhumq.client.brokers import Brokers
from zhumq.client.errors import (
    ProducerFenced,
    RequestFailed,
    TransactionAborted,
    TransactionMisuse,
)
from zhumq.client.group_metadata import GroupMetadata
from zhumq.client.transaction_core import Outcome
from zhumq.model.address import parse_addresses
from zhumq.model.ids import TopicPartition
from zhumq.testing.broker import broker

# More than the client leaves unanswered: some of it is in the log before the transaction ends.
MANY = [b"x" * 1000] * 10_000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    if PEER:
        yield PEER
        return
    with broker(settings={"transaction.two.phase.commit.enable": "true"}) as running:
        yield running.bootstrap


def unique() -> str:
    return f"tx-{uuid.uuid4().hex[:8]}"


def commit(producer: TransactionalProducer, topic: str, *values: bytes) -> None:
    """One transaction with these messages."""
    with producer.transaction() as transaction:
        for value in values:
            transaction.send(topic, value)


def test_messages_of_a_block_appear_together_in_all_topics(bootstrap: str) -> None:
    first, second = new_topic(bootstrap, 3), new_topic(bootstrap)
    with TransactionalProducer(bootstrap, transactional_id=unique()) as producer:
        with producer.transaction() as transaction:
            for number in range(100):
                transaction.send(first, b"%d" % number, key=b"%d" % number)
            transaction.send(second, b"last")
            assert read(bootstrap, first, partitions=3) == []
        assert len(read(bootstrap, first, partitions=3)) == 100
        assert read(bootstrap, second) == [b"last"]


def test_a_key_goes_where_the_other_producer_sends_it(bootstrap: str) -> None:
    topic = new_topic(bootstrap, 5)
    keys = [b"key-%d" % number for number in range(50)]
    with (
        TransactionalProducer(bootstrap, transactional_id=unique()) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send_many(topic, keys, keys=keys)
    own = read(bootstrap, topic, partitions=5)
    other = new_topic(bootstrap, 5)
    with Producer(bootstrap) as librdkafka:
        for key in keys:
            librdkafka.send(other, key, key=key)
    assert read(bootstrap, other, partitions=5) == own


def test_an_exception_in_the_block_aborts(bootstrap: str) -> None:
    topic = new_topic(bootstrap)

    def fail(producer: TransactionalProducer) -> None:
        with producer.transaction() as transaction:
            transaction.send_many(topic, MANY)
            raise KeyError

    with TransactionalProducer(bootstrap, transactional_id=unique()) as producer:
        with pytest.raises(KeyError):
            fail(producer)
        commit(producer, topic, b"committed")
    assert read(bootstrap, topic) == [b"committed"]
    assert len(read(bootstrap, topic, isolation="read_uncommitted")) > 1


def test_many_transactions_one_after_the_other(bootstrap: str) -> None:
    topic = new_topic(bootstrap, 2)
    with TransactionalProducer(bootstrap, transactional_id=unique()) as producer:
        for number in range(50):
            with producer.transaction() as transaction:
                transaction.send(topic, b"%d" % number, partition=0)
                transaction.send(topic, b"%d" % number, partition=1)
        with producer.transaction():
            pass  # An empty one costs nothing.
    assert read(bootstrap, topic, partitions=2) == [b"%d" % number for number in range(50)] * 2


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_everything_of_a_message_arrives(bootstrap: str, compression: str) -> None:
    now = time.time_ns() // 1_000_000
    topic = new_topic(bootstrap)
    with (
        TransactionalProducer(
            bootstrap,
            transactional_id=unique(),
            compression=compression,  # type: ignore[arg-type]
        ) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(
            topic,
            None,
            key=b"k",
            headers={"a": "text", "b": b"\x00", "c": None},
            timestamp_ms=now - 5_000,
        )
        transaction.send_many(topic, [b"v", None], timestamp_ms=now)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "c"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = [consumer.poll(30) for _ in range(3)]
    consumer.close()
    assert [(each.key(), each.value()) for each in found] == [
        (b"k", None),
        (None, b"v"),
        (None, None),
    ]
    assert found[0].headers() == [("a", b"text"), ("b", b"\x00"), ("c", None)]
    assert [each.timestamp()[1] for each in found] == [now - 5_000, now, now]


def test_a_second_producer_fences_the_first(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    name = unique()

    def be_replaced(first: TransactionalProducer, second: TransactionalProducer) -> None:
        with first.transaction() as transaction:
            transaction.send(topic, b"first")
            commit(second, topic, b"second")

    with (
        TransactionalProducer(bootstrap, transactional_id=name) as first,
        TransactionalProducer(bootstrap, transactional_id=name) as second,
    ):
        with pytest.raises(ProducerFenced, match=name):
            be_replaced(first, second)
        with pytest.raises(ProducerFenced, match=name):
            commit(first, topic, b"never")
        commit(second, topic, b"goes on")
    assert read(bootstrap, topic) == [b"second", b"goes on"]


def test_a_transaction_whose_time_is_up_is_aborted_and_the_next_one_is_committed(
    bootstrap: str,
) -> None:
    topic = new_topic(bootstrap)

    def work_too_long(producer: TransactionalProducer) -> None:
        with producer.transaction() as transaction:
            transaction.send_many(topic, MANY)
            until(lambda: _is_stable(bootstrap, topic))  # It is aborted.

    with TransactionalProducer(
        bootstrap, transactional_id=unique(), transaction_timeout_ms=1_000
    ) as producer:
        with pytest.raises(TransactionAborted):
            work_too_long(producer)
        commit(producer, topic, b"committed")
    assert read(bootstrap, topic) == [b"committed"]


def _is_stable(bootstrap: str, topic: str) -> bool:
    ends = []
    for isolation in ("read_committed", "read_uncommitted"):
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "c", "isolation.level": isolation}
        )
        place = confluent_kafka.TopicPartition(topic, 0)
        ends.append(consumer.get_watermark_offsets(place, timeout=10)[1])
        consumer.close()
    return ends[0] == ends[1] > 0


def test_a_message_that_is_too_large_aborts_with_the_brokers_reason(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    with TransactionalProducer(bootstrap, transactional_id=unique()) as producer:
        with pytest.raises(TransactionAborted, match=topic):
            commit(producer, topic, b"small", bytes(2_000_000))
        commit(producer, topic, b"after")
    assert read(bootstrap, topic) == [b"after"]


def test_messages_of_all_sizes_are_packed_into_batches_that_the_broker_takes(
    bootstrap: str,
) -> None:
    topic = new_topic(bootstrap)
    values = [bytes([65 + number]) * (number * 50_000) for number in range(1, 20)]
    with (
        TransactionalProducer(bootstrap, transactional_id=unique()) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send_many(topic, values, partition=0)
        transaction.send_many(topic, values, keys=[b"key"] * len(values))
        for value in values:
            transaction.send(topic, value)
    assert read(bootstrap, topic) == values * 3


def test_keys_and_values_have_to_be_as_many(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    with TransactionalProducer(bootstrap, transactional_id=unique()) as producer:
        for keys, words in (([b"k"], "fewer"), ([b"k"] * 3, "more")):
            with pytest.raises(ValueError, match=words), producer.transaction() as transaction:
                transaction.send_many(topic, [b"1", b"2"], keys=keys)
    assert read(bootstrap, topic) == []


def test_an_error_that_the_program_swallows_still_aborts(bootstrap: str) -> None:
    topic = new_topic(bootstrap)

    def swallow(producer: TransactionalProducer) -> None:
        with producer.transaction() as transaction:
            # Until the answer to the first has arrived.
            with pytest.raises(TransactionAborted):
                transaction.send_many(topic, [bytes(2_000_000)] * 100)
            with pytest.raises(TransactionAborted):
                transaction.send(topic, b"small")

    with (
        TransactionalProducer(bootstrap, transactional_id=unique()) as producer,
        pytest.raises(TransactionAborted),
    ):
        swallow(producer)
    assert read(bootstrap, topic) == []


def test_wrong_calls_say_what_is_wrong(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    with pytest.raises(ValueError, match="transactional_id"):
        TransactionalProducer(bootstrap, transactional_id="")
    with pytest.raises(ValueError, match="brotli"):
        TransactionalProducer(bootstrap, transactional_id="x", compression="brotli")  # type: ignore[arg-type]
    with TransactionalProducer(bootstrap, transactional_id=unique()) as producer:
        with producer.transaction() as transaction:
            with pytest.raises(RequestFailed, match="partitions 0 to 0, not 7"):
                transaction.send(topic, b"x", partition=7)
            with pytest.raises(TypeError):
                transaction.send(topic, "text")  # type: ignore[arg-type]
            with pytest.raises(TransactionMisuse), producer.transaction():
                pass
            with pytest.raises(TransactionMisuse, match="two_phase"):
                producer.prepare()
        with pytest.raises(TransactionMisuse, match="no open transaction"):
            transaction.send(topic, b"too late")
    assert read(bootstrap, topic) == []


def test_an_unknown_address_raises_within_the_given_time() -> None:
    with (
        TransactionalProducer("127.0.0.1:1", transactional_id="x", seconds_max=0.5) as producer,
        pytest.raises(RequestFailed, match=r"127\.0\.0\.1:1"),
        producer.transaction(),
    ):
        pass


def test_an_interrupted_request_leaves_no_answer_to_the_next_one(bootstrap: str) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    (address,) = parse_addresses(bootstrap)
    with Brokers(bootstrap, client_id="test") as brokers:
        connection = brokers.connection(address)
        assert brokers.connection(address) is connection
        with pytest.raises(KeyboardInterrupt):
            brokers.retrying(interrupt, "be interrupted")
        assert brokers.connection(address) is not connection


def test_offsets_of_a_generation_that_is_over_abort_the_transaction(bootstrap: str) -> None:
    topic, output = new_topic(bootstrap), new_topic(bootstrap)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    stale = GroupMetadata(group=topic, generation=0, member=consumer.memberid())

    def commit_late(producer: TransactionalProducer) -> None:
        with producer.transaction() as transaction:
            transaction.send(output, b"never")
            transaction.commit_offsets({TopicPartition(topic, 0): 5}, stale)

    with (
        TransactionalProducer(bootstrap, transactional_id=unique()) as producer,
        pytest.raises(TransactionAborted, match="ILLEGAL_GENERATION"),
    ):
        commit_late(producer)
    assert read(bootstrap, output) == []
    place = confluent_kafka.TopicPartition(topic, 0)
    assert consumer.committed([place], timeout=10)[0].offset < 0
    consumer.close()


# Two phases

two_phases = pytest.mark.skipif(bool(PEER), reason="Kafka 4.3 has no KIP-939")


def prepared(bootstrap: str, name: str, topic: str) -> PreparedState:
    """What a process that crashes after prepare leaves behind."""
    producer = TransactionalProducer(bootstrap, transactional_id=name, two_phase=True)
    with producer.transaction() as transaction:
        transaction.send(topic, b"prepared")
        state = producer.prepare()
    producer.close()
    return state


@two_phases
def test_a_prepared_transaction_is_invisible_until_it_is_completed(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    with TransactionalProducer(bootstrap, transactional_id=unique(), two_phase=True) as producer:
        with producer.transaction() as transaction:
            transaction.send(topic, b"1")
            state = producer.prepare()
            with pytest.raises(TransactionMisuse):
                transaction.send(topic, b"too late")
        assert read(bootstrap, topic) == []
        assert producer.complete(state) is Outcome.COMMITTED
        assert read(bootstrap, topic) == [b"1"]
        with producer.transaction() as transaction:
            transaction.send(topic, b"2")
            producer.prepare()
        assert producer.complete(state) is Outcome.ABORTED  # the state of the one before
        assert producer.complete(state) is Outcome.NOTHING
        with producer.transaction() as transaction:
            transaction.send(topic, b"3")
    assert read(bootstrap, topic) == [b"1", b"3"]


@two_phases
def test_another_process_commits_what_a_crashed_one_has_prepared(bootstrap: str) -> None:
    topic, name = new_topic(bootstrap), unique()
    text = str(prepared(bootstrap, name, topic))
    with TransactionalProducer(bootstrap, transactional_id=name, two_phase=True) as producer:
        assert producer.complete(PreparedState.parse(text)) is Outcome.COMMITTED
        assert read(bootstrap, topic) == [b"prepared"]
        with producer.transaction() as transaction:
            transaction.send(topic, b"next")
    assert read(bootstrap, topic) == [b"prepared", b"next"]
    with TransactionalProducer(bootstrap, transactional_id=name, two_phase=True) as producer:
        assert producer.complete(PreparedState.parse(text)) is Outcome.NOTHING


@two_phases
@pytest.mark.parametrize(
    "text", [None, "1000000:0"]
)  # the broker of the tests does not give that id
def test_another_process_aborts_what_was_not_decided(bootstrap: str, text: str | None) -> None:
    topic, name = new_topic(bootstrap), unique()
    prepared(bootstrap, name, topic)
    state = None if text is None else PreparedState.parse(text)
    with TransactionalProducer(bootstrap, transactional_id=name, two_phase=True) as producer:
        assert producer.complete(state) is Outcome.ABORTED
    assert read(bootstrap, topic) == []


@two_phases
def test_what_was_prepared_can_be_looked_at_and_left_alone(bootstrap: str) -> None:
    topic, name = new_topic(bootstrap), unique()
    state = prepared(bootstrap, name, topic)
    for _ in range(2):
        with TransactionalProducer(bootstrap, transactional_id=name, two_phase=True) as producer:
            assert producer.connect(keep_prepared=True) == state
            with pytest.raises(TransactionMisuse), producer.transaction():
                pass
    with TransactionalProducer(bootstrap, transactional_id=name, two_phase=True) as producer:
        assert producer.complete(state) is Outcome.COMMITTED
        assert producer.connect(keep_prepared=True) is None
    assert read(bootstrap, topic) == [b"prepared"]


@two_phases
def test_the_process_that_completes_fences_the_one_that_prepared(bootstrap: str) -> None:
    topic, name = new_topic(bootstrap), unique()
    with (
        TransactionalProducer(bootstrap, transactional_id=name, two_phase=True) as first,
        TransactionalProducer(bootstrap, transactional_id=name, two_phase=True) as second,
    ):
        with first.transaction() as transaction:
            transaction.send(topic, b"1")
            state = first.prepare()
        assert second.complete(state) is Outcome.COMMITTED
        with pytest.raises(ProducerFenced):
            first.complete(None)
    assert read(bootstrap, topic) == [b"1"]


@two_phases
def test_a_broker_without_two_phases_says_which_setting_is_missing() -> None:
    with (
        broker() as running,
        TransactionalProducer(
            running.bootstrap, transactional_id=unique(), two_phase=True
        ) as producer,
        pytest.raises(RequestFailed, match=r"transaction\.two\.phase\.commit\.enable"),
    ):
        producer.connect()


@two_phases
def test_a_crash_before_prepare_is_aborted_by_the_next_transaction(bootstrap: str) -> None:
    topic, name = new_topic(bootstrap), unique()
    first = TransactionalProducer(bootstrap, transactional_id=name, two_phase=True)
    crashed = first.transaction()
    crashed.__enter__().send_many(topic, MANY)
    with (
        TransactionalProducer(bootstrap, transactional_id=name, two_phase=True) as second,
        second.transaction() as transaction,
    ):
        transaction.send(topic, b"2")
    assert read(bootstrap, topic) == [b"2"]
    first.close()
