"""Reassignment: plans the moves of partitions to their place on the hash ring, and carries them out."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AdminError, NotFound, Refused
from zhumq.admin.settings import alter_setting_of_all_brokers, broker_setting
from zhumq.metadata.image import Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.reassignment import Move, plan_moves
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.metadata import MetadataRequest, MetadataResponse
from zhumq.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

POLL_SECONDS: Final = 0.5
ELECTIONS_MS_MAX: Final = 10_000  # later elections are left to the controller
FAILURES_IN_A_ROW_MAX: Final = 20
_VIRTUAL_NODES_SETTING: Final = "placement.virtual.nodes"
_RATE_SETTING: Final = "leader.replication.throttled.rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerShare:
    """The number of replicas on a broker before and after the moves, and how many it has to fetch."""

    broker: int
    before: int
    after: int
    fetches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The moves of a rebalancing, and what they change for each broker."""

    moves: tuple[Move, ...]
    brokers: tuple[BrokerShare, ...]


def plan_rebalancing(connection: ClusterConnection, without: Iterable[int] = ()) -> Plan:
    """The moves to the hash ring of the live brokers, but for those that are to be emptied.

    Raises NotFound if a broker of `without` is not alive, and Refused if too few brokers would stay.
    """
    # The brokers' setting: the plan has to be made on the same ring.
    virtual_nodes = int(broker_setting(connection, _VIRTUAL_NODES_SETTING))
    image = _read_image(connection)
    leaving = list(without)
    unknown = [each for each in leaving if each not in image.brokers]
    if unknown:
        raise NotFound(f"broker {unknown[0]} is not alive", "see `zhumq cluster status`")
    staying = [each for each in image.brokers.values() if each.broker_id not in leaving]
    try:
        planned = plan_moves(image, staying, virtual_nodes=virtual_nodes)
    except BrokerError as reason:
        raise Refused(str(reason)) from reason
    moving = moving_partitions(connection)
    # A partition that moves already is left alone.
    moves = tuple(move for move in planned if move.topic_partition not in moving)
    return Plan(moves=moves, brokers=_shares(image, moves))


def run_moves(
    connection: ClusterConnection,
    moves: Sequence[Move],
    *,
    at_once: int,
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Keep up to `at_once` moves running until all finish.

    `progress` is called with the number of finished moves. A move that was begun continues without the caller.
    """
    waiting = list(moves)
    begun: set[TopicPartition] = set()
    failures = 0
    while True:
        try:
            moving = moving_partitions(connection)
            room = max(at_once - len(begun & moving), 0)
            batch = waiting[:room]
            if batch:
                _begin(connection, batch)
        except AdminError:
            # Brokers may restart while replicas move; the moves continue without this caller.
            failures += 1
            if failures == FAILURES_IN_A_ROW_MAX:
                raise
            time.sleep(POLL_SECONDS)
            continue
        failures = 0
        waiting = waiting[len(batch) :]
        begun.update(move.topic_partition for move in batch)
        progress(len(begun - moving) - len(batch))
        if not waiting and not batch and not begun & moving:
            break
        time.sleep(POLL_SECONDS)


def elect_preferred_leaders(connection: ClusterConnection) -> None:
    """Give each partition back to its first replica, where that is in sync."""
    connection.request(
        ApiKey.ELECT_LEADERS,
        ElectLeadersRequest(topic_partitions=None, timeout_ms=ELECTIONS_MS_MAX),
    )


def moving_partitions(connection: ClusterConnection) -> frozenset[TopicPartition]:
    """The partitions whose reassignment is not finished."""
    listed = connection.request(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(topics=None)
    )
    return frozenset(
        TopicPartition(topic.name, partition.partition_index)
        for topic in listed.topics
        for partition in topic.partitions
    )


def set_copy_rate(connection: ClusterConnection, bytes_per_second: int | None) -> None:
    """Limit what each broker sends to new replicas; None removes the limit."""
    value = None if bytes_per_second is None else str(bytes_per_second)
    alter_setting_of_all_brokers(connection, _RATE_SETTING, value)


@contextlib.contextmanager
def throttled(connection: ClusterConnection, bytes_per_second: int | None) -> Iterator[None]:
    """Limit the copy rate for the length of the block; None: no change.

    After an error or an interrupt the limit stays: the moves that were begun continue.
    """
    if bytes_per_second is not None:
        set_copy_rate(connection, bytes_per_second)
    yield
    if bytes_per_second is not None:
        set_copy_rate(connection, None)


def _begin(connection: ClusterConnection, moves: Sequence[Move]) -> None:
    topics: dict[str, ReassignableTopic] = {}
    for move in moves:
        name = move.topic_partition.topic
        topic = topics.setdefault(name, ReassignableTopic(name=name))
        topic.partitions.append(
            ReassignablePartition(
                partition_index=move.topic_partition.partition, replicas=list(move.after)
            )
        )
    answer = connection.request(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest(topics=list(topics.values())),
    )
    for response in answer.responses:
        for partition in response.partitions:
            if partition.error_code != ErrorCode.NONE:
                raise Refused(
                    f"{response.name}-{partition.partition_index} cannot move:"
                    f" {partition.error_message or ErrorCode(partition.error_code).name}"
                )


def _read_image(connection: ClusterConnection) -> ClusterImage:
    """The metadata image as a broker reports it to clients."""
    answer: MetadataResponse = connection.request(ApiKey.METADATA, MetadataRequest(topics=None))
    brokers = {
        BrokerId(each.node_id): Broker(
            broker_id=BrokerId(each.node_id), host=each.host, port=each.port, rack=each.rack
        )
        for each in answer.brokers
    }
    topics: dict[str, Topic] = {}
    for described in answer.topics:
        states = tuple(
            PartitionState(
                replicas=tuple(map(BrokerId, each.replica_nodes)),
                leader=BrokerId(each.leader_id),
                leader_epoch=LeaderEpoch(each.leader_epoch),
                in_sync=tuple(map(BrokerId, each.isr_nodes)),
            )
            for each in sorted(described.partitions, key=lambda each: each.partition_index)
        )
        name = described.name or ""
        topics[name] = Topic(name=name, topic_id=described.topic_id, partitions=states)
    return ClusterImage(
        version=0,
        cluster_id=answer.cluster_id or "",
        controller_id=BrokerId(answer.controller_id),
        brokers=brokers,
        topics=topics,
        topics_by_id={},
    )


def _shares(image: ClusterImage, moves: Iterable[Move]) -> tuple[BrokerShare, ...]:
    before = Counter(
        replica
        for topic in image.topics.values()
        for state in topic.partitions
        for replica in state.replicas
    )
    after = before.copy()
    fetches: Counter[BrokerId] = Counter()
    for move in moves:
        state = image.topics[move.topic_partition.topic].partitions[move.topic_partition.partition]
        after.subtract(state.replicas)
        after.update(move.after)
        fetches.update(set(move.after) - set(move.before))
    return tuple(
        BrokerShare(broker=each, before=before[each], after=after[each], fetches=fetches[each])
        for each in sorted({*image.brokers, *before})
    )
