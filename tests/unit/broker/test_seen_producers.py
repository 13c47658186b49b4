"""Producers that a broker has seen: bounded, exact for slow ones, and close for fast ones."""

import random

import pytest
from broker_support import connection
from tests.manual_time import START_MS, ManualClock

from zhumq.broker import seen_producers
from zhumq.broker.seen_producers import ProducerKind, SeenProducer, SeenProducers
from zhumq.model.ids import TopicPartition
from zhumq.net.service import ConnectionInfo
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch


def batch(**header: object) -> bytes:
    return build_batch([Record(timestamp=START_MS, value=b"v")], **header)  # type: ignore[arg-type]


PLAIN = batch()
NUMBERED = batch(producer_id=7, producer_epoch=2, base_sequence=0)


class Sent:
    """Requests as the handler of Produce reports them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.seen = SeenProducers(self.clock, random.Random(1).getrandbits)
        self.looks = 0

    def send(
        self,
        to: TopicPartition,
        client: ConnectionInfo,
        records: bytes = PLAIN,
        messages: int = 1,
        transactional_id: str | None = None,
    ) -> None:
        client.produced += 1
        if client.produced >= client.produced_due:
            self.looks += 1
            self.seen.look(
                client,
                f"client-{client.id}",
                to,
                records,
                requests=1,
                messages=messages,
                size_bytes=messages * 10,
                now_ms=self.clock.now_ms(),
                transactional_id=transactional_id,
            )

    def of(self, topic: str, partition: int = 0) -> list[SeenProducer]:
        return [
            seen
            for key, seen in self.seen.items()
            if (key.topic, key.partition) == (topic, partition)
        ]


def test_each_request_of_a_slow_producer_is_counted() -> None:
    sent, client = Sent(), connection()
    for number in range(20):
        sent.send(TopicPartition("t", number % 4), client, messages=number % 4)
    sent.clock.ms += 5_000
    sent.seen.turn()
    (seen,) = sent.of("t", 3)
    assert (seen.requests, seen.messages, seen.size_bytes) == (5, 15, 150)
    assert (seen.request_rate, seen.message_rate, seen.byte_rate) == (1.0, 3.0, 30.0)
    sent.clock.ms += 5_000
    sent.seen.turn()
    assert seen.message_rate == 0.0


def test_of_a_fast_producer_some_requests_stand_for_all_and_no_partition_is_missed() -> None:
    """Sixteen partitions in turn: a fixed stride would meet the same ones for ever."""
    sent, client = Sent(), connection()
    for number in range(64_000):
        sent.send(TopicPartition("t", number % 16), client)
    assert sent.looks < 600
    counts = [sent.of("t", partition)[0].messages for partition in range(16)]
    # The last look stands for those before it.
    assert 64_000 - 191 <= sum(counts) <= 64_000
    assert all(1_500 < count < 8_000 for count in counts), counts


def test_a_slow_connection_beside_a_fast_one_is_seen_with_its_first_request() -> None:
    sent, fast, slow = Sent(), connection(1), connection(2)
    for _ in range(10_000):
        sent.send(TopicPartition("fast", 0), fast)
    sent.send(TopicPartition("slow", 0), slow)
    assert sent.of("slow")[0].requests == 1
    sent.seen.turn()
    sent.clock.ms += 1_000
    sent.send(TopicPartition("fast", 0), fast)
    assert sent.of("fast")[0].last_ms == sent.clock.ms, "each turn begins with a look"


def test_kinds_are_read_from_the_batches() -> None:
    sent, client = Sent(), connection()
    sent.send(TopicPartition("plain", 0), client)
    sent.send(TopicPartition("numbered", 0), client, NUMBERED)
    transactional = batch(producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    sent.send(TopicPartition("both", 1), client, transactional, transactional_id="payments")
    assert sent.of("plain")[0].kind is ProducerKind.PLAIN
    assert sent.of("numbered")[0].kind is ProducerKind.IDEMPOTENT
    assert sent.of("numbered")[0].producer_epoch == 2
    (seen,) = sent.of("both", 1)
    assert (seen.kind, seen.transactional_id) == (ProducerKind.TRANSACTIONAL, "payments")
    samples = dict(next(iter(sent.seen.metrics())).samples)
    assert samples == {
        '{kind="plain"}': 1,
        '{kind="idempotent"}': 1,
        '{kind="transactional"}': 1,
    }
    sent.clock.ms += seen_producers.ACTIVE_MS + 1
    assert not any(value for _, value in next(iter(sent.seen.metrics())).samples)


def test_the_one_that_wrote_least_recently_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_producers, "SEEN_MAX", 2)
    sent, client = Sent(), connection()
    for topic in ("a", "b", "a", "c"):
        sent.send(TopicPartition(topic, 0), client)
        sent.seen.turn()
    assert [key.topic for key, _ in sent.seen.items()] == ["a", "c"]
    assert (len(sent.seen), sent.seen.forgotten_total) == (2, 1)


def test_records_too_short_for_a_batch_are_not_noted() -> None:
    sent = Sent()
    sent.send(TopicPartition("t", 0), connection(), b"short")
    assert len(sent.seen) == 0
