"""Sends rows whose timestamp is 0 (1970-01-01): librdkafka would replace it with the current time."""

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from zhumq.client.brokers import TopicMissing
from zhumq.model.errors import ErrorCode, MalformedFrame, ZhumqError
from zhumq.model.ids import TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from zhumq.records.batch import Record, RecordHeader
from zhumq.records.builder import build_batch
from zhumq.records.partitioner import partition_of
from zhumq.spark.cluster_client import ClusterClient

ACKS_ALL: Final = -1
PRODUCE_MS_MAX: Final = 30_000
BATCH_BYTES_MAX: Final = 500_000  # of keys and values; a larger record is sent alone


class SendFailed(ZhumqError):
    """Rows that the broker did not accept."""


class Row(NamedTuple):
    """A row of the sink."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...]


class EpochSender:
    """Sends rows with timestamp 0, one request at a time: slow, and seldom needed."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._partition_counts: dict[str, int] = {}

    def send(self, rows: Sequence[Row]) -> None:
        """Append the rows, in their order within each partition. Raises SendFailed."""
        waiting: dict[TopicPartition, list[Record]] = {}
        sizes: dict[TopicPartition, int] = {}
        for row in rows:
            place = self._place(row)
            size = len(row.key or b"") + len(row.value or b"")
            if place in waiting and sizes[place] + size > BATCH_BYTES_MAX:
                self._append(place, waiting.pop(place))
                sizes[place] = 0
            record = Record(timestamp=0, key=row.key, value=row.value, headers=row.headers)
            waiting.setdefault(place, []).append(record)
            sizes[place] = sizes.get(place, 0) + size
        for place, records in waiting.items():
            self._append(place, records)

    def _place(self, row: Row) -> TopicPartition:
        count = self._partition_counts.get(row.topic)
        if count is None:
            found = self._client.partitions([row.topic])
            if row.topic not in found:
                raise SendFailed(f"{row.topic}: the topic does not exist")
            count = self._partition_counts[row.topic] = len(found[row.topic])
        if row.partition is not None:
            if not 0 <= row.partition < count:
                raise SendFailed(f"{row.topic}: Unknown partition {row.partition}")
            return TopicPartition(row.topic, row.partition)
        if row.key is None:
            return TopicPartition(row.topic, random.randrange(count))  # noqa: S311 - not for secrets
        return TopicPartition(row.topic, partition_of(row.key, count))

    def _append(self, place: TopicPartition, records: list[Record]) -> None:
        data = PartitionProduceData(index=place.partition, records=build_batch(records))
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=PRODUCE_MS_MAX,
            topic_data=[TopicProduceData(name=place.topic, partition_data=[data])],
        )
        try:
            leader = self._client.retrying(
                lambda: self._client.leader(place), f"find the leader of {place}"
            )
            # No retry: the broker may have carried out a request whose response was lost.
            response = leader.ask(ApiKey.PRODUCE, request)
        except (OSError, MalformedFrame, TopicMissing) as error:
            raise SendFailed(f"{place}: {error or type(error).__name__}") from error
        answer = response.responses[0].partition_responses[0]
        if answer.error_code != ErrorCode.NONE:
            known = answer.error_code in set(ErrorCode)
            name = ErrorCode(answer.error_code).name if known else f"error {answer.error_code}"
            raise SendFailed(f"{place}: {answer.error_message or name} ({name})")
