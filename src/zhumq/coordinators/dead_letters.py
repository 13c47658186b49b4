"""Dead letters: undeliverable messages, written with the reason to the topic's dead-letter topic."""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.delivery_routes import DeadLetterRoute
from zhumq.coordinators.router import LeaderRouter
from zhumq.host.clock import Clock
from zhumq.metadata.topics import NewTopic
from zhumq.model.errors import (
    BrokerError,
    CorruptMessage,
    ErrorCode,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from zhumq.model.ids import TopicPartition
from zhumq.net.channel import PeerRefused
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
HEADERS_BYTES_MAX: Final = 64 << 10  # by which a dead letter may exceed its message
REASON_CHARACTERS_MAX: Final = 1_000
_WRITTEN_BEFORE: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,)


class PlannedDeadLetters(NamedTuple):
    """The messages that become dead letters in one batch, and the last offset that the batch covers."""

    records: list[Record]
    last_offset: int


class DeadLetterWriter:
    """Writes each dead letter exactly once, also if a crash makes the broker write it again.

    The share partition numbers its dead letters and writes them as one idempotent producer, so that the log drops
    duplicates.
    """

    def __init__(
        self,
        store: MetadataStore,
        metadata_client: MetadataClient,
        replicas: ReplicaManager,
        router: LeaderRouter,
        clock: Clock,
        *,
        retention_ms: int,
    ) -> None:
        self._store = store
        self._metadata_client = metadata_client
        self._router = router
        self._route = DeadLetterRoute(replicas, clock)
        router.add(self._route)
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
        topic = await self._ensure_topic(source)
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
        target = TopicPartition(topic, source.topic_partition.partition)
        try:
            await self._router.send(self._route, target, batch)
        except (OutOfOrderSequenceNumber, PeerRefused) as reason:
            if isinstance(reason, PeerRefused) and reason.error not in _WRITTEN_BEFORE:
                raise NotLeaderOrFollower(str(reason) or reason.error.name) from None
            # Written before a crash; retention or compaction has removed some of them since.
            logger.warning("dead letters in %s were written before: %s", topic, reason)

    async def _ensure_topic(self, source: Partition) -> str:
        """The dead-letter topic, created if it does not exist and extended if it has too few partitions."""
        of = source.topic_partition.topic
        name = of + DEAD_LETTER_SUFFIX
        topic = self._store.image.topics.get(of)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {of!r} was deleted")
        count = len(topic.partitions)
        existing = self._store.image.topics.get(name)
        if existing is None:
            new_topic = NewTopic(
                name=name,
                partitions=count,
                replication_factor=len(topic.partitions[0].target_replicas),
                settings=self._settings(topic.settings.get("max.message.bytes")),
            )
            (result,) = await self._metadata_client.create_topics([new_topic])
            if isinstance(result, BrokerError) and not isinstance(result, TopicAlreadyExists):
                raise result
        elif len(existing.partitions) <= source.topic_partition.partition:
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
    """The messages that fit into one batch; the result is deterministic."""
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
            # Retention has deleted some of it: continue at the log start offset.
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
    """The records of a batch; none if it cannot be decoded, so that the share partition can move past it."""
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
