"""The leader's side of a fetch session: bounded responses, fair turns, held until there is an update."""

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any

from replication_support import batch, run

from zhumq.consensus.contract import FetchAnswered, FetchArrived, Role
from zhumq.host.clock import SystemClock
from zhumq.metadata.image import ClusterImage, PartitionState, Topic
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.protocol.messages.replicas import (
    ForgottenReplica,
    ReplicaFetchPartition,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from zhumq.replication.driver_seam import FollowerFetchState
from zhumq.replication.inter_broker import follower_session
from zhumq.replication.inter_broker.follower_session import FollowerSession, PartitionKey
from zhumq.replication.move_throttle import UNLIMITED, MoveThrottle
from zhumq.storage.log_config import LogConfig
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk

TOPIC = uuid.UUID(int=1)
NOW_MS = 1_700_000_000_000
TURNS_MAX = 100  # of the event loop; an answer takes one or two


@dataclass
class _Core:
    role: Role = Role.LEADER


@dataclass(eq=False)
class Leader:
    """The part of a leading driver that a session uses."""

    index: int
    log: SegmentedLog
    high_watermark: int = 0
    is_closed: bool = False
    is_busy: bool = False
    core: _Core = field(default_factory=_Core)
    fetch_state: FollowerFetchState | None = None
    error: ErrorCode = ErrorCode.NONE
    forgotten: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition("t", self.index)

    def write(self, size: int) -> None:
        self.log.append(batch("x" * size), leader_epoch=1, now_ms=NOW_MS)

    def fetch_arrived(self, fetch_state: FollowerFetchState, fetch: FetchArrived) -> None:
        fetch_state.fetch = fetch
        self.fetch_state = fetch_state
        if fetch.fetch_offset < self.log.log_end_offset or self.error is not ErrorCode.NONE:
            fetch_state.session.mark(self)  # type: ignore[arg-type]

    def forget_follower(self, _: FollowerSession) -> None:
        self.forgotten += 1

    def answer(self, fetch_state: FollowerFetchState) -> FetchAnswered | None:
        fetch = fetch_state.fetch
        if fetch is None or self.is_busy:
            return None
        return FetchAnswered(
            responder_id=1,
            epoch=1,
            leader_id=1,
            error=self.error,
            fetch_offset=fetch.fetch_offset,
            last_fetched_epoch=fetch.last_fetched_epoch,
            sequence=fetch.sequence,
            high_watermark=self.high_watermark,
            serving=True,
            epoch_start_offset=0,
        )


class Host:
    def __init__(self, count: int) -> None:
        self.clock = SystemClock()
        self.throttle = MoveThrottle(self.clock)
        self.leaders = {(TOPIC, index): Leader(index, _log(index)) for index in range(count)}

    def driver(self, key: PartitionKey) -> Any:
        return self.leaders.get(key)

    def __getitem__(self, index: int) -> Leader:
        return self.leaders[TOPIC, index]


def moving_to(broker_id: int, partitions: list[bool]) -> ClusterImage:
    """Partitions of broker 1 that are being moved to another broker, or are not moving."""
    states = tuple(
        PartitionState(
            replicas=(BrokerId(1), BrokerId(broker_id)),
            leader=BrokerId(1),
            leader_epoch=LeaderEpoch(1),
            in_sync=(BrokerId(1),),
            adding=(BrokerId(broker_id),) if is_moving else (),
        )
        for is_moving in partitions
    )
    topic = Topic(name="t", topic_id=TOPIC, partitions=states)
    return ClusterImage(
        version=1,
        cluster_id="c",
        controller_id=BrokerId(1),
        brokers={},
        topics={"t": topic},
        topics_by_id={TOPIC: topic},
    )


def _log(index: int) -> SegmentedLog:
    return SegmentedLog.open(
        f"/data/t-{index}",
        TopicPartition("t", index),
        LogConfig(max_message_bytes=10 << 20),
        disk=MemoryDisk(),
        clock=SystemClock(),
    )


def asked(
    index: int, offset: int = 0, sequence: int = 1, accepted_epoch: int = -1
) -> ReplicaFetchPartition:
    return ReplicaFetchPartition(
        topic_id=TOPIC,
        partition=index,
        epoch=1,
        fetch_offset=offset,
        sequence=sequence,
        accepted_epoch=accepted_epoch,
    )


def fetch(*partitions: ReplicaFetchPartition, max_bytes: int = 1 << 20) -> ReplicaFetchRequest:
    return ReplicaFetchRequest(max_bytes=max_bytes, partitions=list(partitions))


async def settled() -> None:
    """Let the event loop finish all its work: nothing here waits for a clock."""
    for _ in range(TURNS_MAX):
        await asyncio.sleep(0)


def indexes(response: ReplicaFetchResponse) -> list[int]:
    return [each.partition for each in response.answers]


def test_a_fetch_is_held_until_there_is_an_update() -> None:
    async def body() -> None:
        host = Host(2)
        session = FollowerSession(2, host)
        answer = session.fetch(fetch(asked(0), asked(1)))
        await settled()
        assert not answer.done()
        host[1].write(10)
        session.mark(host[1])  # type: ignore[arg-type]
        response = await answer
        assert indexes(response) == [1]
        assert len(response.answers[0].records or b"") > 0
        assert not response.answers[0].stands

    run(body())


def test_without_an_update_a_fetch_gets_an_empty_answer_after_a_while() -> None:
    async def body() -> None:
        session = FollowerSession(2, Host(1))
        assert (await session.fetch(fetch(asked(0)))).answers == []
        # The positions stay valid: the next fetch need not repeat them.
        assert (await session.fetch(fetch())).answers == []

    run(body())


def test_a_newer_fetch_releases_the_one_that_is_held() -> None:
    async def body() -> None:
        host = Host(1)
        session = FollowerSession(2, host)
        first = session.fetch(fetch(asked(0)))
        second = session.fetch(fetch())
        assert first.done()
        assert not second.done()
        host[0].write(10)
        session.mark(host[0])  # type: ignore[arg-type]
        assert indexes(await second) == [0]

    run(body())


def test_a_new_high_watermark_leaves_the_fetch_valid() -> None:
    async def body() -> None:
        host = Host(1)
        host[0].write(10)
        session = FollowerSession(2, host)
        answer = session.fetch(fetch(asked(0, offset=1)))
        host[0].high_watermark = 1
        session.mark(host[0])  # type: ignore[arg-type]
        [update] = (await answer).answers
        assert (update.high_watermark, update.stands) == (1, True)
        # It is not sent twice, and records answer the same fetch.
        answer = session.fetch(fetch())
        session.mark(host[0])  # type: ignore[arg-type]
        await settled()
        assert not answer.done()
        host[0].write(10)
        session.mark(host[0])  # type: ignore[arg-type]
        [update] = (await answer).answers
        assert (update.fetch_offset, update.stands) == (1, False)

    run(body())


def test_a_follower_that_has_not_accepted_the_epoch_is_sent_its_start_at_once() -> None:
    async def body() -> None:
        host = Host(2)
        session = FollowerSession(2, host)
        answer = session.fetch(fetch(asked(0), asked(1, accepted_epoch=1)))
        for index in (0, 1):
            host[index].high_watermark = -1
            session.mark(host[index])  # type: ignore[arg-type]
        [update] = (await answer).answers
        assert (update.partition, update.epoch_start_offset, update.stands) == (0, 0, True)
        # It is not sent twice, until the follower's next fetch shows that it has not accepted.
        answer = session.fetch(fetch())
        session.mark(host[0])  # type: ignore[arg-type]
        session.fetch(fetch())
        assert not (await answer).answers
        answer = session.fetch(fetch(asked(0, sequence=2)))
        session.mark(host[0])  # type: ignore[arg-type]
        assert indexes(await answer) == [0]

    run(body())


def test_a_recovering_follower_is_notified_that_the_leader_serves() -> None:
    async def body() -> None:
        host = Host(1)
        host[0].high_watermark = -1
        session = FollowerSession(2, host)
        recovering = asked(0, accepted_epoch=1)
        recovering.recovering = True
        answer = session.fetch(fetch(recovering))
        session.mark(host[0])  # type: ignore[arg-type]
        [update] = (await answer).answers
        assert (update.serving, update.stands) == (True, True)

    run(body())


def test_a_response_is_bounded_and_partitions_take_turns() -> None:
    async def body() -> None:
        host = Host(4)
        for index in range(4):
            for _ in range(3):
                host[index].write(400)
        session = FollowerSession(2, host)
        seen: list[list[int]] = []
        offsets = dict.fromkeys(range(4), 0)
        request = fetch(*(asked(index) for index in range(4)), max_bytes=1_000)
        while any(offset < 3 for offset in offsets.values()):
            response = await session.fetch(request)
            seen.append(indexes(response))
            size = sum(len(each.records or b"") for each in response.answers)
            assert 0 < size <= 1_000
            positions = []
            for each in response.answers:
                host_log = host[each.partition].log
                part = host_log.read(
                    each.fetch_offset, max_bytes=len(each.records or b""), up_to_offset=3
                )
                offsets[each.partition] = part.next_offset
                positions.append(asked(each.partition, part.next_offset))
            request = fetch(*positions, max_bytes=1_000)
        # No partition has a second turn before each had one.
        flat = [index for each in seen for index in each]
        assert set(flat[:4]) == set(range(4))

    run(body())


def test_a_batch_larger_than_the_bound_is_sent_alone() -> None:
    async def body() -> None:
        host = Host(2)
        host[0].write(100)
        host[1].write(5_000)
        session = FollowerSession(2, host)
        first = await session.fetch(fetch(asked(0), asked(1), max_bytes=1_000))
        assert indexes(first) == [0]
        second = await session.fetch(fetch(max_bytes=1_000))
        assert indexes(second) == [1]
        assert len(second.answers[0].records or b"") > 5_000

    run(body())


def test_unknown_and_closed_partitions_are_answered_with_an_error() -> None:
    async def body() -> None:
        host = Host(1)
        session = FollowerSession(2, host)
        response = await session.fetch(fetch(asked(7)))
        assert [each.error_code for each in response.answers] == [3]
        answer = session.fetch(fetch(asked(0)))
        host[0].is_closed = True
        session.mark(host[0])  # type: ignore[arg-type]
        assert [each.error_code for each in (await answer).answers] == [3]

    run(body())


def test_an_error_is_answered_at_once_and_ends_the_fetch() -> None:
    async def body() -> None:
        host = Host(1)
        host[0].error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        session = FollowerSession(2, host)
        [update] = (await session.fetch(fetch(asked(0)))).answers
        assert update.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not update.stands
        fetch_state = host[0].fetch_state
        assert fetch_state is not None
        assert fetch_state.fetch is None

    run(body())


def test_a_replica_that_has_not_carried_out_its_decision_is_not_answered_for() -> None:
    async def body() -> None:
        host = Host(1)
        host[0].write(10)
        host[0].is_busy = True
        session = FollowerSession(2, host)
        answer = session.fetch(fetch(asked(0)))
        await settled()
        assert not answer.done()
        host[0].is_busy = False
        session.mark(host[0])  # type: ignore[arg-type]
        assert indexes(await answer) == [0]

    run(body())


def test_a_forgotten_partition_gets_no_more_answers() -> None:
    async def body() -> None:
        host = Host(1)
        session = FollowerSession(2, host)
        session.fetch(fetch(asked(0)))
        forgotten = ForgottenReplica(topic_id=TOPIC, partition=0)
        answer = session.fetch(ReplicaFetchRequest(max_bytes=1_000, forgotten=[forgotten]))
        assert host[0].forgotten == 1
        host[0].write(10)
        session.mark(host[0])  # type: ignore[arg-type]
        assert (await answer).answers == []
        session.fetch(fetch(asked(0)))
        session.close()
        assert host[0].forgotten == 2
        session.mark(host[0])  # type: ignore[arg-type]

    run(body())


def test_only_a_copy_that_is_too_fast_is_throttled() -> None:
    async def body() -> None:
        host = Host(2)
        host.throttle.see(moving_to(2, partitions=[True, False]), 1)
        session = FollowerSession(2, host)
        for each in host.leaders.values():
            each.write(1_000)
            each.write(1_000)
        first = await session.fetch(fetch(asked(0), max_bytes=1))
        assert indexes(first) == [0]
        second = await session.fetch(fetch(asked(0, offset=1, sequence=2), asked(1)))
        assert indexes(second) == [1]
        throttled = await session.fetch(fetch())
        assert indexes(throttled) == []
        answer = session.fetch(fetch())
        host.throttle.see(moving_to(2, partitions=[True, False]), UNLIMITED)
        while not indexes(await answer):
            answer = session.fetch(fetch())
        assert indexes(answer.result()) == [0]
        session.close()

    run(body())


def test_a_beat_is_shorter_than_an_election_timeout() -> None:
    from zhumq.consensus.contract import ReplicaSettings

    assert ReplicaSettings().election_timeout_ms > 2 * follower_session.BEAT_MS
