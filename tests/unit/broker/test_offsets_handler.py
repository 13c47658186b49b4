"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords on a log in memory."""

from one_broker import TOPIC, OneBroker, with_broker
from tests.manual_time import START_MS

from zhumq.broker.handlers.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetsHandler
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from zhumq.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.replication.partition import Partition

TO_THE_END = -1


async def with_records(broker: OneBroker, count: int = 5) -> Partition:
    """A partition with this many records, a second apart."""
    broker.dispatch(OffsetsHandler(broker.replicas).handlers())
    partition = await broker.create()
    for number in range(count):
        record = Record(timestamp=START_MS + 1_000 * number, key=None, value=b"v")
        partition.append(build_batch([record]), START_MS + 1_000 * count)
    await partition.when_durable(count)
    return partition


async def listed(broker: OneBroker, *timestamps: int, topic: str = TOPIC) -> list[tuple[int, int]]:
    """The error code and the offset for each timestamp."""
    found = []
    for timestamp in timestamps:
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        body = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
        answer = (await broker.ask(ApiKey.LIST_OFFSETS, 7, body)).topics[0].partitions[0]
        found.append((answer.error_code, answer.offset))
    return found


async def deleted(broker: OneBroker, offset: int, topic: str = TOPIC) -> tuple[int, int]:
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    body = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[asked])])
    answer = (await broker.ask(ApiKey.DELETE_RECORDS, 2, body)).topics[0].partitions[0]
    return answer.error_code, answer.low_watermark


def test_offsets_are_found_by_position_and_by_time() -> None:
    async def scenario(broker: OneBroker) -> None:
        await with_records(broker)
        assert await listed(broker, EARLIEST, LATEST, MAX_TIMESTAMP) == [(0, 0), (0, 5), (0, 4)]
        times = (START_MS - 1, START_MS + 1_500, START_MS + 4_001)
        assert await listed(broker, *times) == [(0, 0), (0, 2), (0, -1)]

    with_broker(scenario)


def test_a_partition_that_is_not_here_is_named_in_its_answer() -> None:
    async def scenario(broker: OneBroker) -> None:
        await with_records(broker)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await listed(broker, LATEST, topic="unknown") == [(unknown, -1)]
        assert await deleted(broker, 1, topic="unknown") == (unknown, -1)

    with_broker(scenario)


def test_a_partition_asked_about_twice_is_refused() -> None:
    async def scenario(broker: OneBroker) -> None:
        await with_records(broker)
        asked = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        body = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked, asked])])
        (topic,) = (await broker.ask(ApiKey.LIST_OFFSETS, 7, body)).topics
        refused = ErrorCode.INVALID_REQUEST
        assert [each.error_code for each in topic.partitions] == [refused, refused]

    with_broker(scenario)


def test_deleted_records_move_the_start_and_never_past_the_end() -> None:
    async def scenario(broker: OneBroker) -> None:
        await with_records(broker)
        assert await deleted(broker, 2) == (0, 2)
        assert await listed(broker, EARLIEST, LATEST) == [(0, 2), (0, 5)]
        for offset in (6, -2):
            assert await deleted(broker, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await deleted(broker, TO_THE_END) == (0, 5)
        assert await listed(broker, EARLIEST, LATEST) == [(0, 5), (0, 5)]

    with_broker(scenario)


def test_the_end_of_a_leader_epoch_is_where_the_next_one_begins() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await with_records(broker)

        async def end_of(epoch: int, known: int = -1) -> tuple[int, int, int]:
            asked = OffsetForLeaderPartition(
                partition=0, leader_epoch=epoch, current_leader_epoch=known
            )
            body = OffsetForLeaderEpochRequest(
                topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[asked])]
            )
            found = await broker.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, body)
            answer = found.topics[0].partitions[0]
            return answer.error_code, answer.leader_epoch, answer.end_offset

        epoch = partition.leader_epoch
        assert await end_of(epoch) == (0, epoch, 5)
        assert await end_of(epoch, known=epoch + 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)

    with_broker(scenario)
