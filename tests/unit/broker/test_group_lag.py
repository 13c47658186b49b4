"""Lag of groups on partitions of other brokers: asked in the background, reported at the next scrape."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from tests.manual_time import ManualClock

from zhumq.broker import group_lag
from zhumq.broker.group_lag import ENDS_KEPT_MS, GroupLags
from zhumq.coordinators.offset_times import Place
from zhumq.groups.offsets import CommittedOffsets
from zhumq.groups.persisted import CommittedOffset, OffsetKey
from zhumq.metadata.image import Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.leadership import LogEnd, LogEnds
from zhumq.model.ids import ZERO_UUID, BrokerId, LeaderEpoch, Offset, TopicPartition

LEADER, FOLLOWER = BrokerId(1), BrokerId(2)
STATE = PartitionState(
    replicas=(LEADER, FOLLOWER),
    leader=LEADER,
    leader_epoch=LeaderEpoch(0),
    in_sync=(LEADER, FOLLOWER),
)
TOPIC = Topic(name="t", topic_id=ZERO_UUID, partitions=(STATE,))


@dataclass
class FixedStore:
    image: ClusterImage = field(
        default_factory=lambda: ClusterImage(
            version=1,
            cluster_id="c",
            controller_id=LEADER,
            brokers={each: Broker(broker_id=each, host="h", port=1) for each in STATE.replicas},
            topics={"t": TOPIC},
            topics_by_id={ZERO_UUID: TOPIC},
        )
    )


@dataclass
class ReplicasElsewhere:
    """Has no replica here, and counts the requests for log ends."""

    asked: list[Sequence[TopicPartition]] = field(default_factory=list)
    end: int = 10

    def find(self, _topic: str, _partition: int) -> None:
        return None

    async def ask_log_ends(self, partitions: Sequence[TopicPartition]) -> LogEnds:
        self.asked.append(partitions)
        ends = {
            LEADER: LogEnd(LeaderEpoch(0), Offset(self.end)),
            FOLLOWER: LogEnd(LeaderEpoch(0), Offset(self.end - 3)),
        }
        return {TopicPartition("t", 0): ends}


@dataclass
class WrittenTimes:
    """Each message was written so many seconds after the epoch as its offset is; remembers what was asked."""

    asked: list[Place] = field(default_factory=list)

    async def ask(self, places: Sequence[Place]) -> dict[Place, int]:
        self.asked += places
        return {place: place.offset * 1000 for place in places}


@dataclass(frozen=True)
class EndOf:
    high_watermark: int = 10


class ReplicasHere:
    def find(self, _topic: str, _partition: int) -> EndOf:
        return EndOf()


def commit(committed: CommittedOffsets, group: str, offset: int) -> None:
    committed.put(
        OffsetKey(group, "t", 0),
        CommittedOffset(
            offset=offset,
            leader_epoch=0,
            metadata="",
            commit_timestamp_ms=0,
            expire_timestamp_ms=-1,
        ),
    )


def seconds(lags: GroupLags) -> dict[str, float | None]:
    return {each.key.group_id: each.seconds for each in lags.lags()}


def test_a_stuck_group_gets_older_and_a_moving_one_has_the_age_of_the_last_sample() -> None:
    committed, times, clock = CommittedOffsets(), WrittenTimes(), ManualClock(100_000)
    lags = GroupLags(lambda: [committed], ReplicasHere(), FixedStore(), times, clock)  # type: ignore[arg-type]
    for group, offset in (("done", 10), ("moving", 4), ("stuck", 4)):
        commit(committed, group, offset)
    assert seconds(lags) == {"done": 0.0, "moving": None, "stuck": None}
    asyncio.run(lags.sample())
    assert seconds(lags) == {"done": 0.0, "moving": 96.0, "stuck": 96.0}
    assert len(times.asked) == 1, "two groups at one offset are one question"
    clock.ms += 5_000
    commit(committed, "moving", 7)
    assert seconds(lags) == {"done": 0.0, "moving": 96.0, "stuck": 101.0}
    asyncio.run(lags.sample())
    assert seconds(lags) == {"done": 0.0, "moving": 98.0, "stuck": 101.0}
    assert [place.offset for place in times.asked] == [4, 7], (
        "what has not moved is not asked again"
    )


def test_more_offsets_than_one_sample_takes_are_asked_for_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_lag, "PLACES_PER_SAMPLE_MAX", 2)
    committed, times = CommittedOffsets(), WrittenTimes()
    clock = ManualClock(100_000)
    lags = GroupLags(lambda: [committed], ReplicasHere(), FixedStore(), times, clock)  # type: ignore[arg-type]
    for offset in range(5):
        commit(committed, f"g{offset}", offset)
    for _ in range(5):
        asyncio.run(lags.sample())
    assert {place.offset for place in times.asked} == set(range(5))
    assert None not in seconds(lags).values()


def test_the_end_from_the_leader_is_used_at_the_next_scrape() -> None:
    committed = CommittedOffsets()
    commit(committed, "g", 4)
    replicas, clock = ReplicasElsewhere(), ManualClock()

    async def body() -> None:
        lags = GroupLags(lambda: [committed], replicas, FixedStore(), WrittenTimes(), clock)  # type: ignore[arg-type]

        async def scrape() -> list[tuple[str, float]]:
            samples = next(iter(lags.metrics())).samples
            await asyncio.sleep(0)  # the question is asked
            await asyncio.sleep(0)  # and answered
            return samples

        labels = '{group="g",topic="t",partition="0"}'
        assert await scrape() == []
        assert await scrape() == [(labels, 6)]
        assert len(replicas.asked) == 1, "what is known is not asked for at every scrape"
        replicas.end = 15
        clock.ms += ENDS_KEPT_MS
        await scrape()
        assert await scrape() == [(labels, 11)]
        assert len(replicas.asked) == 2
        await lags.close()

    asyncio.run(body())
