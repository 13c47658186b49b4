"""ListGroups and ShareGroupDescribe, including groups of push subscriptions, which have no Kafka members."""

import asyncio
import uuid

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.coordinators.delivery_service import DeliveryService
from zhumq.coordinators.group_service import GroupService
from zhumq.coordinators.share_partition_delivery import SharePartitionDelivery
from zhumq.groups.group import GroupType
from zhumq.groups.requests import GroupRequest
from zhumq.groups.share import ASSIGNOR_NAME, ShareGroupState
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from zhumq.protocol.messages.share import (
    ShareGroupDescribeAssignment,
    ShareGroupDescribedGroup,
    ShareGroupDescribeMember,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupDescribeTopicPartitions,
)
from zhumq.share.subscription import SubscriptionMode


class ShareGroupsHandler:
    """Describes share groups of both kinds: of Kafka members that fetch, and of push consumers."""

    def __init__(self, deliveries: DeliveryService, groups: GroupService) -> None:
        self._deliveries = deliveries
        self._groups = groups

    def handlers(self) -> dict[ApiKey, Handler]:
        return {ApiKey.LIST_GROUPS: self.list_groups, ApiKey.SHARE_GROUP_DESCRIBE: self.describe}

    async def list_groups(
        self, context: RequestContext, request: ListGroupsRequest
    ) -> ListGroupsResponse:
        """The groups that this broker coordinates, and those whose claims it keeps."""
        answer = await self._groups.handle(GroupRequest(message=request, version=context.version))
        assert isinstance(answer, ListGroupsResponse)
        types = {each.lower() for each in request.types_filter}
        if answer.error_code != ErrorCode.NONE or (types and GroupType.SHARE not in types):
            return answer
        states = {each.lower() for each in request.states_filter}
        known = {group.group_id for group in answer.groups}
        try:
            claims = await self._deliveries.local_claims()
        except BrokerError as reason:
            # An incomplete list would look complete.
            return ListGroupsResponse(error_code=reason.code)
        shared = {claim.group for claim in claims if claim.mode is SubscriptionMode.PTP_SHARED}
        for group_id in sorted(shared - known):
            state = self._state(group_id)
            if not states or state.lower() in states:
                answer.groups.append(
                    ListedGroup(
                        group_id=group_id,
                        protocol_type=GroupType.SHARE,
                        group_state=state,
                        group_type=GroupType.SHARE,
                    )
                )
        return answer

    async def describe(
        self, context: RequestContext, request: ShareGroupDescribeRequest
    ) -> ShareGroupDescribeResponse:
        answer = await self._groups.handle(GroupRequest(message=request, version=context.version))
        assert isinstance(answer, ShareGroupDescribeResponse)
        answer.groups = [*await asyncio.gather(*map(self.found, answer.groups))]
        return answer

    async def found(self, group: ShareGroupDescribedGroup) -> ShareGroupDescribedGroup:
        """The group as its coordinator describes it, else as its push subscriptions do."""
        if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            return group
        try:
            claims = await self._deliveries.claims(group.group_id)
        except BrokerError as reason:
            group.error_code, group.error_message = reason.code, str(reason)
            return group
        if not any(claim.mode is SubscriptionMode.PTP_SHARED for claim in claims):
            return group
        return ShareGroupDescribedGroup(
            group_id=group.group_id,
            group_state=self._state(group.group_id),
            assignor_name=ASSIGNOR_NAME,
            members=self._members(group.group_id),
        )

    def _share_partitions(self, group_id: str) -> list[SharePartitionDelivery]:
        return [each for each in self._deliveries.opened() if each.group == group_id]

    def _state(self, group_id: str) -> str:
        """The state by the consumers that read through this broker."""
        is_read = any(
            share_partition.members for share_partition in self._share_partitions(group_id)
        )
        return ShareGroupState.STABLE if is_read else ShareGroupState.EMPTY

    def _members(self, group_id: str) -> list[ShareGroupDescribeMember]:
        read: dict[str, dict[tuple[str, uuid.UUID], list[int]]] = {}
        for share_partition in self._share_partitions(group_id):
            for name in share_partition.members:
                places = read.setdefault(name, {})
                places.setdefault((share_partition.topic, share_partition.key.topic_id), []).append(
                    share_partition.partition
                )
        return [
            ShareGroupDescribeMember(
                member_id=name,
                subscribed_topic_names=sorted(topic for topic, _ in places),
                assignment=ShareGroupDescribeAssignment(
                    topic_partitions=[
                        ShareGroupDescribeTopicPartitions(
                            topic_id=topic_id, topic_name=topic, partitions=sorted(partitions)
                        )
                        for (topic, topic_id), partitions in places.items()
                    ]
                ),
            )
            for name, places in read.items()
        ]
