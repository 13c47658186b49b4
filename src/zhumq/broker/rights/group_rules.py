"""Rules of the requests about groups and the offsets that they have committed."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from zhumq.broker.handlers.coordinators import CoordinatorKind
from zhumq.broker.rights.rule import (
    Need,
    Permitted,
    Rule,
    Subject,
    both,
    failure,
    may_all_topics,
    on_group,
    on_items,
    refuse,
    sees_all_topics,
    split,
    then,
    with_fields,
)
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.consumer_groups import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeResponse,
)
from zhumq.protocol.messages.groups import (
    Coordinator,
    DeletableGroupResult,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsResponse,
)
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from zhumq.protocol.messages.share import ShareGroupDescribedGroup, ShareGroupDescribeResponse
from zhumq.protocol.schema import Message
from zhumq.security.acl import CLUSTER_NAME, Operation, ResourceType

_CLUSTER: Final = ResourceType.CLUSTER
_GROUP: Final = ResourceType.GROUP
_TOPIC: Final = ResourceType.TOPIC
_GROUP_REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_FIRST_VERSION_WITH_KEYS: Final = 4
_FIRST_VERSION_WITH_GROUPS: Final = 8
_FIRST_VERSION_WITH_ERROR: Final = 2
_NONE: Final = -1


def _check_find_coordinator(
    subject: Subject, request: FindCoordinatorRequest
) -> Permitted | Message:
    def refusal(key: str) -> Coordinator | None:
        match request.key_type:
            case CoordinatorKind.GROUP:
                type_, operation, name = _GROUP, Operation.DESCRIBE, key
            case CoordinatorKind.TRANSACTION:
                type_, operation, name = ResourceType.TRANSACTIONAL_ID, Operation.DESCRIBE, key
            case _:
                type_, operation, name = _CLUSTER, Operation.CLUSTER_ACTION, CLUSTER_NAME
        if subject.may(operation, type_, name):
            return None
        reason = failure(type_)
        return Coordinator(
            key=key, node_id=_NONE, port=_NONE, error_code=reason.code, error_message=str(reason)
        )

    if subject.version >= _FIRST_VERSION_WITH_KEYS:
        return split(request, "coordinator_keys", "coordinators", FindCoordinatorResponse, refusal)
    refused = refusal(request.key)
    if refused is None:
        return Permitted(request)
    return FindCoordinatorResponse(
        error_code=refused.error_code,
        error_message=refused.error_message,
        node_id=refused.node_id,
        port=refused.port,
    )


def _check_list_groups(subject: Subject, request: Any) -> Permitted:
    if subject.sees(Operation.DESCRIBE, _CLUSTER, CLUSTER_NAME):
        return Permitted(request)

    def leave_out(response: ListGroupsResponse) -> None:
        response.groups = [
            group
            for group in response.groups
            if subject.sees(Operation.DESCRIBE, _GROUP, group.group_id)
        ]

    return Permitted(request, leave_out)


def _on_descriptions(*, of: str, response: Any, group: Any) -> Rule:
    """Describes groups: each with its authorized operations if asked for, and without topics that the
    subject may not describe."""
    described = on_items(
        Operation.DESCRIBE,
        _GROUP,
        of=of,
        into="groups",
        response=response,
        name=str,
        refused=lambda name, code: group(group_id=name, error_code=code),
    )

    def check(subject: Subject, request: Any) -> Permitted | Message:
        def finish(answered: Any) -> None:
            for each in answered.groups:
                if each.error_code:
                    continue
                if not sees_all_topics(subject, _topics_of(each)):
                    _refuse_description(each)
                elif request.include_authorized_operations:
                    each.authorized_operations = subject.operations(_GROUP, each.group_id)

        return then(described.check(subject, request), finish)

    return Rule(needs=described.needs, check=check)


def _topics_of(group: Any) -> Iterable[str]:
    if isinstance(group, DescribedGroup):
        return  # Its members say what they like: the broker does not read it.
    for member in group.members:
        assignments = [member.assignment, getattr(member, "target_assignment", None)]
        for assignment in assignments:
            for each in assignment.topic_partitions if assignment is not None else ():
                yield each.topic_name


def _refuse_description(group: Any) -> None:
    group.error_code = _TOPIC_REFUSED
    group.error_message = "the group has topics that this principal may not describe"
    group.members = []
    group.group_state = group.assignor_name = ""
    group.group_epoch = group.assignment_epoch = 0


def on_heartbeat() -> Rule:
    """A member of a group that the broker assigns partitions to: KIP-848, KIP-932."""
    group = on_group(Operation.READ)

    def check(subject: Subject, request: Any) -> Permitted | Message:
        names = request.subscribed_topic_names
        if names and not may_all_topics(subject, Operation.DESCRIBE, names):
            raise failure(_TOPIC)
        return Permitted(request)

    return both(group, Rule(needs=(refuse(Operation.DESCRIBE, _TOPIC),), check=check))


# Committed offsets


def _check_commit(subject: Subject, request: OffsetCommitRequest) -> Permitted | Message:
    def refused(topic: Any, code: ErrorCode) -> OffsetCommitResponseTopic:
        return OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ],
        )

    if not subject.may(Operation.READ, _GROUP, request.group_id):
        topics = [refused(each, _GROUP_REFUSED) for each in request.topics]
        return OffsetCommitResponse(topics=topics)
    return split(
        request,
        "topics",
        "topics",
        OffsetCommitResponse,
        lambda topic: (
            None if _may(subject, Operation.READ, topic) else refused(topic, _TOPIC_REFUSED)
        ),
    )


def _may(subject: Subject, operation: Operation, topic: Any) -> bool:
    """For a topic with a name or an id. The handler answers that an id is unknown."""
    name = topic.name or subject.topic_name(topic.topic_id)
    return name is None or subject.may(operation, _TOPIC, name)


def _check_offset_fetch(subject: Subject, request: OffsetFetchRequest) -> Permitted | Message:
    if subject.version < _FIRST_VERSION_WITH_GROUPS:
        return _check_fetch_of_one(subject, request)
    refusals: list[OffsetFetchResponseGroup] = []
    groups: list[Any] = []
    denied: dict[str, list[OffsetFetchResponseTopic]] = {}
    for group in request.groups:
        if not subject.may(Operation.DESCRIBE, _GROUP, group.group_id):
            refusals.append(
                OffsetFetchResponseGroup(group_id=group.group_id, error_code=_GROUP_REFUSED)
            )
            continue
        if group.topics is not None:
            permitted = []
            for topic in group.topics:
                if _may(subject, Operation.DESCRIBE, topic):
                    permitted.append(topic)
                else:
                    denied.setdefault(group.group_id, []).append(
                        _refused_offsets(topic, _TOPIC_REFUSED)
                    )
            group = with_fields(group, topics=permitted)
        groups.append(group)
    if not groups:
        return OffsetFetchResponse(groups=refusals)

    def finish(response: OffsetFetchResponse) -> None:
        for group in response.groups:
            group.topics = [each for each in group.topics if _sees(subject, each)]
            if not group.error_code:
                group.topics += denied.get(group.group_id, [])
        response.groups += refusals

    return Permitted(with_fields(request, groups=groups), finish)


def _sees(subject: Subject, topic: Any) -> bool:
    name = topic.name or subject.topic_name(topic.topic_id)
    return name is None or subject.sees(Operation.DESCRIBE, _TOPIC, name)


def _refused_offsets(topic: Any, code: ErrorCode) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index, committed_offset=_NONE, error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _check_fetch_of_one(subject: Subject, request: OffsetFetchRequest) -> Permitted | Message:
    """Up to version 7: one group."""
    if not subject.may(Operation.DESCRIBE, _GROUP, request.group_id):
        # The first version has no error for the group.
        old = subject.version < _FIRST_VERSION_WITH_ERROR
        topics = [_refused_offsets(each, _GROUP_REFUSED) for each in request.topics or () if old]
        return OffsetFetchResponse(error_code=_GROUP_REFUSED, topics=topics)
    if request.topics is None:

        def leave_out(response: OffsetFetchResponse) -> None:
            response.topics = [
                each
                for each in response.topics
                if subject.sees(Operation.DESCRIBE, _TOPIC, each.name)
            ]

        return Permitted(request, leave_out)
    return split(
        request,
        "topics",
        "topics",
        OffsetFetchResponse,
        lambda topic: (
            None
            if subject.may(Operation.DESCRIBE, _TOPIC, topic.name)
            else _refused_offsets(topic, _TOPIC_REFUSED)
        ),
    )


GROUP_RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.FIND_COORDINATOR: Rule(
        needs=(
            refuse(Operation.DESCRIBE, _GROUP),
            refuse(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
        ),
        check=_check_find_coordinator,
    ),
    ApiKey.JOIN_GROUP: on_group(Operation.READ),
    ApiKey.SYNC_GROUP: on_group(Operation.READ),
    ApiKey.HEARTBEAT: on_group(Operation.READ),
    ApiKey.LEAVE_GROUP: on_group(Operation.READ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: on_heartbeat(),
    ApiKey.DESCRIBE_GROUPS: _on_descriptions(
        of="groups", response=DescribeGroupsResponse, group=DescribedGroup
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _on_descriptions(
        of="group_ids", response=ConsumerGroupDescribeResponse, group=ConsumerGroupDescribedGroup
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: _on_descriptions(
        of="group_ids", response=ShareGroupDescribeResponse, group=ShareGroupDescribedGroup
    ),
    ApiKey.LIST_GROUPS: Rule(
        needs=(
            Need(Operation.DESCRIBE, _GROUP, "left out"),
            Need(Operation.DESCRIBE, _CLUSTER, "instead of rights to groups"),
        ),
        check=_check_list_groups,
    ),
    ApiKey.DELETE_GROUPS: on_items(
        Operation.DELETE,
        _GROUP,
        of="groups_names",
        into="results",
        response=DeleteGroupsResponse,
        name=str,
        refused=lambda name, code: DeletableGroupResult(group_id=name, error_code=code),
    ),
    ApiKey.OFFSET_COMMIT: Rule(
        needs=(refuse(Operation.READ, _GROUP), refuse(Operation.READ, _TOPIC)),
        check=_check_commit,
    ),
    ApiKey.OFFSET_FETCH: Rule(
        needs=(
            refuse(Operation.DESCRIBE, _GROUP),
            Need(Operation.DESCRIBE, _TOPIC, f"{_TOPIC_REFUSED.name}; left out of all topics"),
        ),
        check=_check_offset_fetch,
    ),
    ApiKey.OFFSET_DELETE: both(
        on_group(Operation.DELETE),
        on_items(
            Operation.READ,
            _TOPIC,
            of="topics",
            into="topics",
            response=OffsetDeleteResponse,
            refused=lambda topic, code: OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            ),
        ),
    ),
}
