"""ShareFetch and ShareAcknowledge (KIP-932): records under acquisition locks, and acknowledgements."""

import asyncio
import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from zhumq.broker.access import May
from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.broker.handlers.group_configs import ShareGroupSettings
from zhumq.broker.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MemberKey,
    SharePartition,
    ShareSession,
    ShareSessions,
)
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.delivery_seam import Delivered
from zhumq.coordinators.delivery_service import DeliveryService
from zhumq.coordinators.share_partition_delivery import SharePartitionDelivery
from zhumq.filters.filter import Filter
from zhumq.model.authorization_errors import TopicAuthorizationFailed
from zhumq.model.errors import BrokerError, ErrorCode, InvalidRequest, UnknownTopicId
from zhumq.model.ids import TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.share import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcquiredRecords,
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchableTopicResponse,
    ShareFetchPartition,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareLeaderIdAndEpoch,
    ShareNodeEndpoint,
)
from zhumq.security.acl import Operation, ResourceType
from zhumq.share.acknowledgement import AckKind, Acknowledgement

logger = logging.getLogger(__name__)

WAIT_MS_MAX: Final = 300_000
_RECORD_LIMIT_MODE: Final = 1
_UNKNOWN: Final = -1
_ACK_KINDS: Final = frozenset(AckKind)
_AckedPartition = ShareFetchPartition | AcknowledgePartition


