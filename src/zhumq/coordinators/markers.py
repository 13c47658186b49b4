"""Appends the markers of ended transactions to the partitions that this broker leads."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from zhumq.host.clock import Clock
from zhumq.model.errors import BrokerError, ErrorCode, InvalidRequest
from zhumq.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
)
from zhumq.records.control import EndMarker, MarkerType
from zhumq.replication.replica_manager import ReplicaManager


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

    async def append(self, markers: Iterable[WritableTxnMarker]) -> list[WritableTxnMarkerResult]:
        """The results, once all markers that could be appended are durable."""
        answers = []
        pending: list[asyncio.Future[None]] = []
        for marker in markers:
            answer = WritableTxnMarkerResult(producer_id=marker.producer_id)
            answers.append(answer)
            for topic in marker.topics:
                results = [
                    WritableTxnMarkerPartitionResult(partition_index=index)
                    for index in topic.partition_indexes
                ]
                answer.topics.append(
                    WritableTxnMarkerTopicResult(name=topic.name, partitions=results)
                )
                for result in results:
                    self._append_one(marker, topic.name, result, pending)
        if pending:
            await asyncio.wait(pending)
        return answers

    def _append_one(
        self,
        marker: WritableTxnMarker,
        topic: str,
        result: WritableTxnMarkerPartitionResult,
        pending: list[asyncio.Future[None]],
    ) -> None:
        try:
            durable = self._appended(marker, topic, result.partition_index)
        except BrokerError as reason:
            result.error_code = reason.code
            return

        def settle(done: asyncio.Future[None]) -> None:
            failure = done.exception()
            if isinstance(failure, BrokerError):
                result.error_code = failure.code
            elif failure is not None:
                result.error_code = ErrorCode.UNKNOWN_SERVER_ERROR

        if durable.done():
            settle(durable)
        else:
            durable.add_done_callback(settle)
            pending.append(durable)

    def _appended(
        self, marker: WritableTxnMarker, topic: str, index: int
    ) -> "asyncio.Future[None]":
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            raise InvalidRequest("a marker needs a producer id and an epoch")
        end = EndMarker(
            marker_type=MarkerType.COMMIT if marker.transaction_result else MarkerType.ABORT,
            coordinator_epoch=marker.coordinator_epoch,
        )
        shards = self._shards.get(topic)
        if shards is not None:
            return shards.append_marker(
                index,
                end,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_version=marker.transaction_version,
            )
        partition = self._replicas.partition(topic, index)
        appended = partition.append_marker(
            end,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_version=marker.transaction_version,
            now_ms=self._clock.now_ms(),
        )
        return partition.when_durable(appended.last_offset + 1)


def codes_of(results: Sequence[WritableTxnMarkerResult]) -> list[dict[tuple[str, int], ErrorCode]]:
    """The error codes of each marker, by topic and partition."""
    return [
        {
            (topic.name, each.partition_index): ErrorCode(each.error_code)
            for topic in result.topics
            for each in topic.partitions
        }
        for result in results
    ]
