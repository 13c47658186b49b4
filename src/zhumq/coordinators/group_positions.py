"""Commits positions of push groups to `__consumer_offsets`, where tools and pull consumers find them."""

import asyncio
import logging
from typing import Final, Protocol

from zhumq.coordinators.delivery_seam import Owner
from zhumq.coordinators.group_route import RoutedGroups
from zhumq.groups.requests import GroupRequest, GroupResponse
from zhumq.model.errors import RETRIABLE_CODES, BrokerError, CoordinatorNotAvailable, ErrorCode
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

logger = logging.getLogger(__name__)

MIRROR_SECONDS: Final = 0.5  # between two commits of one position that keeps moving
_VERSION: Final = 9  # the last version with topic names
_NO_OFFSET: Final = -1


class Positions(Protocol):
    """Positions of groups in `__consumer_offsets`."""

    async def committed(self, group: str, topic: str, partition: int) -> int | None:
        """The committed offset. Raises BrokerError."""

    async def commit(
        self, group: str, topic: str, partition: int, offset: int, owner: Owner
    ) -> None:
        """Commit as the owner, in its epoch. Raises BrokerError."""


class CommitRefused(CoordinatorNotAvailable):
    """The coordinator refuses this commit for good, such as one of an owner that has been replaced."""


class GroupPositions:
    """The committed offsets of any group, from whichever broker coordinates it. `Positions`."""

    def __init__(self, groups: RoutedGroups) -> None:
        self._groups = groups

    async def committed(self, group: str, topic: str, partition: int) -> int | None:
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])],
                )
            ]
        )
        answer = await self._ask(group, request)
        assert isinstance(answer, OffsetFetchResponse)
        found = answer.groups[0]
        _check(found.error_code)
        offset = found.topics[0].partitions[0].committed_offset
        return None if offset == _NO_OFFSET else offset

    async def commit(
        self, group: str, topic: str, partition: int, offset: int, owner: Owner
    ) -> None:
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=owner.epoch,
            member_id=owner.member if owner.epoch >= 0 else "",
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset
                        )
                    ],
                )
            ],
        )
        answer = await self._ask(group, request)
        assert isinstance(answer, OffsetCommitResponse)
        _check(answer.topics[0].partitions[0].error_code)

    async def _ask(
        self, group: str, request: OffsetCommitRequest | OffsetFetchRequest
    ) -> GroupResponse:
        await self._groups.ensure()
        return await self._groups.handle(group, GroupRequest(message=request, version=_VERSION))


class PositionMirror:
    """Commits the position of one share partition every MIRROR_SECONDS and when its owner is released.

    The share partition's own state is authoritative, so a commit may come late. One that the coordinator could not
    answer is tried again until it succeeds, the position moves on, or the share partition closes.
    """

    def __init__(self, positions: Positions, group: str, topic: str, partition: int) -> None:
        self._positions = positions
        self._name = (group, topic, partition)
        self._uncommitted: tuple[int, Owner] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def moved(self, offset: int, owner: Owner) -> None:
        self._uncommitted = (offset, owner)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(MIRROR_SECONDS, self._start)

    async def flush(self) -> None:
        """Commit what is not committed yet."""
        self._cancel_timer()
        uncommitted, self._uncommitted = self._uncommitted, None
        if uncommitted is None:
            return
        group, topic, partition = self._name
        try:
            await self._positions.commit(group, topic, partition, *uncommitted)
        except BrokerError as reason:
            logger.debug("position of %s on %s-%d: %s", group, topic, partition, reason)
            is_final = self._is_closed or isinstance(reason, CommitRefused)
            if self._uncommitted is None and not is_final:
                self.moved(*uncommitted)

    def close(self) -> None:
        self._is_closed = True
        self._cancel_timer()
        for task in self._tasks:
            task.cancel()

    def _start(self) -> None:
        self._timer = None
        task = asyncio.get_running_loop().create_task(self.flush())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _check(code: int) -> None:
    if code != ErrorCode.NONE:
        error = CoordinatorNotAvailable if code in RETRIABLE_CODES else CommitRefused
        raise error(f"the coordinator answered {ErrorCode(code).name}")
