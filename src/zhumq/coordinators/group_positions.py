"""Positions of push groups among the committed offsets, so that tools and pull consumers find them there."""

import asyncio
import logging
from typing import Final, Protocol

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.delivery_peers import leader_of
from zhumq.coordinators.delivery_seam import Owner
from zhumq.coordinators.group_service import GroupService
from zhumq.coordinators.internal_topic import InternalTopic
from zhumq.groups.requests import GroupRequest
from zhumq.model.errors import BrokerError, CoordinatorNotAvailable, ErrorCode, InvalidRequest
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC, BrokerId
from zhumq.protocol.compiler import decode_message, encoder
from zhumq.protocol.messages.delivery_state import AskGroupRequest, AskGroupResponse
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from zhumq.protocol.peer_api import PeerApi
from zhumq.protocol.schema import Message
from zhumq.replication.inter_broker.peer_service import PeerConnection, PeerService
from zhumq.replication.inter_broker.peers import Peers

logger = logging.getLogger(__name__)

ASK_GROUP: Final = PeerApi(AskGroupRequest, AskGroupResponse)
MIRROR_SECONDS: Final = 0.5  # between two commits of one position that moves on and on
_VERSION: Final = 9  # the last in which topics go by name
_COMMIT: Final = 0
_FETCH: Final = 1
_NO_OFFSET: Final = -1


class Positions(Protocol):
    """Where groups stand, as `__consumer_offsets` has it."""

    async def committed(self, group: str, topic: str, partition: int) -> int | None:
        """The committed offset. Raises BrokerError."""

    async def commit(
        self, group: str, topic: str, partition: int, offset: int, owner: Owner
    ) -> None:
        """Commit as the owner, in its epoch. Raises BrokerError."""


class GroupPositions:
    """Asks the coordinator of each group, on whichever broker it is. `Positions`."""

    def __init__(
        self,
        groups: GroupService,
        topic: InternalTopic,
        store: MetadataStore,
        *,
        broker_id: BrokerId,
        peers: Peers | None = None,
    ) -> None:
        self._groups = groups
        self._topic = topic
        self._store = store
        self._broker_id = broker_id
        self._peers = peers

    def register(self, service: PeerService) -> None:
        """Answer the other brokers."""
        service.register(ASK_GROUP, self._asked)

    async def committed(self, group: str, topic: str, partition: int) -> int | None:
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])],
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

    async def _ask(self, group: str, request: OffsetCommitRequest | OffsetFetchRequest) -> Message:
        await self._topic.ensure()
        leader = leader_of(self._store, CONSUMER_OFFSETS_TOPIC, self._groups.partition_for(group))
        if leader is None:
            raise CoordinatorNotAvailable(f"nobody coordinates group {group!r} right now")
        if leader == self._broker_id or self._peers is None:
            return await self._answer(request)
        commits = isinstance(request, OffsetCommitRequest)
        parts: list[bytes] = []
        encoder(type(request), _VERSION)(request, parts)
        asked = AskGroupRequest(kind=_COMMIT if commits else _FETCH, body=b"".join(parts))
        answer = await self._peers.request(leader, ASK_GROUP, asked)
        response_type = OffsetCommitResponse if commits else OffsetFetchResponse
        return decode_message(response_type, _VERSION, answer.body, 0)

    async def _answer(self, request: OffsetCommitRequest | OffsetFetchRequest) -> Message:
        answer = await self._groups.handle(GroupRequest(message=request, version=_VERSION))
        assert isinstance(answer, OffsetCommitResponse | OffsetFetchResponse)
        return answer

    async def _asked(self, _peer: PeerConnection, asked: AskGroupRequest) -> AskGroupResponse:
        if asked.kind not in (_COMMIT, _FETCH):
            raise InvalidRequest(f"there is no kind {asked.kind} of requests about groups")
        request: OffsetCommitRequest | OffsetFetchRequest
        if asked.kind == _COMMIT:
            request = decode_message(OffsetCommitRequest, _VERSION, asked.body, 0)
        else:
            request = decode_message(OffsetFetchRequest, _VERSION, asked.body, 0)
        answer = await self._answer(request)
        parts: list[bytes] = []
        encoder(type(answer), _VERSION)(answer, parts)
        return AskGroupResponse(body=b"".join(parts))


class PositionMirror:
    """Commits the position of one window behind it, now and then and when its owner lets go.

    The window's own state is what counts: a commit that fails is only late.
    """

    def __init__(self, positions: Positions, group: str, topic: str, partition: int) -> None:
        self._positions = positions
        self._name = (group, topic, partition)
        self._wanted: tuple[int, Owner] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def moved(self, offset: int, owner: Owner) -> None:
        self._wanted = (offset, owner)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(MIRROR_SECONDS, self._start)

    async def flush(self) -> None:
        """Commit what is not committed yet."""
        self._cancel_timer()
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            return
        group, topic, partition = self._name
        try:
            await self._positions.commit(group, topic, partition, *wanted)
        except BrokerError as reason:
            logger.debug("position of %s on %s-%d: %s", group, topic, partition, reason)

    def close(self) -> None:
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
        raise CoordinatorNotAvailable(f"the coordinator says {ErrorCode(code).name}")
