"""Offsets of share groups: describe, alter, delete; and the deletion of groups of any type."""

import asyncio
from collections.abc import Iterable, Sequence

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.broker.handlers.share_groups import ShareGroupsHandler
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.delivery_service import DeliveryService, topic_of
from zhumq.coordinators.group_service import GroupService
from zhumq.groups.requests import GroupRequest
from zhumq.groups.share import ShareGroupState
from zhumq.metadata.image import Topic
from zhumq.model.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    GroupIdNotFound,
    NonEmptyGroup,
    NotCoordinator,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.delivery_state import DescribedSharePartition
from zhumq.protocol.messages.groups import DeleteGroupsRequest, DeleteGroupsResponse
from zhumq.protocol.messages.share import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from zhumq.replication.replica_manager import ReplicaManager

_NO_OFFSET = -1
_UNKNOWN_LAG = -1


class ShareOffsetsHandler:
    """Describes, alters and deletes start offsets of share groups."""

    def __init__(
        self,
        deliveries: DeliveryService,
        groups: GroupService,
        store: MetadataStore,
        replicas: ReplicaManager,
        share_groups: ShareGroupsHandler,
    ) -> None:
        self._deliveries = deliveries
        self._groups = groups
        self._store = store
        self._replicas = replicas
        self._share_groups = share_groups

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: self.describe,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS: self.alter,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: self.delete,
            ApiKey.DELETE_GROUPS: self.delete_groups,
        }

    # Describe

    async def describe(
        self, _context: RequestContext, request: DescribeShareGroupOffsetsRequest
    ) -> DescribeShareGroupOffsetsResponse:
        groups = await asyncio.gather(*(self._describe(group) for group in request.groups))
        return DescribeShareGroupOffsetsResponse(groups=list(groups))

    async def _describe(
        self, asked: DescribeShareGroupOffsetsRequestGroup
    ) -> DescribeShareGroupOffsetsResponseGroup:
        response = DescribeShareGroupOffsetsResponseGroup(group_id=asked.group_id)
        try:
            share_partitions = await self._deliveries.share_partitions_of(asked.group_id)
            if not share_partitions:
                await self._state_of(asked.group_id)
        except BrokerError as reason:
            response.error_code, response.error_message = reason.code, str(reason)
            return response
        known = {
            (share_partition.topic_id, share_partition.partition): share_partition
            for share_partition in share_partitions
        }
        if asked.topics is None:
            response.topics = list(self._all_topics(asked.group_id, share_partitions))
            return response
        for topic in asked.topics:
            present = self._store.image.topics.get(topic.topic_name)
            answer = DescribeShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
            response.topics.append(answer)
            for index in topic.partitions:
                if present is None or not 0 <= index < len(present.partitions):
                    answer.partitions.append(
                        DescribeShareGroupOffsetsResponsePartition(
                            partition_index=index,
                            start_offset=_NO_OFFSET,
                            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                            error_message=f"there is no partition {topic.topic_name}-{index}",
                        )
                    )
                    continue
                answer.topic_id = present.topic_id
                share_partition = known.get((present.topic_id, index))
                answer.partitions.append(
                    DescribeShareGroupOffsetsResponsePartition(
                        partition_index=index, start_offset=_NO_OFFSET
                    )
                    if share_partition is None
                    else self._described(asked.group_id, topic.topic_name, share_partition)
                )
        return response

    def _all_topics(
        self, group_id: str, share_partitions: Iterable[DescribedSharePartition]
    ) -> Iterable[DescribeShareGroupOffsetsResponseTopic]:
        by_topic: dict[str, DescribeShareGroupOffsetsResponseTopic] = {}
        for share_partition in share_partitions:
            topic = self._store.image.topics_by_id.get(share_partition.topic_id)
            if topic is None:
                continue
            answer = by_topic.setdefault(
                topic.name,
                DescribeShareGroupOffsetsResponseTopic(
                    topic_name=topic.name, topic_id=topic.topic_id
                ),
            )
            answer.partitions.append(self._described(group_id, topic.name, share_partition))
        return by_topic.values()

    def _described(
        self, group_id: str, topic: str, share_partition: DescribedSharePartition
    ) -> DescribeShareGroupOffsetsResponsePartition:
        delivery = self._deliveries.find(group_id, topic, share_partition.partition)
        served = self._replicas.find(topic, share_partition.partition)
        lag = _UNKNOWN_LAG
        if delivery is not None:
            lag = delivery.lag
        elif served is not None:
            lag = max(
                served.high_watermark - share_partition.start_offset - share_partition.done_count, 0
            )
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=share_partition.partition,
            start_offset=share_partition.start_offset,
            leader_epoch=max(share_partition.leader_epoch, 0),
            lag=lag,
        )

    # Alter, delete

    async def alter(
        self, _context: RequestContext, request: AlterShareGroupOffsetsRequest
    ) -> AlterShareGroupOffsetsResponse:
        response = AlterShareGroupOffsetsResponse()
        try:
            await self._check_empty(request.group_id)
        except BrokerError as reason:
            response.error_code, response.error_message = reason.code, str(reason)
            return response
        for asked in request.topics:
            response.responses.append(await self._alter(request.group_id, asked))
        return response

    async def _alter(
        self, group_id: str, asked: AlterShareGroupOffsetsRequestTopic
    ) -> AlterShareGroupOffsetsResponseTopic:
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
        for partition in asked.partitions:
            index = partition.partition_index
            code, why = ErrorCode.NONE, None
            try:
                topic = self._topic_with(asked.topic_name, index)
                answer.topic_id = topic.topic_id
                if partition.start_offset < 0:
                    raise OffsetOutOfRange(f"offset {partition.start_offset} is negative")
                await self._deliveries.reset(group_id, topic, index, partition.start_offset)
            except BrokerError as reason:
                code, why = reason.code, str(reason)
            answer.partitions.append(
                AlterShareGroupOffsetsResponsePartition(
                    partition_index=index, error_code=code, error_message=why
                )
            )
        return answer

    async def delete(
        self, _context: RequestContext, request: DeleteShareGroupOffsetsRequest
    ) -> DeleteShareGroupOffsetsResponse:
        response = DeleteShareGroupOffsetsResponse()
        try:
            await self._check_empty(request.group_id)
        except BrokerError as reason:
            response.error_code, response.error_message = reason.code, str(reason)
            return response
        for asked in request.topics:
            answer = DeleteShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
            response.responses.append(answer)
            try:
                topic = topic_of(self._store, asked.topic_name)
                answer.topic_id = topic.topic_id
                await self._deliveries.delete(request.group_id, [topic])
            except BrokerError as reason:
                answer.error_code, answer.error_message = reason.code, str(reason)
        return response

    async def delete_groups(
        self, context: RequestContext, request: DeleteGroupsRequest
    ) -> DeleteGroupsResponse:
        """Delete groups of any type, and the delivery state of each."""
        answer = await self._groups.handle(GroupRequest(message=request, version=context.version))
        assert isinstance(answer, DeleteGroupsResponse)
        for result in answer.results:
            try:
                if result.error_code == ErrorCode.NONE:
                    await self._forget(result.group_id)
                elif result.error_code == ErrorCode.GROUP_ID_NOT_FOUND and await self._forget(
                    result.group_id
                ):
                    # The group coordinator does not know push groups, which have no Kafka members.
                    result.error_code = ErrorCode.NONE
            except BrokerError as reason:
                result.error_code = reason.code
        return answer

    async def _forget(self, group_id: str) -> bool:
        """Delete the delivery state of a group. Returns whether there was any."""
        share_partitions: Sequence[
            DescribedSharePartition
        ] = await self._deliveries.share_partitions_of(group_id)
        if any(
            (topic := self._store.image.topics_by_id.get(share_partition.topic_id)) is not None
            and (delivery := self._deliveries.find(group_id, topic.name, share_partition.partition))
            is not None
            and delivery.members
            for share_partition in share_partitions
        ):
            raise NonEmptyGroup(f"group {group_id!r} has consumers")
        claims = await self._deliveries.claims(group_id)
        if share_partitions or claims:
            await self._deliveries.delete(group_id)
        return bool(share_partitions or claims)

    async def _check_empty(self, group_id: str) -> None:
        if await self._state_of(group_id) != ShareGroupState.EMPTY:
            raise NonEmptyGroup(f"share group {group_id!r} has members")

    async def _state_of(self, group_id: str) -> str:
        """The state of a share group. Raises GroupIdNotFound, or what its coordinator answers."""
        request = ShareGroupDescribeRequest(group_ids=[group_id])
        answer = await self._groups.handle(GroupRequest(message=request, version=1))
        assert isinstance(answer, ShareGroupDescribeResponse)
        group = await self._share_groups.found(answer.groups[0])
        if group.error_code != ErrorCode.NONE:
            raise _refusal(group.error_code, group.error_message or f"group {group_id!r}")
        return group.group_state

    def _topic_with(self, name: str, partition: int) -> Topic:
        topic = topic_of(self._store, name)
        if not 0 <= partition < len(topic.partitions):
            raise UnknownTopicOrPartition(f"there is no partition {name}-{partition}")
        return topic


def _refusal(code: int, why: str) -> BrokerError:
    match code:
        case ErrorCode.GROUP_ID_NOT_FOUND:
            return GroupIdNotFound(why)
        case ErrorCode.NOT_COORDINATOR:
            return NotCoordinator(why)
        case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return CoordinatorLoadInProgress(why)
        case _:
            return CoordinatorNotAvailable(why)
