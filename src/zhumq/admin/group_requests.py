"""What a group's coordinator is asked: who its members are, what it has committed, to change that, to forget it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.coordinators import CoordinatorKind, ask_coordinator, ask_coordinators, check
from zhumq.admin.errors import AdminError, error_of
from zhumq.admin.leaders import Leader
from zhumq.model.errors import ErrorCode, MalformedFrame
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.consumer_groups import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeRequest,
)
from zhumq.protocol.messages.coordinator_records import (
    ConsumerProtocolAssignment,
    decode_versioned,
)
from zhumq.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribedGroup,
    DescribeGroupsRequest,
)
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)

_BY_TOPIC_NAME: Final = 9  # the last version of OffsetFetch and OffsetCommit before topic ids
_CONSUMERS: Final = (
    "consumer"  # the protocol type of consumers; others write assignments of their own
)

Place = tuple[str, int]  # topic and partition


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member and the partitions that it was given."""

    member: str
    client: str
    host: str
    static_id: str | None
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A group as its coordinator knows it."""

    state: str | None  # None: it knows no such group
    assignor: str
    coordinator: int
    members: tuple[DescribedMember, ...]


def describe(
    connection: ClusterConnection, groups: Iterable[str]
) -> dict[str, Description | AdminError]:
    """Groups of the consumer protocol (KIP-848) or of the classic one, each with why it cannot be described."""

    def ask_new(coordinator: Leader, names: list[str]) -> dict[str, ConsumerGroupDescribedGroup]:
        request = ConsumerGroupDescribeRequest(group_ids=names)
        answer = _answer(connection, coordinator, ApiKey.CONSUMER_GROUP_DESCRIBE, request)
        return {each.group_id: each for each in answer.groups}

    def ask_classic(coordinator: Leader, names: list[str]) -> dict[str, DescribedGroup]:
        request = DescribeGroupsRequest(groups=names)
        answer = _answer(connection, coordinator, ApiKey.DESCRIBE_GROUPS, request)
        return {each.group_id: each for each in answer.groups}

    found: dict[str, Description | AdminError] = {}
    others: list[str] = []
    for name, new in ask_coordinators(connection, CoordinatorKind.GROUP, groups, ask_new).items():
        if isinstance(new, AdminError):
            found[name] = new
        elif new[1].error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            others.append(name)
        else:
            at, group = new
            found[name] = _refusal(f"describe group {name!r}", group.error_code) or _described_new(
                group, at
            )
    answers = ask_coordinators(connection, CoordinatorKind.GROUP, others, ask_classic)
    for name, classic in answers.items():
        if isinstance(classic, AdminError):
            found[name] = classic
        elif classic[1].error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            at = classic[0]
            found[name] = Description(state=None, assignor="", coordinator=at.broker, members=())
        else:
            at, old = classic
            found[name] = _refusal(f"describe group {name!r}", old.error_code) or (
                _described_classic(old, at)
            )
    return found


def fetch_offsets(
    connection: ClusterConnection, groups: Iterable[str]
) -> dict[str, dict[Place, int] | AdminError]:
    """The committed offsets of groups, each with why they cannot be read."""

    def ask(coordinator: Leader, names: list[str]) -> dict[str, OffsetFetchResponseGroup]:
        asked = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
        request = OffsetFetchRequest(groups=asked)
        answer = _answer(
            connection, coordinator, ApiKey.OFFSET_FETCH, request, version=_BY_TOPIC_NAME
        )
        return {each.group_id: each for each in answer.groups}

    found: dict[str, dict[Place, int] | AdminError] = {}
    for name, answer in ask_coordinators(connection, CoordinatorKind.GROUP, groups, ask).items():
        if isinstance(answer, AdminError):
            found[name] = answer
            continue
        _, group = answer
        found[name] = _refusal(f"read the offsets of {name!r}", group.error_code) or {
            (topic.name, each.partition_index): each.committed_offset
            for topic in group.topics
            for each in topic.partitions
            if each.committed_offset >= 0
        }
    return found


def commit_offsets(
    connection: ClusterConnection, group: str, topic: str, offsets: Mapping[int, int]
) -> None:
    """Set the offsets of a group without members."""
    parts = [
        OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        for partition, offset in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=parts)]
    )

    def ask(coordinator: Leader) -> dict[int, int]:
        (found,) = _answer(
            connection, coordinator, ApiKey.OFFSET_COMMIT, request, version=_BY_TOPIC_NAME
        ).topics
        return {each.partition_index: each.error_code for each in found.partitions}

    _, codes = ask_coordinator(
        connection,
        CoordinatorKind.GROUP,
        group,
        ask,
        code_of=lambda codes: next(filter(None, codes.values()), ErrorCode.NONE),
        may_repeat=True,
    )
    for partition, code in codes.items():
        check(f"reset {group!r} in {topic} partition {partition}", code)


def delete_in_topic(
    connection: ClusterConnection, group: str, topic: str, partitions: Sequence[int]
) -> None:
    """Delete the offsets of a group in partitions of a topic that no member reads."""
    parts = [OffsetDeleteRequestPartition(partition_index=each) for each in partitions]
    request = OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=parts)]
    )

    def ask(coordinator: Leader) -> OffsetDeleteResponse:
        answer: OffsetDeleteResponse = _answer(
            connection, coordinator, ApiKey.OFFSET_DELETE, request
        )
        return answer

    _, answer = ask_coordinator(
        connection, CoordinatorKind.GROUP, group, ask, code_of=_code_of_deletion, may_repeat=True
    )
    check(f"delete the offsets of {group!r} in {topic}", _code_of_deletion(answer))


def _code_of_deletion(answer: OffsetDeleteResponse) -> int:
    codes = [each.error_code for topic in answer.topics for each in topic.partitions]
    return next(filter(None, [answer.error_code, *codes]), ErrorCode.NONE)


def delete(connection: ClusterConnection, group: str) -> None:
    """Delete a group with its offsets."""

    def ask(coordinator: Leader) -> Any:
        request = DeleteGroupsRequest(groups_names=[group])
        (found,) = _answer(connection, coordinator, ApiKey.DELETE_GROUPS, request).results
        return found

    _, answer = ask_coordinator(connection, CoordinatorKind.GROUP, group, ask)
    check(f"delete group {group!r}", answer.error_code)


def _refusal(doing: str, code: int) -> AdminError | None:
    return error_of(doing, KafkaError(code)) if code != ErrorCode.NONE else None


def _answer(
    connection: ClusterConnection,
    coordinator: Leader,
    key: ApiKey,
    request: Any,
    version: int | None = None,
) -> Any:
    return connection.request(key, request, address=coordinator.address, version=version)


def _described_new(found: ConsumerGroupDescribedGroup, at: Leader) -> Description:
    members = [
        DescribedMember(
            member=each.member_id,
            client=each.client_id,
            host=each.client_host,
            static_id=each.instance_id,
            places=_places(
                (part.topic_name, part.partitions) for part in each.assignment.topic_partitions
            ),
        )
        for each in found.members
    ]
    return Description(
        state=found.group_state,
        assignor=found.assignor_name,
        coordinator=at.broker,
        members=tuple(members),
    )


def _described_classic(found: DescribedGroup, at: Leader) -> Description:
    members = [
        DescribedMember(
            member=each.member_id,
            client=each.client_id,
            host=each.client_host,
            static_id=each.group_instance_id,
            places=_assigned(each.member_assignment) if found.protocol_type == _CONSUMERS else (),
        )
        for each in found.members
    ]
    return Description(
        state=found.group_state,
        assignor=found.protocol_data,
        coordinator=at.broker,
        members=tuple(members),
    )


def _assigned(assignment: bytes) -> tuple[Place, ...]:
    """The partitions of an assignment as consumers write it. None before the leader has assigned any."""
    if not assignment:
        return ()
    try:
        _, found = decode_versioned(ConsumerProtocolAssignment, assignment)
    except MalformedFrame:
        return ()  # The member's own affair: the broker does not look into it either.
    return _places((each.topic, each.partitions) for each in found.assigned_partitions)


def _places(topics: Iterable[tuple[str, list[int]]]) -> tuple[Place, ...]:
    return tuple((topic, partition) for topic, partitions in topics for partition in partitions)
