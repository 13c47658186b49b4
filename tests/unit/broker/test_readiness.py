"""What /readyz names: only what keeps this broker from serving."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from zhumq.broker.readiness import obstacles_to_service
from zhumq.host.disk import DiskUsage
from zhumq.model.errors import BrokerError, StorageFailed
from zhumq.model.ids import TopicPartition

SERVED, OFFLINE = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class Lifecycle:
    is_active: bool = True


@dataclass
class Replicas:
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    offline: dict[TopicPartition, BrokerError] = field(default_factory=dict)

    def __iter__(self) -> Iterator[object]:
        return iter(())


@dataclass
class Room:
    is_full: bool = False
    refusal: str = ""
    usage: DiskUsage = field(default_factory=lambda: DiskUsage(used_bytes=9, total_bytes=10))


def obstacles(
    replicas: Replicas | None = None,
    room: Room | None = None,
    unserved: tuple[TopicPartition, ...] = (),
    loading: int = 0,
) -> list[str]:
    return obstacles_to_service(
        replicas or Replicas(),  # type: ignore[arg-type]
        room or Room(),  # type: ignore[arg-type]
        unserved,
        {"__consumer_offsets": loading, "__transaction_state": 0},
    )


def test_a_broker_that_serves_has_none() -> None:
    assert obstacles() == []


def test_each_obstacle_is_one_line_that_says_what_is_wrong() -> None:
    assert obstacles(Replicas(Lifecycle(is_active=False))) == [
        "this broker is not registered in its cluster"
    ]
    assert obstacles(room=Room(is_full=True)) == ["no room on the disk: 1 bytes free"]
    assert obstacles(room=Room(refusal="the disk is 99 % full")) == ["the disk is 99 % full"]
    assert obstacles(loading=3) == [
        "3 partitions of __consumer_offsets are led here and not loaded yet"
    ]
    assert obstacles(unserved=(SERVED,)) == ["1 partitions are led here and not served yet: t-0"]


def test_a_partition_that_only_an_operator_repairs_does_not_take_the_others_away() -> None:
    replicas = Replicas(offline={OFFLINE: StorageFailed("the disk failed")})
    assert obstacles(replicas, unserved=(OFFLINE,)) == []
