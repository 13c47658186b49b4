"""Produce: every request has its own answer, and every batch is checked once."""

import asyncio
from typing import Any

import pytest
from broker_support import CLIENT_ID, StrictAccess
from one_broker import TOPIC, OneBroker, with_broker
from tests.manual_time import START_MS

from zhumq.model.errors import ErrorCode, MalformedFrame
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.storage.log_config import CleanupPolicy, LogConfig

PRODUCE = ApiKey.PRODUCE
VERSION = 12


def batch(value: bytes = b"v", key: bytes | None = None, **header: Any) -> bytes:
    return build_batch([Record(timestamp=START_MS, key=key, value=value)], **header)


def numbered(sequence: int) -> bytes:
    return batch(b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence)


def damaged() -> bytes:
    data = bytearray(batch(b"damaged"))
    data[-1] ^= 1
    return bytes(data)


def request(*records: bytes, acks: int = 1, topic: str = TOPIC) -> ProduceRequest:
    """A request with one batch for each partition, beginning with 0."""
    data = [PartitionProduceData(index=index, records=each) for index, each in enumerate(records)]
    return ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )


async def produce(
    broker: OneBroker, *records: bytes, acks: int = 1
) -> list[PartitionProduceResponse]:
    """The answers to requests with one batch each, sent at once."""
    requests = [request(each, acks=acks) for each in records]
    found = await broker.ask_all(PRODUCE, VERSION, *requests)
    return [each.responses[0].partition_responses[0] for each in found]


class CountingConfig(LogConfig):
    """Settings of a log that count how often a batch is held against them: once for each check."""

    __slots__ = ("checks",)
    checks: int

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        object.__setattr__(self, "checks", 0)

    def __getattribute__(self, name: str) -> Any:
        if name == "max_message_bytes":
            object.__setattr__(self, "checks", self.checks + 1)
        return super().__getattribute__(name)


def codes(answers: list[PartitionProduceResponse]) -> list[int]:
    return [answer.error_code for answer in answers]


def offsets(answers: list[PartitionProduceResponse]) -> list[int]:
    return [answer.base_offset for answer in answers]


@pytest.mark.parametrize("acks", [1, -1])
def test_pipelined_requests_are_written_together_and_answered_one_by_one(acks: int) -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await broker.create()
        sent = broker.send(PRODUCE, VERSION, *[request(batch(), acks=acks)] * 16)
        assert [count for count, _ in sent] == [16]
        answers = await produce(broker, *[batch()] * 4, acks=acks)
        assert offsets(answers) == [16, 17, 18, 19]
        assert partition.log_end_offset == 20

    with_broker(scenario)


@pytest.mark.parametrize("place", [0, 7, 15])
@pytest.mark.parametrize("acks", [1, -1])
def test_each_batch_is_checked_once_wherever_a_bad_one_is(place: int, acks: int) -> None:
    config = CountingConfig()

    async def scenario(broker: OneBroker) -> None:
        await broker.create()
        config.begin()
        records = [batch(b"%d" % number) for number in range(16)]
        records[place] = damaged()
        answers = await produce(broker, *records, acks=acks)
        expected = [0] * 16
        expected[place] = ErrorCode.CORRUPT_MESSAGE
        assert codes(answers) == expected
        assert [each for each in offsets(answers) if each >= 0] == list(range(15))
        assert config.checks == 16

    with_broker(scenario, config)


def test_sixteen_bad_batches_are_checked_once_each() -> None:
    config = CountingConfig()

    async def scenario(broker: OneBroker) -> None:
        partition = await broker.create()
        config.begin()
        assert codes(await produce(broker, *[damaged()] * 16)) == [ErrorCode.CORRUPT_MESSAGE] * 16
        assert config.checks == 16
        assert partition.log_end_offset == 0

    with_broker(scenario, config)


def test_repeated_batches_and_gaps_of_a_producer_have_the_answers_of_single_requests() -> None:
    async def scenario(broker: OneBroker) -> None:
        await broker.create()
        answers = await produce(
            broker, numbered(0), numbered(1), numbered(0), numbered(2), numbered(9), numbered(3)
        )
        gap = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert codes(answers) == [0, 0, 0, 0, gap, 0]
        assert offsets(answers) == [0, 1, 0, 2, -1, 3]

    with_broker(scenario)


def test_a_request_with_several_batches_is_written_as_one() -> None:
    async def scenario(broker: OneBroker) -> None:
        await broker.create()
        answers = await produce(broker, batch(), batch() + batch(), batch() + damaged(), batch())
        assert codes(answers) == [0, 0, ErrorCode.CORRUPT_MESSAGE, 0]
        assert offsets(answers) == [0, 1, -1, 3]

    with_broker(scenario)


def test_records_of_a_compacted_topic_need_keys_also_when_they_are_pipelined() -> None:
    async def scenario(broker: OneBroker) -> None:
        await broker.create()
        sent = broker.send(PRODUCE, VERSION, *[request(batch(key=b"k"))] * 3)
        assert [count for count, _ in sent] == [3]
        answers = await produce(broker, batch(key=b"k"), batch(), batch(key=b"k"))
        assert codes(answers) == [0, ErrorCode.INVALID_RECORD, 0]
        assert [each.batch_index for each in answers[1].record_errors] == [0]

    with_broker(scenario, LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT})))


