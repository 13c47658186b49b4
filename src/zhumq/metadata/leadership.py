"""The controller's decisions on partition leaders and in-sync sets. Pure: facts in, changes out.

One broker leads in one epoch. Every change of a leader raises the leader epoch, every change of a
partition raises the partition epoch, and a proposal is valid only for the metadata image that it was
decided on. So two controllers, or a delayed one, cannot name two leaders for one epoch.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from zhumq.metadata.changes import BrokerGone, Change, PartitionChanged
from zhumq.metadata.image import NO_BROKER, Broker, ClusterImage, PartitionState, Topic
from zhumq.model.cluster_errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    IneligibleReplica,
    InvalidUpdateVersion,
    NotController,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
)
from zhumq.model.errors import FencedLeaderEpoch, InvalidRequest, UnknownTopicOrPartition
from zhumq.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from zhumq.model.replication_mode import Mode

# A proposal of this many changes is well below ZooKeeper's limit for one transaction.
CHANGES_PER_PROPOSAL_MAX: Final = 1_000
# So is this size of the topics in one proposal: each changed topic is written as a whole.
TOPIC_BYTES_MAX: Final = 600_000


class LogEnd(NamedTuple):
    """The end of a replica's log. The replica with the largest one has everything committed.

    The epoch compares first: a stale replica may have a long tail that was never committed.
    """

    last_epoch: LeaderEpoch
    end_offset: Offset


UNKNOWN_LOG_END: Final = LogEnd(LeaderEpoch(-1), Offset(-1))
LogEnds = Mapping[TopicPartition, Mapping[BrokerId, LogEnd]]
_NO_LOG_ENDS: Final[LogEnds] = {}
_NO_ENDS: Final[Mapping[BrokerId, LogEnd]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderPolicy:
    """The topic settings that decide on its leaders."""

    # The topic's setting. The current mode of a partition is in its state.
    mode: Mode = Mode.FETCH
    # Whether an out-of-sync replica may lead when no other is left (unclean election). Loses messages.
    unclean: bool = False
    min_in_sync: int = 1


PolicyOf = Callable[[Topic], LeaderPolicy]


@dataclass(frozen=True, slots=True, kw_only=True)
class InSyncRequest:
    """A leader's AlterPartition request (KIP-497): make this the in-sync set."""

    broker_id: BrokerId
    broker_epoch: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    in_sync: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionResult:
    """The result of an election among raft replicas."""

    leader: BrokerId
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Resignation:
    """A raft leader has lost the contact with a majority, and no other leader is elected."""

    leader: BrokerId
    leader_epoch: LeaderEpoch


def plan_membership(
    image: ClusterImage,
    live: Collection[BrokerId],
    policy_of: PolicyOf,
    log_ends: LogEnds = _NO_LOG_ENDS,
) -> Iterator[Change]:
    """Changes after a change of the live brokers: brokers that are gone, leaders for their partitions.

    It depends only on its arguments, so a new controller continues where the last one stopped. It is
    lazy: the store can write the first of a million changes before the last ones are decided.
    """
    alive = {broker_id: each for broker_id, each in image.brokers.items() if broker_id in live}
    for broker_id in image.brokers:
        if broker_id not in alive:
            yield BrokerGone(broker_id=broker_id)
    for topic in image.topics.values():
        policy: LeaderPolicy | None = None
        for index, state in enumerate(topic.partitions):
            # In raft mode the replicas elect their leader and only report it.
            if state.mode is Mode.RAFT or _needs_no_change(state, alive):
                continue
            policy = policy or policy_of(topic)
            ends = (
                log_ends.get(TopicPartition(topic.name, index), _NO_ENDS) if log_ends else _NO_ENDS
            )
            repaired = _repaired(state, alive, policy, ends)
            if repaired is not state:
                yield PartitionChanged(name=topic.name, partition=index, state=repaired)


def partitions_without_leader(
    image: ClusterImage, live: Collection[BrokerId]
) -> list[TopicPartition]:
    """The fetch partitions without a live leader: the controller asks their replicas for log ends."""
    return [
        TopicPartition(topic.name, index)
        for topic in image.topics.values()
        for index, state in enumerate(topic.partitions)
        if state.mode is Mode.FETCH
        and (state.leader not in live or image.leader_of(state) == NO_BROKER)
    ]


