"""Appends the markers of ended transactions to the partitions that this broker leads."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from zhumq.host.clock import Clock
from zhumq.model.errors import BrokerError, ErrorCode, InvalidRequest
from zhumq.model.ids import TopicPartition
from zhumq.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
)
from zhumq.records.control import EndMarker, MarkerType
from zhumq.replication.pending import DurableCallback, future_of
from zhumq.replication.replica_manager import ReplicaManager

Codes = Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnd:
    """The end of a transaction, as its markers say it in each partition."""

    producer_id: int
    producer_epoch: int
    marker: EndMarker
    transaction_version: int


class MarkedShards(Protocol):
    """A coordinator whose records are in transactions: it has to know of the markers in its log."""

    def append_marker(
        self,
        index: int,
        marker: EndMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
    ) -> "asyncio.Future[None]":
        """Append a marker to the log of a shard. Completes when it is durable. Raises BrokerError."""


class MarkerAppender:
    """Appends markers as the leader of their partitions."""

    def __init__(
        self, replicas: ReplicaManager, clock: Clock, shards: Mapping[str, MarkedShards]
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._shards = shards  # by the names of their topics

    async def append(self, end: TransactionEnd, partitions: Iterable[TopicPartition]) -> Codes:
        """The results, once all markers that could be appended are durable."""
        codes: dict[TopicPartition, ErrorCode] = {}
        pending: dict[TopicPartition, asyncio.Future[None]] = {}
        for partition in partitions:
            try:
                pending[partition] = self._append_one(end, partition)
            except BrokerError as reason:
                codes[partition] = reason.code
        for partition, durable in pending.items():
            try:
                await durable
                codes[partition] = ErrorCode.NONE
            except BrokerError as reason:
                codes[partition] = reason.code
        return codes

    def append_at_once(
        self,
        end: TransactionEnd,
        partitions: Sequence[TopicPartition],
        on_durable: Callable[[bool], None],
    ) -> None:
        """Append the markers, and call back once: when all of them are durable, or with False if one cannot be
        appended here. Those that are appended stay: markers may be repeated."""
        missing = len(partitions)

        def settle(failure: BrokerError | None) -> None:
            nonlocal missing
            if not missing:
                return  # An earlier marker has failed.
            missing = 0 if failure is not None else missing - 1
            if not missing:
                on_durable(failure is None)

        for partition in partitions:
            try:
                self._append(end, partition, settle)
            except BrokerError as reason:
                settle(reason)
                return

    def may_append_at_once(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether no coordinator has to know of these markers."""
        return all(partition.topic not in self._shards for partition in partitions)

    def _append(
        self, end: TransactionEnd, partition: TopicPartition, settle: DurableCallback
    ) -> None:
        led = self._replicas.partition(*partition)
        appended = led.append_marker(
            end.marker,
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            transaction_version=end.transaction_version,
            now_ms=self._clock.now_ms(),
        )
        led.call_when_durable(appended.last_offset + 1, settle)

    async def append_asked(
        self, markers: Iterable[WritableTxnMarker]
    ) -> list[WritableTxnMarkerResult]:
        """The results of markers that another broker or a tool asks for."""
        markers = list(markers)
        ended = await asyncio.gather(
            *(self.append(_end_of(each), _partitions_of(each)) for each in markers)
        )
        return [
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=codes[TopicPartition(topic.name, index)],
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker, codes in zip(markers, ended, strict=True)
        ]

    def _append_one(self, end: TransactionEnd, partition: TopicPartition) -> "asyncio.Future[None]":
        if end.producer_id < 0 or end.producer_epoch < 0:
            raise InvalidRequest("a marker needs a producer id and an epoch")
        shards = self._shards.get(partition.topic)
        if shards is not None:
            return shards.append_marker(
                partition.partition,
                end.marker,
                producer_id=end.producer_id,
                producer_epoch=end.producer_epoch,
                transaction_version=end.transaction_version,
            )
        return future_of(partial(self._append, end, partition))


def _end_of(marker: WritableTxnMarker) -> TransactionEnd:
    marker_type = MarkerType.COMMIT if marker.transaction_result else MarkerType.ABORT
    return TransactionEnd(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        marker=EndMarker(marker_type=marker_type, coordinator_epoch=marker.coordinator_epoch),
        transaction_version=marker.transaction_version,
    )


def _partitions_of(marker: WritableTxnMarker) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for topic in marker.topics
        for index in topic.partition_indexes
    ]


def message_of(end: TransactionEnd, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
    """Asks another broker for markers in these partitions."""
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for name, index in partitions:
        topics.setdefault(name, WritableTxnMarkerTopic(name=name)).partition_indexes.append(index)
    return WritableTxnMarker(
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        transaction_result=end.marker.marker_type is MarkerType.COMMIT,
        topics=list(topics.values()),
        coordinator_epoch=end.marker.coordinator_epoch,
        transaction_version=end.transaction_version,
    )


def codes_of(results: Sequence[WritableTxnMarkerResult]) -> list[Codes]:
    """The error codes of each marker that another broker was asked for."""
    return [
        {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
            for topic in result.topics
            for each in topic.partitions
        }
        for result in results
    ]
