"""Who leads which partition: the controller's decisions. Pure: facts in, changes out.

One broker leads in one epoch. Every change of a leader raises the leader's epoch, every change of a
partition raises the partition's, and a proposal counts only on the picture it was decided on. So two
controllers, or one that is late, cannot name two leaders for one epoch.
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

# A proposal of so many changes is well below what ZooKeeper takes in one transaction.
CHANGES_PER_PROPOSAL_MAX: Final = 1_000
# So are the topics that one proposal touches, which are written whole.
TOPIC_BYTES_MAX: Final = 600_000


class LogEnd(NamedTuple):
    """How far a replica's log goes. The larger one has everything that was ever committed.

    The epoch comes first: a stale replica may have a long tail that was never committed.
    """

    last_epoch: LeaderEpoch
    end_offset: Offset


UNKNOWN_LOG_END: Final = LogEnd(LeaderEpoch(-1), Offset(-1))
LogEnds = Mapping[TopicPartition, Mapping[BrokerId, LogEnd]]
_NO_LOG_ENDS: Final[LogEnds] = {}
_NO_ENDS: Final[Mapping[BrokerId, LogEnd]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderPolicy:
    """How a topic gets its leaders."""

    # What the topic's setting asks for. What holds for a partition now is in its state.
    mode: Mode = Mode.FETCH
    # Whether a replica that is not in sync may lead when no other is left. Loses messages.
    unclean: bool = False
    min_in_sync: int = 1


PolicyOf = Callable[[Topic], LeaderPolicy]


@dataclass(frozen=True, slots=True, kw_only=True)
class InSyncRequest:
    """What a leader asks of the controller (KIP-497): that these replicas count as in sync."""

    broker_id: BrokerId
    broker_epoch: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    in_sync: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionResult:
    """The outcome of an election among replicas."""

    leader: BrokerId
    leader_epoch: LeaderEpoch


def plan_membership(
    image: ClusterImage,
    live: Collection[BrokerId],
    policy_of: PolicyOf,
    log_ends: LogEnds = _NO_LOG_ENDS,
) -> Iterator[Change]:
    """What follows from who is alive now: brokers declared gone, and leaders for their partitions.

    It looks at nothing but the picture and the facts, so a new controller goes on where the last one
    stopped, whatever that had done. It decides as it is read: the first of a million changes can be
    on their way before the last ones are known.
    """
    alive = {broker_id: each for broker_id, each in image.brokers.items() if broker_id in live}
    for broker_id in image.brokers:
        if broker_id not in alive:
            yield BrokerGone(broker_id=broker_id)
    for topic in image.topics.values():
        policy: LeaderPolicy | None = None
        for index, state in enumerate(topic.partitions):
            # In raft mode the replicas vote among themselves, and only make it known.
            if state.mode is Mode.RAFT or _is_well(state, alive):
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
    """The partitions whose replicas are to be asked for the ends of their logs."""
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
    """The live replica with the largest log end, in-sync ones first, else the preferred order.

    KIP-966: then those that left the in-sync set when it became too small for anything to be
    committed since. In a handover from raft the votes decide who has everything, so any may try.
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
    """The partition with a leader in a new epoch, or with none; the same one if that is so."""
    chosen = choose_leader(state, alive, policy, log_ends, unfit)
    raised = replace(state, leader_epoch=LeaderEpoch(max(state.leader_epoch, above_epoch)))
    if chosen is None:
        # The last in-sync set is kept: only its members have all that was acknowledged.
        return state if state.leader == NO_BROKER else with_leader(raised, None)
    in_sync = tuple(
        [each for each in state.in_sync if each in alive and each not in unfit] or [chosen]
    )
    if state.changing_mode:
        # Nobody counts as in sync before the named leader has won, not even those who are.
        return with_leader(replace(raised, eligible=()), alive[chosen], (chosen,))
    if chosen in state.in_sync or chosen in state.eligible:
        kept = with_in_sync(raised, in_sync, policy.min_in_sync)
        return replace(with_leader(kept, alive[chosen]), partition_epoch=state.partition_epoch + 1)
    led = with_leader(replace(raised, eligible=()), alive[chosen], (chosen,))
    return replace(led, unclean_epoch=led.leader_epoch)