def choose_leader(
    state: PartitionState,
    alive: Collection[BrokerId],
    policy: LeaderPolicy,
    log_ends: Mapping[BrokerId, LogEnd],
    unfit: Collection[BrokerId] = (),
) -> BrokerId | None:
    """The live in-sync replica with the largest log end; without log ends the first in order.

    KIP-966: after in-sync replicas come those that left the in-sync set when it became too small to
    commit anything. In a mode change from raft the votes show which replica has everything, so any
    live replica may try.
    """

    def log_end(broker_id: BrokerId) -> LogEnd:
        return log_ends.get(broker_id, UNKNOWN_LOG_END)

    living = [each for each in state.replicas if each in alive and each not in unfit]
    if state.changing_mode:
        candidates = living
    else:
        candidates = (
            [each for each in living if each in state.in_sync]
            or [each for each in living if each in state.eligible]
            or (living if policy.unclean else [])
        )
    if not candidates:
        return None
    return max(candidates, key=log_end) if log_ends else candidates[0]


def name_leader(
    state: PartitionState,
    alive: Mapping[BrokerId, Broker],
    policy: LeaderPolicy,
    log_ends: Mapping[BrokerId, LogEnd],
    *,
    above_epoch: int = -1,
    unfit: Collection[BrokerId] = (),
) -> PartitionState:
    """The partition with a leader in a new epoch, or without one; unchanged if it has none already."""
    chosen = choose_leader(state, alive, policy, log_ends, unfit)
    raised = replace(state, leader_epoch=LeaderEpoch(max(state.leader_epoch, above_epoch)))
    if chosen is None:
        # The last in-sync set stays: only its members have everything acknowledged.
        return state if state.leader == NO_BROKER else with_leader(raised, None)
    in_sync = tuple(
        [each for each in state.in_sync if each in alive and each not in unfit] or [chosen]
    )
    if state.changing_mode:
        # Only the named leader counts as in sync before it has won the votes.
        return with_leader(replace(raised, eligible=()), alive[chosen], (chosen,))
    if chosen in state.in_sync or chosen in state.eligible:
        kept = with_in_sync(raised, in_sync, policy.min_in_sync)
        return replace(with_leader(kept, alive[chosen]), partition_epoch=state.partition_epoch + 1)
    led = with_leader(replace(raised, eligible=()), alive[chosen], (chosen,))
    return replace(led, unclean_epoch=led.leader_epoch)


def plan_preferred_leaders(
    image: ClusterImage, *, tolerated_percent: int = 0
) -> Iterator[PartitionChanged]:
    """Preferred-leader election for fetch partitions whose preferred leader is alive and in sync.

    Skips brokers that lack the leadership of at most `tolerated_percent` of their partitions.
    """
    led_elsewhere: Counter[BrokerId] = Counter()
    preferred_by: Counter[BrokerId] = Counter()
    for topic in image.topics.values():
        for state in topic.partitions:
            if state.mode is Mode.FETCH:
                preferred_by[state.replicas[0]] += 1
                led_elsewhere[state.replicas[0]] += image.leader_of(state) != state.replicas[0]
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            preferred = state.replicas[0]
            if state.mode is Mode.RAFT or (
                100 * led_elsewhere[preferred] <= tolerated_percent * preferred_by[preferred]
            ):
                continue
            leader = image.leader_of(state)
            unmoved = not (state.adding or state.removing)
            if NO_BROKER != leader != preferred and unmoved and _may_lead(image, state, preferred):
                led = with_leader(state, image.brokers[preferred])
                yield PartitionChanged(name=topic.name, partition=index, state=led)


def elect_preferred(image: ClusterImage, topic_partition: TopicPartition) -> PartitionChanged:
    """Make the preferred replica the leader. Raises the errors of the ElectLeaders API (KIP-460).

    For fetch partitions only: raft voters elect their leader themselves.
    """
    state = existing_partition(image, topic_partition)
    if state.mode is Mode.RAFT:
        raise InvalidRequest(f"{topic_partition} is in raft mode: its replicas elect their leader")
    preferred = state.replicas[0]
    if image.leader_of(state) == preferred:
        raise ElectionNotNeeded(f"broker {preferred} already leads {topic_partition}")
    if not _may_lead(image, state, preferred):
        raise PreferredLeaderNotAvailable(
            f"broker {preferred} cannot lead {topic_partition}: it is not alive or not in sync"
        )
    return changed_partition(topic_partition, with_leader(state, image.brokers[preferred]))


