"""Fetch: whole batches, the wait for bytes, and the sessions that remember partitions."""

import asyncio
import itertools

import pytest
from broker_support import parts_of
from one_broker import TOPIC, OneBroker, with_broker
from tests.manual_time import START_MS, advance

from zhumq.broker.fetch_sessions import FetchSessions
from zhumq.broker.handlers.fetch import FetchHandler
from zhumq.broker.quotas import NoQuotas, Quotas
from zhumq.model.errors import ErrorCode
from zhumq.net.service import ConnectionInfo
from zhumq.protocol.api import ApiKey, decode_response
from zhumq.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from zhumq.records.batch import Record, batches
from zhumq.records.builder import build_batch
from zhumq.replication.partition import Partition

FETCH = ApiKey.FETCH
VERSION = 12
WAIT_MS = 60_000


def batch(value: bytes) -> bytes:
    return build_batch([Record(timestamp=START_MS, key=None, value=value)])


async def opened(
    broker: OneBroker, answer_bytes_max: int = 1 << 20, quotas: Quotas | None = None
) -> Partition:
    """The partition of a topic that the handler serves."""
    numbers = itertools.count(1)
    sessions = FetchSessions(10, lambda: next(numbers))
    handler = FetchHandler(
        broker.replicas,
        broker.store,
        sessions,
        broker.clock,
        answer_bytes_max=answer_bytes_max,
        quotas=quotas,
    )
    broker.dispatch(handler.handlers())
    return await broker.create()


async def write(partition: Partition, *values: bytes) -> None:
    """Appends a batch for each value; consumers see them."""
    for value in values:
        partition.append(batch(value), START_MS)
    await partition.when_durable(partition.log_end_offset)


def request(
    offset: int = 0,
    *,
    topic: str = TOPIC,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    epoch: int = -1,
    topics: bool = True,
) -> FetchRequest:
    asked = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    return FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, partitions=[asked])] if topics else [],
    )


def values_of(response: FetchResponse) -> list[bytes]:
    return [
        record.value or b""
        for topic in response.responses
        for partition in topic.partitions
        for each in batches(bytes(partition.records or b""))  # type: ignore[arg-type]
        for record in each.records()
    ]


def started(broker: OneBroker, body: FetchRequest) -> asyncio.Future[object]:
    """A fetch that has to wait."""
    ((_, answer),) = broker.send(FETCH, VERSION, body)
    assert isinstance(answer, asyncio.Future)
    return answer


def result(answer: asyncio.Future[object]) -> FetchResponse:
    data = parts_of(answer)  # type: ignore[arg-type]
    found: FetchResponse = decode_response(FETCH, VERSION, data[4:])[1]
    return found


def test_records_that_are_there_are_answered_at_once() -> None:
    async def scenario(broker: OneBroker) -> None:
        await write(await opened(broker), b"a", b"b")
        found = await broker.ask(FETCH, VERSION, request())
        assert values_of(found) == [b"a", b"b"]
        partition = found.responses[0].partitions[0]
        assert (partition.high_watermark, partition.log_start_offset) == (2, 0)

    with_broker(scenario)


def test_a_fetch_without_records_is_answered_when_its_time_is_over_and_not_before() -> None:
    async def scenario(broker: OneBroker) -> None:
        await opened(broker)
        answer = started(broker, request())
        await advance(WAIT_MS - 1)
        assert not answer.done()
        await advance(1)
        await answer
        assert values_of(result(answer)) == []

    with_broker(scenario)