def plan_preferred_leaders(
    image: ClusterImage, *, tolerated_percent: int = 0
) -> Iterator[PartitionChanged]:
    """Leadership back to the first replicas, wherever they can take it and leaders are named.

    Brokers that miss no more than so many of their partitions are left alone.
    """
    unreachable: Counter[BrokerId] = Counter()
    preferred_by: Counter[BrokerId] = Counter()
    for topic in image.topics.values():
        for state in topic.partitions:
            if state.mode is Mode.FETCH:
                preferred_by[state.replicas[0]] += 1
                unreachable[state.replicas[0]] += image.leader_of(state) != state.replicas[0]
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            preferred = state.replicas[0]
            if state.mode is Mode.RAFT or (
                100 * unreachable[preferred] <= tolerated_percent * preferred_by[preferred]
            ):
                continue
            leader = image.leader_of(state)
            unmoved = not (state.adding or state.removing)
            if NO_BROKER != leader != preferred and unmoved and _may_lead(image, state, preferred):
                led = with_leader(state, image.brokers[preferred])
                yield PartitionChanged(name=topic.name, partition=index, state=led)


def elect_preferred(image: ClusterImage, topic_partition: TopicPartition) -> PartitionChanged:
    """The first replica leads from now on. Raises what the ElectLeaders API answers (KIP-460).

    Of a fetch partition: voters are not told whom to elect.
    """
    state = existing_partition(image, topic_partition)
    if state.mode is Mode.RAFT:
        raise InvalidRequest(f"the leader of {topic_partition} is elected, not named")
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
    """Any live replica leads from now on, because an operator asked for it."""
    state = existing_partition(image, topic_partition)
    if image.leader_of(state) != NO_BROKER:
        raise ElectionNotNeeded(f"broker {state.leader} leads {topic_partition}")
    if state.mode is Mode.RAFT:
        raise EligibleLeadersNotAvailable(
            f"{topic_partition} is a raft topic's: its replicas vote, and a minority cannot"
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
    """The partition with the in-sync set that its leader asks for, or the reason why not."""
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
            f"the in-sync set of {topic_partition} needs its leader, and replicas only"
        )
    missing = [each for each in request.in_sync if each not in image.brokers]
    if missing:
        raise IneligibleReplica(f"brokers {missing} are not alive")
    in_sync = tuple(each for each in state.replicas if each in request.in_sync)
    return with_in_sync(state, in_sync, min_in_sync)


def plan_election_results(
    image: ClusterImage, votes: Mapping[TopicPartition, ElectionResult]
) -> list[PartitionChanged]:
    """Make known whom the replicas elected. News of an epoch that is known already is dropped."""
    changes = []
    for topic_partition, vote in votes.items():
        state = image.partition(topic_partition)
        broker = image.brokers.get(vote.leader)
        if state is None or broker is None or vote.leader not in state.replicas:
            continue
        if state.mode is not Mode.RAFT or vote.leader_epoch < state.leader_epoch:
            continue
        if vote.leader_epoch == state.leader_epoch and (
            # One broker wins an epoch, so news of the same one is that it has registered again.
            vote.leader != state.leader or broker.epoch == state.leader_broker_epoch
        ):
            continue
        # Who is in sync is not kept track of in raft mode: a majority is, whoever that is.
        changed = replace(
            with_leader(state, broker, state.replicas), leader_epoch=vote.leader_epoch
        )
        changes.append(changed_partition(topic_partition, changed))
    return changes


def in_batches(
    changes: Iterable[Change], bytes_of: Callable[[str], int] = lambda _topic: 0
) -> Iterator[Sequence[Change]]:
    """The changes in proposals of a bounded size, in order: brokers that are gone come first.

    A store that keeps a topic as one node writes all of it for a change of one partition: bytes_of
    says how much that is for a topic. The first change always fits.
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
    """The partition led by this broker, or by nobody, in a new epoch."""
    leader = NO_BROKER if broker is None else broker.broker_id
    in_sync = state.in_sync if in_sync is None else in_sync
    if broker is not None and leader not in in_sync:
        # What the others have beyond this leader's log is lost, so none of them is in sync.
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
    """The partition with another in-sync set, and who is as good as its members (KIP-966)."""
    eligible: tuple[BrokerId, ...] = ()
    if len(in_sync) < min_in_sync:
        good = {*state.eligible, *state.in_sync}.difference(in_sync)
        eligible = tuple(each for each in state.replicas if each in good)
    # A majority in sync has all that was committed: what comes from raft has arrived.
    changing_mode = state.changing_mode and 2 * len(in_sync) <= len(state.replicas)
    return replace(
        state,
        in_sync=in_sync,
        eligible=eligible,
        changing_mode=changing_mode,
        partition_epoch=state.partition_epoch + 1,
    )


def _is_well(state: PartitionState, alive: Mapping[BrokerId, Broker]) -> bool:
    """Whether nothing is to be done: asked of every partition at every death, so it is quick."""
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
    """The partition as it should be with only these brokers alive; the same one if it is so."""
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