def test_a_request_about_several_partitions_has_an_answer_for_each() -> None:
    async def scenario(broker: OneBroker) -> None:
        await broker.create(partitions=2)
        found = await broker.ask(PRODUCE, VERSION, request(batch(), damaged(), batch()))
        answers = found.responses[0].partition_responses
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes(answers) == [0, ErrorCode.CORRUPT_MESSAGE, unknown]
        assert offsets(answers) == [0, -1, -1]

    with_broker(scenario)


def test_acks_of_all_are_answered_when_the_records_are_on_the_disk() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await broker.create()
        ((_, answer),) = broker.send(PRODUCE, VERSION, request(batch(), acks=-1))
        assert isinstance(answer, asyncio.Future)
        await answer
        assert partition.is_durable(1)
        ((_, answer),) = broker.send(PRODUCE, VERSION, request(batch(), acks=1))
        assert isinstance(answer, list), "answered at once"

    with_broker(scenario)


def test_records_that_do_not_reach_the_disk_are_refused() -> None:
    async def scenario(broker: OneBroker) -> None:
        await broker.create()
        broker.disk.sync_fails = lambda path: path.endswith(".log")
        answers = await produce(broker, batch(), damaged(), batch(), acks=-1)
        refusals = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert codes(answers)[0] in refusals
        assert codes(answers)[1] == ErrorCode.CORRUPT_MESSAGE
        assert codes(answers)[2] in refusals
        assert codes(await produce(broker, batch()))[0] in refusals

    with_broker(scenario)


def test_a_full_disk_refuses_all_of_a_run_and_none_is_lost_after_it() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await broker.create()
        await produce(broker, batch())
        broker.disk.bytes_free = 0
        answers = await produce(broker, *[batch()] * 3)
        assert codes(answers) == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
        broker.disk.bytes_free = None
        assert offsets(await produce(broker, *[batch()] * 3)) == [1, 2, 3]
        assert partition.log_end_offset == 4

    with_broker(scenario)


def test_a_refusal_for_the_disk_holds_for_messages_of_clients_until_it_is_lifted() -> None:
    async def scenario(broker: OneBroker) -> None:
        await broker.create()
        await produce(broker, batch())
        broker.replicas.set_write_refusal("the disk is 95 % full")
        for acks in (1, -1):
            answers = await produce(broker, batch(), batch(), acks=acks)
            assert codes(answers) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
            assert answers[0].error_message == "the disk is 95 % full"
        # A topic that is created meanwhile refuses, too; the state of groups is written.
        other = await broker.create("other")
        internal = await broker.create(CONSUMER_OFFSETS_TOPIC)
        assert other.log_end_offset == 0
        internal.append(batch(key=b"k"), START_MS)
        found = await broker.ask(PRODUCE, VERSION, request(batch(), topic="other"))
        (refused,) = found.responses[0].partition_responses
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        broker.replicas.set_write_refusal("")
        assert codes(await produce(broker, batch(), acks=-1)) == [ErrorCode.NONE]

    with_broker(scenario)


def test_without_acks_there_is_no_answer_and_a_failure_closes_the_connection() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await broker.create()
        assert broker.send(PRODUCE, VERSION, *[request(batch(), acks=0)] * 2) == [(1, None)] * 2
        assert partition.log_end_offset == 2
        with pytest.raises(MalformedFrame, match="acks=0"):
            broker.send(PRODUCE, VERSION, request(damaged(), acks=0))

    with_broker(scenario)


def test_acks_that_mean_nothing_are_refused() -> None:
    async def scenario(broker: OneBroker) -> None:
        await broker.create()
        assert codes(await produce(broker, batch(), acks=2)) == [ErrorCode.INVALID_REQUIRED_ACKS]

    with_broker(scenario)


def test_a_denied_topic_is_refused_on_every_path_and_nothing_is_written() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await broker.create()
        broker.dispatch(broker.produce_handler.handlers(), StrictAccess(denied={TOPIC}))
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert codes(await produce(broker, *[batch()] * 3)) == [denied] * 3
        found = await broker.ask(PRODUCE, VERSION, request(batch(), batch()))
        assert codes(found.responses[0].partition_responses) == [denied] * 2
        assert partition.log_end_offset == 0

    with_broker(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_run_is_authorized_and_charged_once_and_each_answer_has_its_throttle_time(
    acks: int,
) -> None:
    async def scenario(broker: OneBroker) -> None:
        await broker.create()
        access = StrictAccess(throttle_ms=70)
        broker.dispatch(broker.produce_handler.handlers(), access)
        requests = [request(each, acks=acks) for each in (batch(), batch(), damaged(), batch())]
        found = await broker.ask_all(PRODUCE, VERSION, *requests)
        assert [each.throttle_time_ms for each in found] == [70] * 4
        assert len(access.authorized) == 2, "the run ends behind the damaged batch"
        alone = await broker.ask(PRODUCE, VERSION, request(batch(), batch(), acks=acks))
        assert alone.throttle_time_ms == 70
        # All four were counted as one run, whose last request was taken back and counted alone.
        run, taken_back, last, _ = [size for _, _, size in access.recorded]
        assert taken_back == -last
        assert run == pytest.approx(4 * last, rel=0.1)
        assert access.strict_quotas.timed == [CLIENT_ID] * 3

    with_broker(scenario)