def test_a_fetch_that_waits_is_answered_by_the_records_that_arrive() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await opened(broker)
        answer = started(broker, request())
        await advance(WAIT_MS // 2)
        assert not answer.done()
        await write(partition, b"a")
        await answer
        assert values_of(result(answer)) == [b"a"]

    with_broker(scenario)


def test_a_record_that_arrives_right_behind_the_fetch_is_not_missed() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await opened(broker)
        answer = started(broker, request())
        partition.append(batch(b"a"), START_MS)  # in the same turn of the event loop
        await answer
        assert values_of(result(answer)) == [b"a"]

    with_broker(scenario)


def test_fewer_bytes_than_asked_for_do_not_end_the_wait() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await opened(broker)
        answer = started(broker, request(min_bytes=2 * len(batch(b"a"))))
        await write(partition, b"a")
        await advance(WAIT_MS - 1)
        assert not answer.done()
        await write(partition, b"b")
        await answer
        assert values_of(result(answer)) == [b"a", b"b"]

    with_broker(scenario)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (request(offset=5), ErrorCode.OFFSET_OUT_OF_RANGE),
        (request(topic="unknown"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (request(epoch=99), ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_an_error_is_answered_at_once(body: FetchRequest, code: ErrorCode) -> None:
    async def scenario(broker: OneBroker) -> None:
        await opened(broker)
        ((_, answer),) = broker.send(FETCH, VERSION, body)
        found = decode_response(FETCH, VERSION, parts_of(answer)[4:])[1]
        partition = found.responses[0].partitions[0]
        assert (partition.error_code, partition.high_watermark) == (code, -1)

    with_broker(scenario)


def test_the_first_batch_is_whole_however_small_the_limit() -> None:
    async def scenario(broker: OneBroker) -> None:
        await write(await opened(broker, answer_bytes_max=1), b"a", b"b")
        assert values_of(await broker.ask(FETCH, VERSION, request())) == [b"a"]
        assert values_of(await broker.ask(FETCH, VERSION, request(1))) == [b"b"]

    with_broker(scenario)


def test_a_deleted_topic_ends_the_wait() -> None:
    async def scenario(broker: OneBroker) -> None:
        await opened(broker)
        answer = started(broker, request())
        await broker.metadata_client.delete_topics([TOPIC])
        await answer
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert result(answer).responses[0].partitions[0].error_code == unknown

    with_broker(scenario)


def test_a_session_remembers_its_partitions_and_answers_with_what_changed() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await opened(broker)
        await write(partition, b"a")
        first = await broker.ask(FETCH, VERSION, request(session=(0, 0)))
        assert first.session_id > 0
        await write(partition, b"b")
        again = await broker.ask(
            FETCH, VERSION, request(session=(first.session_id, 1), topics=False)
        )
        assert values_of(again) == [b"a", b"b"]
        late = await broker.ask(
            FETCH, VERSION, request(session=(first.session_id, 7), topics=False)
        )
        assert late.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    with_broker(scenario)


def test_a_lost_connection_gives_up_its_wait() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await opened(broker)
        answer = started(broker, request())
        answer.cancel()
        await write(partition, b"a")
        assert answer.cancelled()
        assert values_of(await broker.ask(FETCH, VERSION, request())) == [b"a"]

    with_broker(scenario)


class SmallQuota(NoQuotas):
    """Grants answers up to a number of bytes in all; then every fetch is throttled."""

    is_active = True

    def __init__(self, bytes_left: int, bytes_max: float = float("inf")) -> None:
        self.bytes_left = bytes_left
        self.bytes_max = bytes_max

    def grant_fetch(
        self, connection: ConnectionInfo, client_id: str | None, answer_bytes: int
    ) -> tuple[bool, int]:
        if answer_bytes > self.bytes_left:
            return False, 700
        self.bytes_left -= answer_bytes
        return True, 0

    def fetch_bytes_max(self, connection: ConnectionInfo, client_id: str | None) -> float:
        return self.bytes_max


def test_an_answer_above_the_quota_has_no_records_and_the_throttle_time() -> None:
    async def scenario(broker: OneBroker) -> None:
        quotas = SmallQuota(len(batch(b"a")))
        await write(await opened(broker, quotas=quotas), b"a", b"b")
        # A new session that is throttled is not opened: its answer lacks the partitions.
        throttled = await broker.ask(FETCH, VERSION, request(session=(0, 0)))
        assert (throttled.throttle_time_ms, throttled.session_id) == (700, 0)
        assert throttled.responses == []
        quotas.bytes_left = 10_000
        full = await broker.ask(FETCH, VERSION, request(session=(0, 0)))
        assert full.session_id > 0
        assert full.throttle_time_ms == 0
        assert values_of(full) == [b"a", b"b"]
        # A session that exists continues.
        quotas.bytes_left = 0
        throttled = await broker.ask(FETCH, VERSION, request(session=(full.session_id, 1)))
        assert (throttled.throttle_time_ms, throttled.session_id) == (700, full.session_id)
        quotas.bytes_left = 10_000
        again = await broker.ask(FETCH, VERSION, request(session=(full.session_id, 2)))
        assert values_of(again) == [b"a", b"b"]

    with_broker(scenario)


def test_a_fetch_that_waited_is_throttled_as_well() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await opened(broker, quotas=SmallQuota(0))
        answer = started(broker, request())
        await write(partition, b"a")
        await answer
        assert result(answer).throttle_time_ms == 700
        assert values_of(result(answer)) == []

    with_broker(scenario)


def test_an_answer_is_no_larger_than_what_the_quota_can_grant() -> None:
    async def scenario(broker: OneBroker) -> None:
        quotas = SmallQuota(10_000, bytes_max=len(batch(b"a")) + 1)
        await write(await opened(broker, quotas=quotas), b"a", b"b", b"c")
        assert values_of(await broker.ask(FETCH, VERSION, request())) == [b"a"]

    with_broker(scenario)