def elect_unclean(
    image: ClusterImage, topic_partition: TopicPartition, log_ends: Mapping[BrokerId, LogEnd]
) -> PartitionChanged:
    """Unclean election on an operator's request: any live replica may become leader."""
    state = existing_partition(image, topic_partition)
    if image.leader_of(state) != NO_BROKER:
        raise ElectionNotNeeded(f"broker {state.leader} leads {topic_partition}")
    if state.mode is Mode.RAFT:
        raise EligibleLeadersNotAvailable(
            f"{topic_partition} is in raft mode: only a majority of its replicas can elect a leader"
        )
    repaired = _repaired(state, image.brokers, LeaderPolicy(unclean=True), log_ends)
    if repaired.leader == NO_BROKER:
        raise EligibleLeadersNotAvailable(f"no replica of {topic_partition} is alive")
    return changed_partition(topic_partition, repaired)


def check_in_sync_request(
    image: ClusterImage,
    topic_partition: TopicPartition,
    request: InSyncRequest,
    min_in_sync: int = 1,
) -> PartitionState:
    """The partition with the in-sync set that its leader requests. Raises BrokerError with the reason."""
    state = existing_partition(image, topic_partition)
    sender = image.brokers.get(request.broker_id)
    if sender is None or sender.epoch != request.broker_epoch:
        raise StaleBrokerEpoch(f"broker {request.broker_id} has registered again since")
    if request.leader_epoch < state.leader_epoch:
        raise FencedLeaderEpoch(f"{topic_partition} is in epoch {state.leader_epoch}")
    if request.leader_epoch > state.leader_epoch or request.partition_epoch > state.partition_epoch:
        raise NotController(f"the leader of {topic_partition} knows more than this controller")
    if request.broker_id != state.leader:
        raise InvalidRequest(f"broker {request.broker_id} does not lead {topic_partition}")
    if request.partition_epoch < state.partition_epoch:
        raise InvalidUpdateVersion(f"{topic_partition} has changed to {state.partition_epoch}")
    if request.broker_id not in request.in_sync or not set(request.in_sync) <= set(state.replicas):
        raise InvalidRequest(
            f"the in-sync set of {topic_partition} must include its leader and only its replicas"
        )
    missing = [each for each in request.in_sync if each not in image.brokers]
    if missing:
        raise IneligibleReplica(f"brokers {missing} are not alive")
    in_sync = tuple(each for each in state.replicas if each in request.in_sync)
    return with_in_sync(state, in_sync, min_in_sync)


def plan_election_results(
    image: ClusterImage, results: Mapping[TopicPartition, ElectionResult]
) -> list[PartitionChanged]:
    """Record the leaders that raft replicas elected. Results of an already known epoch are dropped."""
    changes = []
    for topic_partition, result in results.items():
        state = image.partition(topic_partition)
        broker = image.brokers.get(result.leader)
        if state is None or broker is None or result.leader not in state.replicas:
            continue
        if state.mode is not Mode.RAFT or result.leader_epoch < state.leader_epoch:
            continue
        if result.leader_epoch == state.leader_epoch and (
            # One broker wins an epoch, so a repeated result is new only if that broker registered again.
            result.leader != state.leader or broker.epoch == state.leader_broker_epoch
        ):
            continue
        # Raft mode does not track the in-sync set: some majority is in sync.
        changed = replace(
            with_leader(state, broker, state.replicas), leader_epoch=result.leader_epoch
        )
        changes.append(changed_partition(topic_partition, changed))
    return changes


def plan_resignations(
    image: ClusterImage, resignations: Mapping[TopicPartition, Resignation]
) -> list[PartitionChanged]:
    """Record that partitions have no leader. What another election has overtaken is dropped."""
    changes = []
    for topic_partition, resigned in resignations.items():
        state = image.partition(topic_partition)
        if (
            state is not None
            and state.mode is Mode.RAFT
            and (state.leader, state.leader_epoch) == (resigned.leader, resigned.leader_epoch)
        ):
            # The same epoch: the next one is that of the next election.
            unled = replace(
                state,
                leader=NO_BROKER,
                leader_broker_epoch=0,
                partition_epoch=state.partition_epoch + 1,
            )
            changes.append(changed_partition(topic_partition, unled))
    return changes


