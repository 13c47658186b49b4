"""A member of a share group that sends exactly what a test requests, over one connection."""

import time
import uuid
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from zhumq.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from zhumq.protocol.messages.share import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from zhumq.records.batch import Record, records
from zhumq.records.builder import build_batch
from zhumq.share.acknowledgement import AckKind
from zhumq.testing.raw_client import RawClient

FINAL_EPOCH = -1


class Taken(NamedTuple):
    """A record that the member has acquired."""

    partition: int
    offset: int
    value: bytes
    delivery_count: int


class ShareMember:
    """Keeps its session epoch, and no other state."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic_id: uuid.UUID,
        partitions: Sequence[int] = (0,),
        *,
        member_id: str | None = None,
    ) -> None:
        self.client = RawClient(bootstrap)
        self.group = group
        self.member_id = member_id or str(uuid.uuid4())
        self.topic_id = topic_id
        self.partitions = partitions
        self.epoch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.client.__exit__(kind, error, traceback)

    def fetch_raw(
        self,
        *,
        epoch: int | None = None,
        acknowledgements: Sequence[AcknowledgementBatch] = (),
        max_records: int = 500,
        max_wait_ms: int = 500,
        strict: bool = False,
    ) -> ShareFetchResponse:
        epoch = self.epoch if epoch is None else epoch
        partitions = [ShareFetchPartition(partition_index=index) for index in self.partitions]
        if acknowledgements:
            partitions[0].acknowledgement_batches = list(acknowledgements)
        response: ShareFetchResponse = self.client.ask(
            ApiKey.SHARE_FETCH,
            ShareFetchRequest(
                group_id=self.group,
                member_id=self.member_id,
                share_session_epoch=epoch,
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_records=max_records,
                batch_size=max_records,
                share_acquire_mode=1 if strict else 0,
                topics=[ShareFetchTopic(topic_id=self.topic_id, partitions=partitions)]
                if epoch <= 0 or acknowledgements
                else [],
            ),
        )
        if response.error_code == 0:
            self.epoch = epoch + 1
        return response

    def take(self, **options: object) -> list[Taken]:
        """Fetch, and return the acquired records."""
        response = self.fetch_raw(**options)
        assert response.error_code == 0, response.error_message
        return self.taken(response)

    def taken(self, response: ShareFetchResponse) -> list[Taken]:
        """The records of a response."""
        return list(taken(response))

    def acknowledge_raw(
        self, partition: int, batches: Iterable[AcknowledgementBatch], *, epoch: int | None = None
    ) -> ShareAcknowledgeResponse:
        epoch = self.epoch if epoch is None else epoch
        response: ShareAcknowledgeResponse = self.client.ask(
            ApiKey.SHARE_ACKNOWLEDGE,
            ShareAcknowledgeRequest(
                group_id=self.group,
                member_id=self.member_id,
                share_session_epoch=epoch,
                topics=[
                    AcknowledgeTopic(
                        topic_id=self.topic_id,
                        partitions=[
                            AcknowledgePartition(
                                partition_index=partition, acknowledgement_batches=list(batches)
                            )
                        ],
                    )
                ],
            ),
        )
        if response.error_code == 0 and epoch != FINAL_EPOCH:
            self.epoch = epoch + 1
        return response

    def say(self, kind: AckKind, partition: int, first: int, last: int | None = None) -> int:
        """Acknowledge a range; returns the error code of its partition."""
        batch = AcknowledgementBatch(
            first_offset=first,
            last_offset=first if last is None else last,
            acknowledge_types=[kind],
        )
        response = self.acknowledge_raw(partition, [batch])
        if response.error_code:
            return response.error_code
        return response.responses[0].partitions[0].error_code

    def close(self) -> None:
        """End the session properly."""
        self.fetch_raw(epoch=FINAL_EPOCH)


def taken(response: ShareFetchResponse) -> Iterable[Taken]:
    for topic in response.responses:
        for partition in topic.partitions:
            assert partition.error_code == 0, partition.error_message
            values = {
                record.offset: record.value or b"" for record in records(partition.records or b"")
            }
            for acquired in partition.acquired_records:
                for offset in range(acquired.first_offset, acquired.last_offset + 1):
                    if offset in values:
                        yield Taken(
                            partition.partition_index,
                            offset,
                            values[offset],
                            acquired.delivery_count,
                        )


def topic_id_of(bootstrap: str, name: str) -> uuid.UUID:
    """The id of a topic, which is created if it does not exist."""
    with RawClient(bootstrap) as client:
        while True:
            answer = client.ask(
                ApiKey.METADATA,
                MetadataRequest(
                    topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
                ),
            )
            topic = answer.topics[0]
            if topic.error_code == 0 and topic.partitions:
                return topic.topic_id


def produce(
    bootstrap: str, topic_id: uuid.UUID, values: Sequence[bytes], *, partition: int = 0
) -> int:
    """Append one batch, durable when this returns; returns the offset of its first record."""
    with RawClient(bootstrap) as client:
        now_ms = time.time_ns() // 1_000_000  # Retention would delete messages of 1970.
        batch = build_batch([Record(value=value, timestamp=now_ms) for value in values])
        answer = client.ask(
            ApiKey.PRODUCE,
            ProduceRequest(
                acks=-1,
                timeout_ms=10_000,
                topic_data=[
                    TopicProduceData(
                        topic_id=topic_id,
                        partition_data=[PartitionProduceData(index=partition, records=batch)],
                    )
                ],
            ),
        )
        result = answer.responses[0].partition_responses[0]
        assert result.error_code == 0
        return int(result.base_offset)
