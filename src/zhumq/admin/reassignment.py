"""Reassignment: plans the moves of partitions to their place on the hash ring, and carries them out."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AdminError, NotFound, Refused, Unavailable
from zhumq.admin.settings import alter_setting_of_all_brokers, broker_setting
from zhumq.metadata.image import Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.reassignment import Move, plan_moves, plan_moves_of
from zhumq.model.errors import RETRIABLE_CODES, BrokerError, ErrorCode
from zhumq.model.ids import BrokerId, LeaderEpoch, TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.metadata import MetadataRequest, MetadataResponse
from zhumq.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    OngoingPartitionReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
)

POLL_SECONDS: Final = 0.5
ELECTIONS_MS_MAX: Final = 10_000  # later elections are left to the controller
FAILURES_IN_A_ROW_MAX: Final = 20
_VIRTUAL_NODES_SETTING: Final = "placement.virtual.nodes"
_RATE_SETTING: Final = "leader.replication.throttled.rate"
_UNLIMITED: Final = str(2**63 - 1)  # the default of that setting


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
    leaving = list(without)
    return _plan(
        connection,
        lambda image, nodes: plan_moves(image, _without(image, leaving), virtual_nodes=nodes),
    )


def plan_draining(connection: ClusterConnection, broker: int) -> Plan:
    """The moves that empty a broker, and no others. Raises NotFound and Refused as `plan_rebalancing` does."""

    def plan(image: ClusterImage, nodes: int) -> list[Move]:
        moves = plan_moves(image, _without(image, [broker]), virtual_nodes=nodes)
        return [move for move in moves if broker in move.before]

    return _plan(connection, plan)


def plan_topic(
    connection: ClusterConnection,
    topic: str,
    *,
    brokers: Iterable[int] | None = None,
    replicas: int | None = None,
) -> Plan:
    """The moves of a topic to its place on these brokers, or on all live ones, with so many replicas, or as many as it has.

    Raises NotFound if there is no such topic or broker, and Refused if there are more replicas than brokers.
    """

    def plan(image: ClusterImage, nodes: int) -> list[Move]:
        found = image.topics.get(topic)
        if found is None:
            raise NotFound(f"there is no topic {topic!r}", "see `zhumq topic list`")
        chosen = list(image.brokers.values()) if brokers is None else _alive(image, set(brokers))
        return list(plan_moves_of(found, chosen, copies=replicas, virtual_nodes=nodes))

    return _plan(connection, plan)


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
                begin_moves(connection, {move.topic_partition: move.after for move in batch})
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
    return frozenset(ongoing_moves(connection))


def ongoing_moves(
    connection: ClusterConnection,
) -> dict[TopicPartition, OngoingPartitionReassignment]:
    """The reassignments that are not finished, as the brokers describe them."""
    listed = connection.request(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(topics=None)
    )
    _check("list reassignments", listed.error_code, listed.error_message)
    return {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in listed.topics
        for partition in topic.partitions
    }


def copy_rate(connection: ClusterConnection) -> int | None:
    """The bytes a second that each broker sends to new replicas at most; None: no limit."""
    value = broker_setting(connection, _RATE_SETTING)
    return None if value == _UNLIMITED else int(value)


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


def begin_moves(
    connection: ClusterConnection, targets: Mapping[TopicPartition, Sequence[int]]
) -> None:
    """Begin to move partitions to these replicas, which the brokers carry out.

    Raises NotFound and Refused if one of them cannot move; the others do.
    """
    asked = {name: list(replicas) for name, replicas in targets.items()}
    for name, result in _alter(connection, asked).items():
        _check(f"move {name}", result.error_code, result.error_message)


def cancel_moves(connection: ClusterConnection, partitions: Iterable[TopicPartition]) -> int:
    """Return partitions to their replicas from before their moves. Gives how many: a move may have ended meanwhile."""
    results = _alter(connection, dict.fromkeys(partitions))
    ended = 0
    for name, result in results.items():
        if result.error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
            ended += 1
        else:
            _check(f"cancel the move of {name}", result.error_code, result.error_message)
    return len(results) - ended


def _alter(
    connection: ClusterConnection, targets: Mapping[TopicPartition, list[int] | None]
) -> dict[TopicPartition, ReassignablePartitionResponse]:
    """Request replicas for partitions; None cancels a move."""
    topics: dict[str, ReassignableTopic] = {}
    for name, replicas in targets.items():
        topic = topics.setdefault(name.topic, ReassignableTopic(name=name.topic))
        asked = ReassignablePartition(partition_index=name.partition, replicas=replicas)
        topic.partitions.append(asked)
    answer = connection.request(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest(topics=list(topics.values())),
    )
    _check("change reassignments", answer.error_code, answer.error_message)
    return {
        TopicPartition(response.name, partition.partition_index): partition
        for response in answer.responses
        for partition in response.partitions
    }


def _check(doing: str, code: int, message: str | None) -> None:
    if code == ErrorCode.NONE:
        return
    name = ErrorCode(code).name
    kind: type[AdminError] = Unavailable if code in RETRIABLE_CODES else Refused
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        kind = NotFound
    raise kind(f"cannot {doing}: {message or name}", code=name)


def _plan(
    connection: ClusterConnection, plan: Callable[[ClusterImage, int], Sequence[Move]]
) -> Plan:
    # The brokers' setting: the plan has to be made on the same ring.
    virtual_nodes = int(broker_setting(connection, _VIRTUAL_NODES_SETTING))
    image = _read_image(connection)
    try:
        planned = plan(image, virtual_nodes)
    except BrokerError as reason:
        raise Refused(str(reason)) from reason
    moving = moving_partitions(connection)
    # A partition that moves already is left alone.
    moves = tuple(move for move in planned if move.topic_partition not in moving)
    return Plan(moves=moves, brokers=_shares(image, moves))


def _without(image: ClusterImage, leaving: Collection[int]) -> list[Broker]:
    _alive(image, leaving)
    return [each for each in image.brokers.values() if each.broker_id not in leaving]


def _alive(image: ClusterImage, chosen: Collection[int]) -> list[Broker]:
    """The brokers of these ids. Raises NotFound."""
    unknown = sorted(set(chosen) - image.brokers.keys())
    if unknown:
        raise NotFound(f"broker {unknown[0]} is not alive", "see `zhumq cluster status`")
    return [each for each in image.brokers.values() if each.broker_id in chosen]


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
