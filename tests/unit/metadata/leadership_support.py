"""Metadata images of small clusters, each written in one line."""

import uuid
from collections.abc import Iterable, Mapping

from zhumq.metadata.image import Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.leadership import InSyncRequest, LeaderPolicy, LogEnd
from zhumq.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from zhumq.model.replication_mode import Mode

T0 = TopicPartition("t", 0)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def brokers(epochs: Mapping[int, int]) -> dict[BrokerId, Broker]:
    return {
        BrokerId(number): Broker(broker_id=BrokerId(number), host="h", port=number, epoch=epoch)
        for number, epoch in epochs.items()
    }


def partition(
    replicas: Iterable[int],
    *,
    leader: int | None = None,
    in_sync: Iterable[int] | None = None,
    epoch: int = 5,
    leader_broker_epoch: int = 1,
    adding: Iterable[int] = (),
    removing: Iterable[int] = (),
    mode: Mode = Mode.FETCH,
    changing_mode: bool = False,
    eligible: Iterable[int] = (),
) -> PartitionState:
    members = ids(*replicas)
    return PartitionState(
        replicas=members,
        leader=members[0] if leader is None else BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        in_sync=members if in_sync is None else ids(*in_sync),
        partition_epoch=20,
        leader_broker_epoch=leader_broker_epoch,
        adding=ids(*adding),
        removing=ids(*removing),
        mode=mode,
        changing_mode=changing_mode,
        eligible=ids(*eligible),
    )


def cluster(
    *partitions: PartitionState, epochs: Mapping[int, int] | None = None, topics: int = 1
) -> ClusterImage:
    """A topic `t` (or several, `t`, `t1`, ...) of these partitions on brokers 1, 2, 3."""
    made = [
        Topic(name=f"t{number or ''}", topic_id=uuid.UUID(int=number), partitions=partitions)
        for number in range(topics)
    ]
    return ClusterImage(
        version=1,
        cluster_id="c",
        controller_id=BrokerId(1),
        brokers=brokers(epochs or {1: 1, 2: 1, 3: 1}),
        topics={topic.name: topic for topic in made},
        topics_by_id={topic.topic_id: topic for topic in made},
        partition_count=len(partitions) * topics,
    )


def ends(**log_ends: tuple[int, int]) -> dict[TopicPartition, dict[BrokerId, LogEnd]]:
    """The log ends of the replicas of t-0: `ends(b2=(last epoch, end offset))`."""
    return {
        T0: {
            BrokerId(int(name[1:])): LogEnd(LeaderEpoch(epoch), Offset(offset))
            for name, (epoch, offset) in log_ends.items()
        }
    }


def clean(_topic: Topic) -> LeaderPolicy:
    return LeaderPolicy()


def unclean(_topic: Topic) -> LeaderPolicy:
    return LeaderPolicy(unclean=True)


def request(state: PartitionState, *in_sync: int, broker_epoch: int = 1) -> InSyncRequest:
    return InSyncRequest(
        broker_id=state.leader,
        broker_epoch=broker_epoch,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        in_sync=ids(*in_sync),
    )
