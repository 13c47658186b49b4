"""The group coordinator as the broker's handlers see it: any group request in, its response out."""

import asyncio
import copy
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar, assert_never

from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.groups.requests import (
    GroupRequest,
    GroupResponse,
    TopicsDeletedRequest,
    TopicsDeletedResponse,
)
from zhumq.groups.topic_names import (
    TopicNames,
    name_commit,
    name_fetch,
    split_commit,
    unname_fetch,
)
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from zhumq.model.state_machine import Producer
from zhumq.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
)
from zhumq.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from zhumq.protocol.messages.share import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
)
from zhumq.protocol.messages.transactions import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from zhumq.security.acl import ResourceType, operation_bits

GROUP_OPERATIONS = operation_bits(ResourceType.GROUP)  # without an authorizer: all of them
GROUP_IDS_REMEMBERED_MAX = 4_096  # size of the cache of computed partitions
# KIP-890: of TxnOffsetCommit.
ABORTABLE_ERROR_SINCE_VERSION: Final = 4
ADDS_PARTITION_SINCE_VERSION: Final = 5

Answer = TypeVar("Answer")
Description = TypeVar(
    "Description",
    DescribeGroupsResponse,
    ConsumerGroupDescribeResponse,
    ShareGroupDescribeResponse,
)
ManyGroupsRequest = (
    DescribeGroupsRequest
    | ConsumerGroupDescribeRequest
    | ShareGroupDescribeRequest
    | DeleteGroupsRequest
)


