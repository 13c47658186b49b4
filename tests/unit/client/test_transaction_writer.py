"""The writer packs messages into batches: which partition, how large, with which sequences."""

from collections.abc import Iterable

import pytest

from zhumq.client.batch_queue import Batch
from zhumq.client.errors import RequestFailed
from zhumq.client.transaction_core import TransactionCore
from zhumq.client.transaction_writer import BATCH_BYTES_MAX, OPEN_BYTES_MAX, TransactionWriter
from zhumq.model.ids import TopicPartition
from zhumq.protocol.messages.producers import InitProducerIdResponse
from zhumq.records.batch import Record, batches
from zhumq.records.codecs import Compression
from zhumq.records.partitioner import partition_of


class Topics:
    """A cluster whose topics have so many partitions."""

    def __init__(self, count: int) -> None:
        self.count = count

    def partition_count(self, topic: str) -> int:
        return self.count


class Sent:
    """Keeps the batches."""

    def __init__(self) -> None:
        self.calls: list[list[Batch]] = []

    def add(self, given: Iterable[Batch]) -> None:
        self.calls.append(list(given))

    @property
    def batches(self) -> list[Batch]:
        return [batch for call in self.calls for batch in call]

    def records(self) -> dict[int, list[Record]]:
        found: dict[int, list[Record]] = {}
        for batch in self.batches:
            (decoded,) = batches(batch.data)
            found.setdefault(batch.place.partition, []).extend(decoded.records())
        return found


def writer(topics: Topics, sent: Sent) -> TransactionWriter:
    core = TransactionCore("id", timeout_ms=1, two_phase=False)
    core.on_init(InitProducerIdResponse(producer_id=7, producer_epoch=3))
    return TransactionWriter(topics, core, sent, compression=Compression.NONE)  # type: ignore[arg-type]


def test_batches_of_all_partitions_are_handed_over_together() -> None:
    sent = Sent()
    writing = writer(Topics(3), sent)
    for partition in range(3):
        writing.append("t", b"v", None, (), partition, 5)
    assert sent.calls == []
    writing.seal_all()
    assert [len(call) for call in sent.calls] == [3]
    writing.seal_all()
    assert len(sent.batches) == 3


def test_sequences_go_on_from_batch_to_batch() -> None:
    sent = Sent()
    writing = writer(Topics(1), sent)
    for count in (2, 3):
        writing.extend("t", [b"v"] * count, None, None, 5)
        writing.seal_all()
    headers = [next(iter(batches(batch.data))).header for batch in sent.batches]
    assert [header.base_sequence for header in headers] == [0, 2]
    assert all(header.is_transactional for header in headers)
    assert [batch.number for batch in sent.batches] == [1, 2]


def test_keys_choose_partitions_one_by_one_and_together_alike() -> None:
    keys: list[bytes | None] = [b"key-%d" % number for number in range(200)]
    together, one_by_one = Sent(), Sent()
    first, second = writer(Topics(5), together), writer(Topics(5), one_by_one)
    first.extend("t", keys, keys, None, 5)
    for key in keys:
        second.append("t", key, key, (), None, 5)
    first.seal_all()
    second.seal_all()
    assert together.records() == one_by_one.records()
    for partition, found in together.records().items():
        assert all(partition_of(record.key or b"", 5) == partition for record in found)


def test_messages_without_a_key_are_spread_over_the_partitions() -> None:
    sent = Sent()
    writing = writer(Topics(4), sent)
    writing.extend("t", [bytes(1_000)] * 2_000, None, None, 5)
    for _ in range(2_000):
        writing.append("t", bytes(1_000), None, (), None, 5)
    writing.seal_all()
    counts = {partition: len(found) for partition, found in sent.records().items()}
    assert sum(counts.values()) == 4_000
    assert len(counts) == 4
    assert max(counts.values()) < 2 * min(counts.values())


def test_what_waits_is_bounded() -> None:
    sent = Sent()
    writing = writer(Topics(1_000), sent)
    for partition in range(1_000):
        writing.append("t", bytes(100_000), None, (), partition, 5)
    assert 100_000_000 - sum(len(batch.data) for batch in sent.batches) < OPEN_BYTES_MAX
    assert all(len(batch.data) <= BATCH_BYTES_MAX for batch in sent.batches)


def test_a_value_that_is_no_bytes_leaves_no_empty_batch() -> None:
    sent = Sent()
    writing = writer(Topics(1), sent)
    with pytest.raises(TypeError):
        writing.append("t", "text", None, (), None, 5)  # type: ignore[arg-type]
    writing.append("t", bytes(2 * BATCH_BYTES_MAX), None, (), None, 5)
    writing.seal_all()
    assert [len(found) for found in sent.records().values()] == [1]


def test_partitions_that_were_added_are_found() -> None:
    topics = Topics(2)
    sent = Sent()
    writing = writer(topics, sent)
    with pytest.raises(RequestFailed, match="partitions 0 to 1, not 2"):
        writing.append("t", b"v", None, (), 2, 5)
    with pytest.raises(RequestFailed, match="not -1"):
        writing.append("t", b"v", None, (), -1, 5)
    topics.count = 3
    writing.append("t", b"v", None, (), 2, 5)
    writing.seal_all()
    assert [batch.place for batch in sent.batches] == [TopicPartition("t", 2)]


def test_a_cleared_writer_has_nothing_to_send() -> None:
    sent = Sent()
    writing = writer(Topics(1), sent)
    writing.append("t", b"v", None, (), None, 5)
    writing.clear()
    writing.seal_all()
    assert sent.batches == []