class ShareHandler:
    """Serves share consumers through the delivery service."""

    def __init__(
        self,
        deliveries: DeliveryService,
        store: MetadataStore,
        sessions: ShareSessions,
        settings: ShareGroupSettings,
        *,
        answer_bytes_max: int,
    ) -> None:
        self._deliveries = deliveries
        self._store = store
        self._sessions = sessions
        self._settings = settings
        self._answer_bytes_max = answer_bytes_max
        self._releases: set[asyncio.Task[None]] = set()

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.SHARE_FETCH: self.share_fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self.share_acknowledge,
        }

    def connection_lost(self, connection_id: int) -> None:
        """KIP-932: sessions end with their connection, and what their members held is released."""
        for session in self._sessions.of_connection(connection_id):
            self._sessions.end(session.key)
            task = asyncio.get_running_loop().create_task(
                self._release(session, "its connection was lost", counts=True)
            )
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)

    async def close(self) -> None:
        """Wait until the releases of ended sessions are done."""
        await asyncio.gather(*self._releases, return_exceptions=True)

    # ShareFetch

    async def share_fetch(
        self, context: RequestContext, request: ShareFetchRequest
    ) -> ShareFetchResponse:
        key = _member_key(request)
        asked = [
            (SharePartition(topic.topic_id, partition.partition_index), partition)
            for topic in request.topics
            for partition in topic.partitions
        ]
        # Read first: if this fails, the request has had no effect yet.
        limits, _ = await self._settings.of_group(key.group_id)
        session = await self._session(key, request.share_session_epoch, asked, context)
        answers = _Answers()
        for share_partition, code, why in await self._acknowledge(context.may, key, asked):
            answer = answers.of(share_partition)
            answer.acknowledge_error_code, answer.acknowledge_error_message = code, why
        if request.share_session_epoch == FINAL_EPOCH:
            self._sessions.end(key)
            await self._release(session, "its session ended", counts=False)
        else:
            session.update(
                (share_partition for share_partition, _ in asked),
                (
                    SharePartition(topic.topic_id, partition)
                    for topic in request.forgotten_topics_data
                    for partition in topic.partitions
                ),
            )
            await self._fetch(context.may, session, request, answers)
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=limits.lock_ms, responses=answers.topics()
        )
        for topic in response.responses:
            for answer in topic.partitions:
                wrong = answer.error_code or answer.acknowledge_error_code
                self._set_current_leader(
                    context, topic.topic_id, answer, wrong, response.node_endpoints
                )
        return response

    async def _session(
        self,
        key: MemberKey,
        epoch: int,
        asked: Sequence[tuple[SharePartition, _AckedPartition]],
        context: RequestContext,
    ) -> ShareSession:
        """The session of a request. Raises if the request is not the next one of a session."""
        if epoch == INITIAL_EPOCH:
            if any(partition.acknowledgement_batches for _, partition in asked):
                raise InvalidRequest("a request that opens a session cannot acknowledge anything")
            before = self._sessions.end(key)
            if before is not None:
                # The member starts over and does not know what it held.
                await self._release(before, "its member opened a new session", counts=True)
            return self._sessions.open(key, context.connection.id)
        if epoch == FINAL_EPOCH:
            return self._sessions.find(key)
        return self._sessions.resume(key, epoch)

    async def _fetch(
        self, may: May, session: ShareSession, request: ShareFetchRequest, answers: "_Answers"
    ) -> None:
        opened: dict[SharePartition, SharePartitionDelivery] = {}
        for share_partition in tuple(session.partitions):
            try:
                opened[share_partition] = await self._open(
                    may, session.key.group_id, share_partition
                )
            except BrokerError as reason:
                answers.refuse(share_partition, reason)
        # Errors and results of acknowledgements are answered at once.
        may_wait = not answers and request.max_wait_ms > 0 and request.max_records > 0
        message_filter = await self._settings.filter_of(session.key.group_id)
        if self._acquire(session, opened, request, answers, message_filter):
            return
        if not may_wait or not opened:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(request.max_wait_ms, WAIT_MS_MAX) / 1000
        while (left := deadline - loop.time()) > 0:
            await _wait_for_records(opened.values(), left)
            message_filter = await self._settings.filter_of(session.key.group_id)
            if self._acquire(session, opened, request, answers, message_filter):
                return
            if message_filter is None or answers:
                return

    def _acquire(
        self,
        session: ShareSession,
        opened: dict[SharePartition, SharePartitionDelivery],
        request: ShareFetchRequest,
        answers: "_Answers",
        message_filter: Filter | None,
    ) -> bool:
        records_left = request.max_records
        bytes_left = min(request.max_bytes, self._answer_bytes_max)
        for share_partition, delivery in opened.items():
            if records_left <= 0 or bytes_left <= 0:
                break
            try:
                delivered = delivery.acquire(
                    session.key.member_id,
                    records_max=records_left,
                    bytes_max=bytes_left,
                    whole_batches=request.share_acquire_mode != _RECORD_LIMIT_MODE,
                    message_filter=message_filter,
                )
            except BrokerError as reason:
                answers.refuse(share_partition, reason)
                continue
            if not delivered:
                continue
            records_left -= sum(each.record_count for each in delivered)
            bytes_left -= sum(len(each.records) for each in delivered)
            answers.give(share_partition, delivered)
            session.served(share_partition)
        return records_left < request.max_records

    async def _open(
        self, may: May, group_id: str, share_partition: SharePartition
    ) -> SharePartitionDelivery:
        topic = self._store.image.topics_by_id.get(share_partition.topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with id {share_partition.topic_id}")
        if not may(Operation.READ, ResourceType.TOPIC, topic.name):
            # Without its name: the client knows the topic by its id.
            raise TopicAuthorizationFailed("reading this topic is not permitted")
        found = self._deliveries.find(group_id, topic.name, share_partition.partition)
        if found is not None and not found.is_closed:
            return found
        limits, start = await self._settings.of_group(group_id)
        return await self._deliveries.open_share_partition(
            group=group_id,
            topic=topic.name,
            partition=share_partition.partition,
            limits=limits,
            start=start,
        )

    def _set_current_leader(
        self,
        context: RequestContext,
        topic_id: uuid.UUID,
        answer: ShareFetchPartitionData | ShareAcknowledgePartitionData,
        code: int,
        endpoints: list[ShareNodeEndpoint],
    ) -> None:
        """KIP-951: a client that asked the wrong broker gets the current leader."""
        answer.current_leader = ShareLeaderIdAndEpoch(leader_id=_UNKNOWN, leader_epoch=_UNKNOWN)
        image = self._store.image
        topic = image.topics_by_id.get(topic_id)
        if code != ErrorCode.NOT_LEADER_OR_FOLLOWER or topic is None:
            return
        state = image.partition(TopicPartition(topic.name, answer.partition_index))
        broker = None if state is None else image.brokers.get(image.leader_of(state))
        if state is None or broker is None:
            return
        endpoint = broker.endpoint(context.connection.listener)
        if endpoint is None:
            return
        answer.current_leader.leader_id = broker.broker_id
        answer.current_leader.leader_epoch = state.leader_epoch
        if all(each.node_id != broker.broker_id for each in endpoints):
            endpoints.append(
                ShareNodeEndpoint(
                    node_id=broker.broker_id,
                    host=endpoint.host,
                    port=endpoint.port,
                    rack=broker.rack,
                )
            )

    # ShareAcknowledge

    async def share_acknowledge(
        self, context: RequestContext, request: ShareAcknowledgeRequest
    ) -> ShareAcknowledgeResponse:
        key = _member_key(request)
        epoch = request.share_session_epoch
        if epoch == INITIAL_EPOCH:
            raise InvalidRequest("an acknowledgement does not open a session")
        limits, _ = await self._settings.of_group(key.group_id)
        session = (
            self._sessions.find(key) if epoch == FINAL_EPOCH else self._sessions.resume(key, epoch)
        )
        asked = [
            (SharePartition(topic.topic_id, partition.partition_index), partition)
            for topic in request.topics
            for partition in topic.partitions
        ]
        response = ShareAcknowledgeResponse(acquisition_lock_timeout_ms=limits.lock_ms)
        for share_partition, code, why in await self._acknowledge(context.may, key, asked):
            topics = response.responses
            if not topics or topics[-1].topic_id != share_partition.topic_id:
                topics.append(ShareAcknowledgeTopicResponse(topic_id=share_partition.topic_id))
            answer = ShareAcknowledgePartitionData(
                partition_index=share_partition.partition, error_code=code, error_message=why
            )
            topics[-1].partitions.append(answer)
            self._set_current_leader(
                context, share_partition.topic_id, answer, code, response.node_endpoints
            )
        if epoch == FINAL_EPOCH:
            self._sessions.end(key)
            await self._release(session, "its session ended", counts=False)
        return response

    async def _acknowledge(
        self, may: May, key: MemberKey, asked: Iterable[tuple[SharePartition, _AckedPartition]]
    ) -> list[tuple[SharePartition, ErrorCode, str | None]]:
        """Apply acknowledgements. Returns error code and message for each partition that has some."""
        with_acks = [each for each in asked if each[1].acknowledgement_batches]
        outcomes = await asyncio.gather(
            *(
                self._acknowledge_one(may, key, share_partition, partition.acknowledgement_batches)
                for share_partition, partition in with_acks
            )
        )
        return [
            (share_partition, *outcome)
            for (share_partition, _), outcome in zip(with_acks, outcomes, strict=True)
        ]

    async def _acknowledge_one(
        self,
        may: May,
        key: MemberKey,
        share_partition: SharePartition,
        batches: Sequence[AcknowledgementBatch],
    ) -> tuple[ErrorCode, str | None]:
        try:
            acknowledgements = list(_read(batches))
            delivery = await self._open(may, key.group_id, share_partition)
            results = await delivery.acknowledge(key.member_id, acknowledgements)
        except BrokerError as reason:
            return reason.code, str(reason)
        for result in results:
            if result is not None:
                return result.code, str(result)
        return ErrorCode.NONE, None

    async def _release(self, session: ShareSession, reason: str, *, counts: bool) -> None:
        group_id, member_id = session.key
        for share_partition in session.touched:
            topic = self._store.image.topics_by_id.get(share_partition.topic_id)
            if topic is None:
                continue
            delivery = self._deliveries.find(group_id, topic.name, share_partition.partition)
            if delivery is None:
                continue
            try:
                await delivery.release_member(member_id, reason, counts=counts)
            except BrokerError as failure:
                logger.debug(
                    "records held by member %s stay locked until their locks expire: %s",
                    member_id,
                    failure,
                )
            self._deliveries.close_if_idle(delivery)


class _Answers:
    """The partitions of a ShareFetch response that have records, errors or results."""

    def __init__(self) -> None:
        self._by_partition: dict[SharePartition, ShareFetchPartitionData] = {}

    def __len__(self) -> int:
        return len(self._by_partition)

    def of(self, share_partition: SharePartition) -> ShareFetchPartitionData:
        answer = self._by_partition.get(share_partition)
        if answer is None:
            answer = ShareFetchPartitionData(partition_index=share_partition.partition)
            self._by_partition[share_partition] = answer
        return answer

    def refuse(self, share_partition: SharePartition, reason: BrokerError) -> None:
        answer = self.of(share_partition)
        answer.error_code, answer.error_message = reason.code, str(reason)

    def give(self, share_partition: SharePartition, delivered: Sequence[Delivered]) -> None:
        answer = self.of(share_partition)
        answer.records = b"".join(each.records for each in delivered)
        answer.acquired_records = [
            AcquiredRecords(
                first_offset=acquired.first_offset,
                last_offset=acquired.last_offset,
                delivery_count=acquired.delivery_count,
            )
            for each in delivered
            for acquired in each.ranges
        ]

    def topics(self) -> list[ShareFetchableTopicResponse]:
        by_topic: dict[Any, ShareFetchableTopicResponse] = {}
        for share_partition, answer in self._by_partition.items():
            topic_id = share_partition.topic_id
            topic = by_topic.get(topic_id)
            if topic is None:
                topic = by_topic[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id)
            topic.partitions.append(answer)
        return list(by_topic.values())


async def _wait_for_records(deliveries: Iterable[SharePartitionDelivery], seconds: float) -> None:
    """Wait until records may be available on any of them, or the time is up."""
    arrived = asyncio.Event()
    unwatch = [delivery.watch(arrived.set) for delivery in deliveries]
    try:
        async with asyncio.timeout(seconds):
            await arrived.wait()
    except TimeoutError:
        pass
    finally:
        for each in unwatch:
            each()


def _member_key(request: ShareFetchRequest | ShareAcknowledgeRequest) -> MemberKey:
    if not request.group_id or not request.member_id:
        raise InvalidRequest("a share request names its group and its member")
    return MemberKey(request.group_id, request.member_id)


def _read(batches: Sequence[AcknowledgementBatch]) -> Iterator[Acknowledgement]:
    """Ranges with one acknowledge type each. Raises InvalidRequest."""
    next_offset = 0
    for batch in batches:
        first, last, kinds = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if not next_offset <= first <= last:
            raise InvalidRequest(f"acknowledged offsets {first} to {last} are out of order")
        next_offset = last + 1
        if len(kinds) not in (1, last - first + 1):
            raise InvalidRequest(
                f"{len(kinds)} acknowledge types for the offsets {first} to {last}"
            )
        if not _ACK_KINDS.issuperset(kinds):
            raise InvalidRequest("an acknowledge type is not 0 to 4")
        if len(kinds) == 1:
            yield Acknowledgement(first_offset=first, last_offset=last, kind=AckKind(kinds[0]))
            continue
        for kind, run in groupby(kinds):
            count = sum(1 for _ in run)
            yield Acknowledgement(
                first_offset=first, last_offset=first + count - 1, kind=AckKind(kind)
            )
            first += count
