"""Rules of the requests of share groups (KIP-932)."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from zhumq.broker.rights.group_rules import on_heartbeat
from zhumq.broker.rights.rule import (
    Permitted,
    Rule,
    Subject,
    both,
    failure,
    on_group,
    on_items,
    refuse,
    with_fields,
)
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.share import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from zhumq.protocol.schema import Message
from zhumq.security.acl import Operation, ResourceType

_GROUP: Final = ResourceType.GROUP
_TOPIC: Final = ResourceType.TOPIC
_NONE: Final = -1


def _on_share() -> Rule:
    """The handler refuses topics: its sessions know partitions that the request does not name."""
    group = on_group(Operation.READ)
    return Rule(needs=(*group.needs, refuse(Operation.READ, _TOPIC)), check=group.check)


def _check_describe(
    subject: Subject, request: DescribeShareGroupOffsetsRequest
) -> Permitted | Message:
    refusals: list[DescribeShareGroupOffsetsResponseGroup] = []
    groups: list[Any] = []
    denied: dict[str, list[DescribeShareGroupOffsetsResponseTopic]] = {}
    for group in request.groups:
        if not subject.may(Operation.DESCRIBE, _GROUP, group.group_id):
            reason = failure(_GROUP)
            refusals.append(
                DescribeShareGroupOffsetsResponseGroup(
                    group_id=group.group_id, error_code=reason.code, error_message=str(reason)
                )
            )
            continue
        if group.topics is not None:
            permitted = []
            for topic in group.topics:
                if subject.may(Operation.DESCRIBE, _TOPIC, topic.topic_name):
                    permitted.append(topic)
                else:
                    denied.setdefault(group.group_id, []).append(_refused(topic))
            group = with_fields(group, topics=permitted)
        groups.append(group)
    if not groups:
        return DescribeShareGroupOffsetsResponse(groups=refusals)

    def finish(response: DescribeShareGroupOffsetsResponse) -> None:
        for group in response.groups:
            group.topics = [
                topic
                for topic in group.topics
                if subject.sees(Operation.DESCRIBE, _TOPIC, topic.topic_name)
            ]
            if not group.error_code:
                group.topics += denied.get(group.group_id, [])
        response.groups += refusals

    return Permitted(with_fields(request, groups=groups), finish)


def _refused(topic: Any) -> DescribeShareGroupOffsetsResponseTopic:
    reason = failure(_TOPIC)
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=_NONE,
                error_code=reason.code,
                error_message=str(reason),
            )
            for index in topic.partitions
        ],
    )


SHARE_RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: on_heartbeat(),
    ApiKey.SHARE_FETCH: _on_share(),
    ApiKey.SHARE_ACKNOWLEDGE: _on_share(),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Rule(
        needs=(refuse(Operation.DESCRIBE, _GROUP), refuse(Operation.DESCRIBE, _TOPIC)),
        check=_check_describe,
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: both(
        on_group(Operation.READ),
        on_items(
            Operation.READ,
            _TOPIC,
            of="topics",
            into="responses",
            response=AlterShareGroupOffsetsResponse,
            name=attrgetter("topic_name"),
            refused=lambda topic, code: AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                partitions=[
                    AlterShareGroupOffsetsResponsePartition(
                        partition_index=each.partition_index, error_code=code
                    )
                    for each in topic.partitions
                ],
            ),
        ),
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: both(
        on_group(Operation.DELETE),
        on_items(
            Operation.READ,
            _TOPIC,
            of="topics",
            into="responses",
            response=DeleteShareGroupOffsetsResponse,
            name=attrgetter("topic_name"),
            refused=lambda topic, code: DeleteShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, error_code=code
            ),
        ),
    ),
}
