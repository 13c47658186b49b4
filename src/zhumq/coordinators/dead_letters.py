"""Dead letters: messages that could not be delivered, written with the reason to the topic beside theirs."""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.host.clock import Clock
from zhumq.metadata.topics import NewTopic
from zhumq.model.errors import (
    BrokerError,
    CorruptMessage,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from zhumq.records.batch import SEQUENCE_MAX, Record, RecordBatch, RecordHeader, batches
from zhumq.records.builder import build_batch
from zhumq.replication.partition import Partition
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.share.redelivery import DeadLetter

logger = logging.getLogger(__name__)

DEAD_LETTER_SUFFIX: Final = ".dlq"
DEAD_LETTERS_PER_BATCH_MAX: Final = 500
DEAD_LETTER_BYTES_PER_BATCH_MAX: Final = 512 << 10
READ_BYTES_MAX: Final = 1 << 20
HEADERS_BYTES_MAX: Final = 64 << 10  # what a letter is longer than its message, at most
REASON_CHARACTERS_MAX: Final = 1_000


class PlannedDeadLetters(NamedTuple):
    """The messages that get their letters in one batch, and the last offset they account for."""

    records: list[Record]
    last_offset: int


class DeadLetterRouter(Protocol):
    """How a batch gets into a partition, wherever its leader is."""

    async def append(self, topic: str, partition: int, batch: bytes) -> None:
        """Durable when this returns; a batch that is there already is not written twice."""


class LocalDeadLetterRouter:
    """All partitions are led by this broker."""

    def __init__(self, replicas: ReplicaManager, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock

    async def append(self, topic: str, partition: int, batch: bytes) -> None:
        target = self._replicas.partition(topic, partition)
        target.check_leads()
        target.check_enough_replicas()
        appended = target.append(batch, self._clock.now_ms())
        await target.when_durable(appended.last_offset + 1)


class DeadLetterWriter:
    """Writes letters so that each is there once, also if a crash makes it be written again.

    The window numbers its letters and writes them as one idempotent producer, so that the log they go to
    recognises one it has.
    """

    def __init__(
        self,
        store: MetadataStore,
        metadata_client: MetadataClient,
        router: DeadLetterRouter,
        clock: Clock,
        *,
        retention_ms: int,
    ) -> None:
        self._store = store
        self._metadata_client = metadata_client
        self._router = router
        self._clock = clock
        self._retention_ms = retention_ms

    async def write(
        self,
        source: Partition,
        group: str,
        dead_letter: DeadLetter,
        planned: PlannedDeadLetters,
        *,
        producer_id: int,
        dead_letters_written: int,
    ) -> None:
        """Durable when this returns."""
        if not planned.records:
            return
        topic = await self._topic_beside(source)
        now_ms = self._clock.now_ms()
        batch = build_batch(
            [
                _dead_letter(record, source, group, dead_letter, now_ms)
                for record in planned.records
            ],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=dead_letters_written & SEQUENCE_MAX,
        )
        try:
            await self._router.append(topic, source.topic_partition.partition, batch)
        except OutOfOrderSequenceNumber as reason:
            # Written before a crash, when retention or compaction had not yet taken one of them.
            logger.warning("dead letters in %s are there already: %s", topic, reason)

    async def _topic_beside(self, source: Partition) -> str:
        """The topic of the letters, made if it is not there or has too few partitions."""
        of = source.topic_partition.topic
        name = of + DEAD_LETTER_SUFFIX
        topic = self._store.image.topics.get(of)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {of!r} was deleted")
        count = len(topic.partitions)
        beside = self._store.image.topics.get(name)
        if beside is None:
            new_topic = NewTopic(
                name=name,
                partitions=count,
                replication_factor=len(topic.partitions[0].target_replicas),
                settings=self._settings(topic.settings.get("max.message.bytes")),
            )
            (result,) = await self._metadata_client.create_topics([new_topic])
            if isinstance(result, BrokerError) and not isinstance(result, TopicAlreadyExists):
                raise result
        elif len(beside.partitions) <= source.topic_partition.partition:
            (error,) = await self._metadata_client.add_partitions([(name, count, None)])
            if error is not None:
                raise error
        return name

    def _settings(self, message_bytes_max: str | None) -> dict[str, str]:
        settings = {"retention.ms": str(self._retention_ms), "compression.type": "producer"}
        largest = int(message_bytes_max) if message_bytes_max is not None else 1 << 20
        settings["max.message.bytes"] = str(
            max(largest, DEAD_LETTER_BYTES_PER_BATCH_MAX) + HEADERS_BYTES_MAX * 2
        )
        return settings


def plan_dead_letters(source: Partition, dead_letter: DeadLetter) -> PlannedDeadLetters:
    """As many of these messages as go into one batch; always the same ones."""
    records: list[Record] = []
    size = 0
    for record in _read(source, dead_letter.first_offset, dead_letter.last_offset):
        record_bytes = len(record.key or b"") + len(record.value or b"") + HEADERS_BYTES_MAX // 64
        record_bytes += sum(len(header.key) + len(header.value or b"") for header in record.headers)
        if records and (
            size + record_bytes > DEAD_LETTER_BYTES_PER_BATCH_MAX
            or len(records) >= DEAD_LETTERS_PER_BATCH_MAX
        ):
            return PlannedDeadLetters(records, record.offset - 1)
        records.append(record)
        size += record_bytes
    return PlannedDeadLetters(records, dead_letter.last_offset)


def _read(source: Partition, first: int, last: int) -> Iterator[Record]:
    offset = first
    while offset <= last:
        try:
            data = source.read(offset, READ_BYTES_MAX).read_bytes()
        except OffsetOutOfRange:
            if offset >= source.log_start_offset:
                raise
            # Retention was faster: what is left of it begins later.
            offset = source.log_start_offset
            continue
        next_offset = offset
        for batch in batches(data):
            if not batch.header.is_control and batch.header.base_offset <= last:
                for record in _decoded(batch, source):
                    if offset <= record.offset <= last:
                        yield record
            next_offset = batch.header.next_offset
        if next_offset <= offset:
            return
        offset = next_offset


def _decoded(batch: RecordBatch, source: Partition) -> list[Record]:
    """The records of a batch; none where a client wrote what nobody can decode, so that a window
    whose consumers gave it up gets past it."""
    try:
        return list(batch.records())
    except CorruptMessage as reason:
        logger.warning(
            "%s: no dead letter holds batch %d, which cannot be decoded: %s",
            source.topic_partition,
            batch.header.base_offset,
            reason,
        )
        return []


def _dead_letter(
    record: Record, source: Partition, group: str, dead_letter: DeadLetter, now_ms: int
) -> Record:
    partition = source.topic_partition
    facts = {
        "zhumq.group": group,
        "zhumq.reason": dead_letter.reason[:REASON_CHARACTERS_MAX],
        "zhumq.deliveries": str(dead_letter.delivery_count),
        "zhumq.topic": partition.topic,
        "zhumq.partition": str(partition.partition),
        "zhumq.offset": str(record.offset),
        "zhumq.timestamp": str(record.timestamp),
        "zhumq.time": str(now_ms),
    }
    return Record(
        timestamp=now_ms,
        key=record.key,
        value=record.value,
        headers=(
            *record.headers,
            *(RecordHeader(name, fact.encode()) for name, fact in facts.items()),
        ),
    )
