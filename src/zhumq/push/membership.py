"""A push consumer's membership in its consumer group (KIP-848), which the broker maintains for it."""

import asyncio
import logging
import uuid
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from zhumq.groups.requests import GroupRequest, GroupResponse
from zhumq.model.errors import RETRIABLE_CODES, BrokerError, ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.protocol.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicIdPartitions,
)
from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.frames import Refusal

logger = logging.getLogger(__name__)

_HEARTBEAT_VERSION: Final = 1
_JOINING: Final = 0
_LEAVING: Final = -1
_REBALANCE_TIMEOUT_MS: Final = 60_000
_RETRY_SECONDS: Final = 0.2
# The member is fenced or unknown: it loses its partitions and joins again.
_FENCED: Final = frozenset(
    {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNRELEASED_INSTANCE_ID}
)


class GroupCalls(Protocol):
    """The group coordinator, on this broker or another."""

    async def ensure(self) -> None:
        """Wait until the coordinator takes requests. Raises BrokerError."""

    async def handle(self, group_id: str, request: GroupRequest) -> GroupResponse:
        """Raises BrokerError where the coordinator cannot be reached."""


class Assignee(Protocol):
    """The stream that the partitions are assigned to."""

    async def assign(self, places: frozenset[TopicPartition], member: str, epoch: int) -> None:
        """Deliver these partitions from now on, under this member epoch."""

    async def revoke(self, places: frozenset[TopicPartition]) -> None:
        """Give up these partitions: wait until the consumer has finished with them or the time is over."""

    async def lose(self) -> None:
        """Give up all partitions at once: the group may have assigned them to other members."""


class Membership:
    """One member: joins, heartbeats, passes assignments to its stream, leaves."""

    def __init__(
        self,
        groups: GroupCalls,
        assignee: Assignee,
        *,
        group: str,
        topics: Sequence[str],
        client_id: str,
        client_host: str,
        interval_ms: int,
        member_id: str,
    ) -> None:
        self._groups = groups
        self._assignee = assignee
        self._group = group
        self._topics = sorted(topics)
        self._client_id = client_id
        self._client_host = client_host
        self._interval_s = interval_ms / 1000
        self.member_id = member_id
        self._epoch = _JOINING
        self._owned: frozenset[TopicPartition] = frozenset()

    async def run(self, names: "TopicIds") -> None:
        """Stay a member until cancelled. Raises Refusal if the group rejects the member."""
        await self._groups.ensure()
        report_owned = True
        while True:
            response = await self._heartbeat(names, report_owned=report_owned)
            report_owned = False
            code = ErrorCode(response.error_code)
            if code in _FENCED:
                logger.info(
                    "member %s was fenced by group %s and joins again", self.member_id, self._group
                )
                self._epoch, self._owned = _JOINING, frozenset()
                await self._assignee.lose()
                continue
            if code in RETRIABLE_CODES or code is ErrorCode.NOT_COORDINATOR:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if code is not ErrorCode.NONE:
                raise Refusal(
                    pb.GROUP_CONFLICT,
                    f"group {self._group!r} rejects this consumer:"
                    f" {response.error_message or code.name}",
                )
            changed = response.member_epoch != self._epoch
            self._epoch = response.member_epoch
            target = self._owned
            if response.assignment is not None:
                target = names.places(
                    (each.topic_id, each.partitions)
                    for each in response.assignment.topic_partitions
                )
            if revoked := self._owned - target:
                await self._assignee.revoke(revoked)
            if changed or target != self._owned:
                await self._assignee.assign(target, self.member_id, self._epoch)
            if target != self._owned:
                # The coordinator assigns freed partitions to others after this report.
                self._owned, report_owned = target, True
                continue
            await asyncio.sleep(self._interval_s)

    async def leave(self) -> None:
        """Leave the group, which frees the partitions at once."""
        if self._epoch == _JOINING:
            return
        self._epoch = _LEAVING
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self.member_id, member_epoch=_LEAVING
        )
        await self._send(request)

    async def _heartbeat(
        self, names: "TopicIds", *, report_owned: bool
    ) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self.member_id, member_epoch=self._epoch
        )
        if self._epoch == _JOINING:
            request.rebalance_timeout_ms = _REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = self._topics
            request.topic_partitions = []
        elif report_owned:
            request.topic_partitions = [
                TopicIdPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in names.by_id(self._owned)
            ]
        return await self._send(request)

    async def _send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        try:
            response = await self._groups.handle(
                self._group,
                GroupRequest(
                    message=request,
                    version=_HEARTBEAT_VERSION,
                    client_id=self._client_id,
                    client_host=self._client_host,
                ),
            )
        except BrokerError:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response


class TopicIds(Protocol):
    """Maps topic ids, which assignments use, to names and back."""

    def places(
        self, assigned: Iterable[tuple[uuid.UUID, Sequence[int]]]
    ) -> frozenset[TopicPartition]: ...

    def by_id(self, places: frozenset[TopicPartition]) -> Iterable[tuple[uuid.UUID, list[int]]]: ...