class TransactionVerifier(Protocol):
    """The way to the transaction coordinators."""

    async def join(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        adds: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Partitions join the transaction of a producer; or, unless it `adds`, are verified to be in it (KIP-890).

        Returns the errors of those that are not in it. TRANSACTION_ABORTABLE: the coordinator does not
        have the partition in the transaction.
        """


class GroupService:
    """Routes group requests to the shards of `__consumer_offsets`, and fans out those for many groups."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupRequest, GroupResponse],
        *,
        partition_count: Callable[[], int],
        topics: TopicNames,
        verifier: TransactionVerifier | None = None,
    ) -> None:
        self._runtime = runtime
        # Groups map to partitions by it: the count of the existing topic, or of the one to be created.
        self._partition_count = partition_count
        self._topics = topics
        self._verifier = verifier  # None: no transaction is confirmed

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` whose leader coordinates this group."""
        return partition_for(group_id, self._partition_count())

    async def handle(self, request: GroupRequest) -> GroupResponse:
        """Answer any group request."""
        message = request.message
        match message:
            case (
                JoinGroupRequest()
                | SyncGroupRequest()
                | HeartbeatRequest()
                | LeaveGroupRequest()
                | ConsumerGroupHeartbeatRequest()
                | ShareGroupHeartbeatRequest()
                | OffsetDeleteRequest()
            ):
                return await self.submit(message.group_id, request)
            case OffsetCommitRequest():
                return await self._commit(message, request)
            case TxnOffsetCommitRequest():
                return await self._commit_in_transaction(message, request)
            case OffsetFetchRequest():
                return await self._fetch(message, request)
            case DescribeGroupsRequest():
                return await self._describe(
                    message.groups,
                    request,
                    DescribeGroupsResponse,
                    lambda group_ids: DescribeGroupsRequest(groups=group_ids),
                    with_operations=message.include_authorized_operations,
                )
            case ConsumerGroupDescribeRequest():
                return await self._describe(
                    message.group_ids,
                    request,
                    ConsumerGroupDescribeResponse,
                    lambda group_ids: ConsumerGroupDescribeRequest(group_ids=group_ids),
                    with_operations=message.include_authorized_operations,
                )
            case ShareGroupDescribeRequest():
                return await self._describe(
                    message.group_ids,
                    request,
                    ShareGroupDescribeResponse,
                    lambda group_ids: ShareGroupDescribeRequest(group_ids=group_ids),
                    with_operations=message.include_authorized_operations,
                )
            case ListGroupsRequest():
                return await self._list(request)
            case DeleteGroupsRequest():
                return await self._delete(message, request)
            case TopicsDeletedRequest():
                return await self._topics_deleted(request)
            case _:
                assert_never(message)

    def submit(self, group_id: str, request: GroupRequest) -> "asyncio.Future[GroupResponse]":
        """Pass a request about one group, with topics by name, to the group's shard."""
        return self._runtime.submit(self.partition_for(group_id), request)

    async def topics_deleted(self, names: Iterable[str]) -> int:
        """Delete the committed offsets of deleted topics; returns how many there were."""
        request = GroupRequest(message=TopicsDeletedRequest(names=tuple(names)), version=0)
        return (await self._topics_deleted(request)).offsets_deleted

    # Offsets

    async def _commit(
        self, message: OffsetCommitRequest, request: GroupRequest
    ) -> OffsetCommitResponse:
        named = name_commit(message, request.version, self._topics)
        if not named.message.topics and named.refused:
            return OffsetCommitResponse(topics=named.refused)
        response = await self.submit(message.group_id, replace(request, message=named.message))
        committed = _expect(OffsetCommitResponse, response)
        committed.topics.extend(named.refused)
        return committed

    async def _commit_in_transaction(
        self, message: TxnOffsetCommitRequest, request: GroupRequest
    ) -> TxnOffsetCommitResponse:
        split = split_commit(message.topics, self._topics)
        if not split.existing:
            return TxnOffsetCommitResponse(topics=split.refused)
        index = self.partition_for(message.group_id)
        producer = Producer(message.producer_id, message.producer_epoch)
        adds = request.version >= ADDS_PARTITION_SINCE_VERSION

        async def verify() -> ErrorCode:
            if self._verifier is None:
                return ErrorCode.INVALID_TXN_STATE
            partition = TopicPartition(CONSUMER_OFFSETS_TOPIC, index)
            codes = await self._verifier.join(
                message.transactional_id,
                message.producer_id,
                message.producer_epoch,
                [partition],
                adds=adds,
            )
            return _code_for_producer(codes.get(partition, ErrorCode.NONE), request.version)

        named = copy.copy(message)
        named.topics = split.existing
        request = replace(request, message=named)
        if message.group_id:
            response = await self._runtime.submit_in_transaction(
                index, request, producer, verify, has_own_epoch=adds
            )
        else:  # The shard refuses it, whatever the coordinator says.
            response = await self._runtime.submit(index, request)
        committed = _expect(TxnOffsetCommitResponse, response)
        committed.topics.extend(split.refused)
        return committed

    async def _fetch(
        self, message: OffsetFetchRequest, request: GroupRequest
    ) -> OffsetFetchResponse:
        asked = name_fetch(message, request.version, self._topics)
        by_shard: dict[int, list[OffsetFetchRequestGroup]] = {}
        for group in asked:
            by_shard.setdefault(self.partition_for(group.group_id), []).append(group)
        responses = await asyncio.gather(
            *(
                self._runtime.submit(
                    index,
                    replace(
                        request,
                        message=OffsetFetchRequest(
                            groups=groups, require_stable=message.require_stable
                        ),
                    ),
                )
                for index, groups in by_shard.items()
            )
        )
        # A shard answers groups in request order, also if a group is in the request twice.
        found = {
            index: iter(_expect(OffsetFetchResponse, response).groups)
            for index, response in zip(by_shard, responses, strict=True)
        }
        answered = [next(found[self.partition_for(group.group_id)]) for group in asked]
        return unname_fetch(message, answered, request.version, self._topics)

    async def _topics_deleted(self, request: GroupRequest) -> TopicsDeletedResponse:
        responses = await self._ask_all(request)
        return TopicsDeletedResponse(
            offsets_deleted=sum(
                _expect(TopicsDeletedResponse, response).offsets_deleted for response in responses
            )
        )

    # Many groups

    async def _describe(
        self,
        group_ids: Sequence[str],
        request: GroupRequest,
        kind: type[Description],
        ask: Callable[[list[str]], ManyGroupsRequest],
        *,
        with_operations: bool,
    ) -> Description:
        """The groups as their shards describe them, in the order of the request, with repetitions."""
        responses = await self._ask_shards_of(group_ids, request, ask)
        found = {
            group.group_id: group
            for response in responses
            for group in _expect(kind, response).groups
        }
        if with_operations:
            for group in found.values():
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        return kind(groups=[found[group_id] for group_id in group_ids])

    async def _delete(
        self, message: DeleteGroupsRequest, request: GroupRequest
    ) -> DeleteGroupsResponse:
        group_ids = list(dict.fromkeys(message.groups_names))
        responses = await self._ask_shards_of(
            group_ids, request, lambda groups: DeleteGroupsRequest(groups_names=groups)
        )
        found = {
            result.group_id: result
            for response in responses
            for result in _expect(DeleteGroupsResponse, response).results
        }
        return DeleteGroupsResponse(results=[found[group_id] for group_id in group_ids])

    async def _list(self, request: GroupRequest) -> ListGroupsResponse:
        listed = ListGroupsResponse()
        for response in await self._ask_all(request):
            of_shard = _expect(ListGroupsResponse, response)
            if of_shard.error_code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                # A client would take a partial list for the whole.
                return ListGroupsResponse(error_code=of_shard.error_code)
            listed.groups.extend(of_shard.groups)
        return listed

    async def _ask_all(self, request: GroupRequest) -> list[GroupResponse]:
        return await asyncio.gather(
            *(self._runtime.submit(index, request) for index in self._runtime.led)
        )

    async def _ask_shards_of(
        self,
        group_ids: Iterable[str],
        request: GroupRequest,
        ask: Callable[[list[str]], ManyGroupsRequest],
    ) -> list[GroupResponse]:
        by_shard: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(group_ids):
            by_shard.setdefault(self.partition_for(group_id), []).append(group_id)
        return await asyncio.gather(
            *(
                self._runtime.submit(index, replace(request, message=ask(groups)))
                for index, groups in by_shard.items()
            )
        )


@functools.lru_cache(maxsize=GROUP_IDS_REMEMBERED_MAX)
def partition_for(group_id: str, partition_count: int) -> int:
    """The group's partition, computed as in Kafka from Java's String.hashCode."""
    code = 0
    encoded = group_id.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        unit = encoded[position] << 8 | encoded[position + 1]
        code = (31 * code + unit) & 0xFFFF_FFFF
    if code & 0x8000_0000:
        code -= 1 << 32
    # As in Kafka: the one value without an absolute value in an int maps to 0.
    return 0 if code == -(1 << 31) else abs(code) % partition_count


def _code_for_producer(code: ErrorCode, version: int) -> ErrorCode:
    """The error of a verification, as a producer of this version of TxnOffsetCommit understands it."""
    match code:
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.TRANSACTION_ABORTABLE if version < ABORTABLE_ERROR_SINCE_VERSION:
            return ErrorCode.INVALID_TXN_STATE
        case (
            ErrorCode.COORDINATOR_NOT_AVAILABLE
            | ErrorCode.NOT_COORDINATOR
            | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        ):
            # Of the transaction's coordinator: the producer has to wait, and need not look for the group's.
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        case _:
            return code


def _expect(expected: type[Answer], response: GroupResponse) -> Answer:
    """The response, checked to be of the expected type."""
    assert isinstance(response, expected)
    return response
