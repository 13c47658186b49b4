"""AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.metadata.changes import Change
from zhumq.metadata.image import ClusterImage, PartitionState
from zhumq.metadata.leadership import (
    LogEnds,
    elect_preferred,
    elect_unclean,
    existing_partition,
)
from zhumq.metadata.reassignment import begin_move, cancel_move
from zhumq.model.cluster_errors import ElectionNotNeeded
from zhumq.model.errors import BrokerError, ErrorCode, InvalidReplicationFactor
from zhumq.model.ids import BrokerId, TopicPartition
from zhumq.model.replication_mode import Mode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    PartitionResult,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

AskLogEnds = Callable[[Sequence[TopicPartition]], Awaitable[LogEnds]]
Results = Mapping[TopicPartition, BrokerError | None]
# Elects the preferred leaders of raft partitions within a timeout in milliseconds; None: elected.
ElectByVotes = Callable[
    [Sequence[TopicPartition], int], Awaitable[dict[TopicPartition, BrokerError | None]]
]


class ElectionType(IntEnum):
    """The election types of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


class ReassignmentsHandler:
    """Writes reassignments and elections to the newest metadata; the controller carries them out."""

    def __init__(
        self,
        store: MetadataStore,
        metadata_client: MetadataClient,
        ask_log_ends: AskLogEnds,
        elect_by_votes: ElectByVotes,
    ) -> None:
        self._store = store
        self._metadata_client = metadata_client
        self._ask_log_ends = ask_log_ends
        self._elect_by_votes = elect_by_votes

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.alter_reassignments,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self.list_reassignments,
            ApiKey.ELECT_LEADERS: self.elect_leaders,
        }

    async def alter_reassignments(
        self, _context: RequestContext, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        plans: dict[TopicPartition, Callable[[ClusterImage], Change]] = {}
        for topic in request.topics:
            for asked in topic.partitions:
                name = TopicPartition(topic.name, asked.partition_index)
                target = None if asked.replicas is None else tuple(map(BrokerId, asked.replicas))
                plans[name] = partial(
                    _plan_move, name, target, request.allow_replication_factor_change
                )
        results = await self._metadata_client.change_partitions(plans)
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            responses=[
                ReassignableTopicResponse(
                    name=topic,
                    partitions=[
                        ReassignablePartitionResponse(
                            partition_index=index,
                            error_code=_code(reason),
                            error_message=_text(reason),
                        )
                        for index, reason in answers
                    ],
                )
                for topic, answers in _by_topic(results)
            ],
        )

    def list_reassignments(
        self, _context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        topics = self._store.image.topics
        if request.topics is None:
            asked: Iterable[tuple[str, Iterable[int]]] = (
                (name, range(len(topic.partitions))) for name, topic in topics.items()
            )
        else:
            asked = ((each.name, each.partition_indexes) for each in request.topics)
        response = ListPartitionReassignmentsResponse()
        for name, indexes in asked:
            moving = []
            for index in indexes:
                state = self._store.image.partition(TopicPartition(name, index))
                if state is not None and _is_moving(state):
                    moving.append(_ongoing(index, state))
            if moving:
                response.topics.append(OngoingTopicReassignment(name=name, partitions=moving))
        return response

    async def elect_leaders(
        self, _context: RequestContext, request: ElectLeadersRequest
    ) -> ElectLeadersResponse:
        if request.election_type not in tuple(ElectionType):
            return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
        image = self._store.image
        if request.topic_partitions is None:
            names = [
                TopicPartition(topic.name, index)
                for topic in image.topics.values()
                for index in range(len(topic.partitions))
            ]
        else:
            names = [
                TopicPartition(each.topic, index)
                for each in request.topic_partitions
                for index in each.partitions
            ]
        if request.election_type == ElectionType.PREFERRED:
            raft = [name for name in names if _is_raft(image, name)]
            by_votes = frozenset(raft)
            named = await self._metadata_client.change_partitions(
                {name: partial(_elect_preferred, name) for name in names if name not in by_votes}
            )
            # In raft mode the leader steps down, and the preferred replica wins the election.
            voted = await self._elect_by_votes(raft, request.timeout_ms)
            results = {name: voted[name] if name in voted else named[name] for name in names}
        else:
            known = [name for name in names if image.partition(name) is not None]
            ends = await self._ask_log_ends(known)
            results = await self._metadata_client.change_partitions(
                {name: partial(_elect_unclean, name, ends) for name in names}
            )
        if request.topic_partitions is None:
            # As in Kafka: a request for all partitions reports only those that needed an election.
            results = {
                name: reason
                for name, reason in results.items()
                if not isinstance(reason, ElectionNotNeeded)
            }
        return ElectLeadersResponse(
            replica_election_results=[
                ReplicaElectionResult(
                    topic=topic,
                    partition_result=[
                        PartitionResult(
                            partition_id=index,
                            error_code=_code(reason),
                            error_message=_text(reason),
                        )
                        for index, reason in answers
                    ],
                )
                for topic, answers in _by_topic(results)
            ]
        )


def _plan_move(
    name: TopicPartition,
    target: tuple[BrokerId, ...] | None,
    allow_replication_factor_change: bool,
    image: ClusterImage,
) -> Change:
    if target is None:
        return cancel_move(image, name)
    state = existing_partition(image, name)
    if not allow_replication_factor_change and len(target) != len(state.target_replicas):
        raise InvalidReplicationFactor(
            f"{name} has {len(state.target_replicas)} replicas, and the request names {len(target)}"
        )
    return begin_move(image, name, target)


def _elect_preferred(name: TopicPartition, image: ClusterImage) -> Change:
    return elect_preferred(image, name)


def _is_raft(image: ClusterImage, name: TopicPartition) -> bool:
    state = image.partition(name)
    return state is not None and state.mode is Mode.RAFT


def _elect_unclean(name: TopicPartition, ends: LogEnds, image: ClusterImage) -> Change:
    return elect_unclean(image, name, ends.get(name, {}))


def _is_moving(state: PartitionState) -> bool:
    return bool(state.adding or state.removing or state.planned_replicas)


def _ongoing(index: int, state: PartitionState) -> OngoingPartitionReassignment:
    if state.adding or state.removing:
        return OngoingPartitionReassignment(
            partition_index=index,
            replicas=list(state.replicas),
            adding_replicas=list(state.adding),
            removing_replicas=list(state.removing),
        )
    removing: list[int] = [each for each in state.replicas if each not in state.planned_replicas]
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=[*state.planned_replicas, *removing],
        adding_replicas=[each for each in state.planned_replicas if each not in state.replicas],
        removing_replicas=removing,
    )


def _by_topic(
    results: Results,
) -> list[tuple[str, list[tuple[int, BrokerError | None]]]]:
    grouped: dict[str, list[tuple[int, BrokerError | None]]] = {}
    for name, reason in results.items():
        grouped.setdefault(name.topic, []).append((name.partition, reason))
    return list(grouped.items())


def _code(reason: BrokerError | None) -> ErrorCode:
    return ErrorCode.NONE if reason is None else reason.code


def _text(reason: BrokerError | None) -> str | None:
    return None if reason is None else str(reason)
