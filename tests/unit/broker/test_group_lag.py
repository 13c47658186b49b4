"""Lag of groups on partitions of other brokers: asked in the background, reported at the next scrape."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.manual_time import ManualClock

from zhumq.broker.group_lag import ENDS_KEPT_MS, GroupLags
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


def test_the_end_from_the_leader_is_used_at_the_next_scrape() -> None:
    committed = CommittedOffsets()
    committed.put(
        OffsetKey("g", "t", 0),
        CommittedOffset(
            offset=4, leader_epoch=0, metadata="", commit_timestamp_ms=0, expire_timestamp_ms=-1
        ),
    )
    replicas, clock = ReplicasElsewhere(), ManualClock()

    async def body() -> None:
        lags = GroupLags(lambda: [committed], replicas, FixedStore(), clock)  # type: ignore[arg-type]

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