def in_batches(
    changes: Iterable[Change], bytes_of: Callable[[str], int] = lambda _topic: 0
) -> Iterator[Sequence[Change]]:
    """Split the changes into proposals of a bounded size, in order.

    A store that keeps a topic in one node writes the whole node for a change of one partition;
    bytes_of returns the size of a topic's node. The first change always fits.
    """
    batch: list[Change] = []
    topics: set[str] = set()
    size = 0
    for change in changes:
        name = change.name if isinstance(change, PartitionChanged) else None
        more = 0 if name is None or name in topics else bytes_of(name)
        if len(batch) == CHANGES_PER_PROPOSAL_MAX or (batch and size + more > TOPIC_BYTES_MAX):
            yield tuple(batch)
            batch, topics, size = [], set(), 0
            more = 0 if name is None else bytes_of(name)
        batch.append(change)
        size += more
        if name is not None:
            topics.add(name)
    if batch:
        yield tuple(batch)


def existing_partition(image: ClusterImage, topic_partition: TopicPartition) -> PartitionState:
    state = image.partition(topic_partition)
    if state is None:
        raise UnknownTopicOrPartition(f"there is no partition {topic_partition}")
    return state


def changed_partition(topic_partition: TopicPartition, state: PartitionState) -> PartitionChanged:
    return PartitionChanged(
        name=topic_partition.topic, partition=topic_partition.partition, state=state
    )


def with_leader(
    state: PartitionState, broker: Broker | None, in_sync: tuple[BrokerId, ...] | None = None
) -> PartitionState:
    """The partition with this leader, or without one, in a new epoch."""
    leader = NO_BROKER if broker is None else broker.broker_id
    in_sync = state.in_sync if in_sync is None else in_sync
    if broker is not None and leader not in in_sync:
        # Records beyond this leader's log are lost, so no other replica is in sync.
        in_sync = (leader,)
    return replace(
        state,
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        in_sync=in_sync,
        partition_epoch=state.partition_epoch + 1,
        leader_broker_epoch=0 if broker is None else broker.epoch,
    )


def with_in_sync(
    state: PartitionState, in_sync: tuple[BrokerId, ...], min_in_sync: int
) -> PartitionState:
    """The partition with another in-sync set and the eligible leader replicas (KIP-966)."""
    eligible: tuple[BrokerId, ...] = ()
    if len(in_sync) < min_in_sync:
        good = {*state.eligible, *state.in_sync}.difference(in_sync)
        eligible = tuple(each for each in state.replicas if each in good)
    # A majority in sync has everything committed in raft mode: the mode change is complete.
    changing_mode = state.changing_mode and 2 * len(in_sync) <= len(state.replicas)
    return replace(
        state,
        in_sync=in_sync,
        eligible=eligible,
        changing_mode=changing_mode,
        partition_epoch=state.partition_epoch + 1,
    )


def _needs_no_change(state: PartitionState, alive: Mapping[BrokerId, Broker]) -> bool:
    """Whether the partition needs no change. Fast: called for every partition at every lost broker."""
    leader = alive.get(state.leader)
    if leader is None or leader.epoch != state.leader_broker_epoch:
        return False
    for broker_id in state.in_sync:  # noqa: SIM110 (a loop is twice as fast as all())
        if broker_id not in alive:
            return False
    return True


def _repaired(
    state: PartitionState,
    alive: Mapping[BrokerId, Broker],
    policy: LeaderPolicy,
    log_ends: Mapping[BrokerId, LogEnd],
) -> PartitionState:
    """The partition adjusted to these live brokers; the same object if nothing changes."""
    in_sync = tuple([broker_id for broker_id in state.in_sync if broker_id in alive])
    leader = alive.get(state.leader)
    if leader is not None and leader.epoch == state.leader_broker_epoch:
        if in_sync == state.in_sync:
            return state
        return with_in_sync(state, in_sync, policy.min_in_sync)
    return name_leader(state, alive, policy, log_ends)


def _may_lead(image: ClusterImage, state: PartitionState, broker_id: BrokerId) -> bool:
    in_sync = broker_id in state.in_sync and not state.changing_mode
    return broker_id in image.brokers and in_sync
