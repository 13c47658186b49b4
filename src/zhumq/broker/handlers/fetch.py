"""Fetch: whole batches straight from the segments; waits for bytes when there are too few."""

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from zhumq.broker.access import May
from zhumq.broker.dispatch import DeferredAnswer, Handler, RequestContext
from zhumq.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION_ID,
    FetchedPartition,
    FetchKey,
    FetchSession,
    FetchSessions,
)
from zhumq.broker.quotas import NoQuotas, Quotas
from zhumq.cluster.store import MetadataStore
from zhumq.host.clock import Clock
from zhumq.model.authorization_errors import TopicAuthorizationFailed
from zhumq.model.errors import BrokerError, ErrorCode, UnknownTopicId
from zhumq.model.isolation import Isolation
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from zhumq.replication.partition import Partition
from zhumq.replication.pending import ParkedFetch, Watched
from zhumq.replication.read_replica import LEADER, read_replica
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.security.acl import Operation, ResourceType

_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_FIRST_VERSION_WITH_RACKS: Final = 11
# No fetch waits for longer, whatever max_wait_ms it has.
WAIT_MS_MAX: Final = 300_000
_UNKNOWN_OFFSET: Final = -1
_READ: Final = Operation.READ
_TOPIC: Final = ResourceType.TOPIC


class _Attempt:
    """One pass over the requested partitions: what it read, and whether to respond at once."""

    __slots__ = ("answers", "bytes_read", "must_answer", "readable", "taken")

    def __init__(self) -> None:
        self.answers: list[tuple[FetchedPartition, PartitionData]] = []
        self.bytes_read = 0
        # An error is answered at once: waiting does not help.
        self.must_answer = False
        self.readable: list[Partition] = []
        # What was read: partition, messages, bytes.
        self.taken: list[tuple[Partition, int, int]] = []


class FetchHandler:
    """Answers fetches of consumers."""

    def __init__(
        self,
        replicas: ReplicaManager,
        store: MetadataStore,
        sessions: FetchSessions,
        clock: Clock,
        *,
        answer_bytes_max: int,
        quotas: Quotas | None = None,
        selects_by_rack: bool = False,
    ) -> None:
        self._replicas = replicas
        self._store = store
        self._sessions = sessions
        self._clock = clock
        self._quotas = quotas or NoQuotas()
        self._answer_bytes_max = answer_bytes_max
        # KIP-392: whether consumers are sent to replicas in their rack, and followers serve them.
        self._selects_by_rack = selects_by_rack

    def handlers(self) -> dict[ApiKey, Handler]:
        return {ApiKey.FETCH: self.fetch}

    def fetch(self, context: RequestContext, request: FetchRequest) -> Any:
        by_id = context.header.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS
        now_ms = self._clock.monotonic_ms()
        session: FetchSession | None = None
        asked: Sequence[FetchedPartition]
        incremental = request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
        if incremental:
            session = self._sessions.resume(request.session_id, request.session_epoch, now_ms)
            session.update(_asked_partitions(request), _forgotten_partitions(request))
            asked = list(session.partitions.values())
        else:
            asked = _asked_partitions(request)
            if request.session_id != NO_SESSION_ID:
                self._sessions.end(request.session_id)
            if request.session_epoch == INITIAL_EPOCH and context.header.api_version >= 7:
                session = self._sessions.open(asked, now_ms)
        isolation = Isolation.of(request.isolation_level)
        reads_committed = isolation is Isolation.READ_COMMITTED

        def read() -> _Attempt:
            return self._read(context, asked, request, isolation, by_id=by_id)

        attempt = read()
        if (
            attempt.bytes_read >= request.min_bytes
            or attempt.must_answer
            or request.max_wait_ms <= 0
            or not attempt.readable
            or context.throttle_ms
        ):
            return self._answer(context, attempt, session, only_changed=incremental)
        # Parked before the next callback of the loop runs, so that no record arrives unnoticed.
        parked = ParkedFetch(
            attempt.readable,
            request.min_bytes - attempt.bytes_read,
            min(request.max_wait_ms, WAIT_MS_MAX),
            _new_committed_records(attempt.readable) if reads_committed else None,
        )
        answer = DeferredAnswer(context)
        answer.settle_after(
            parked.done,
            lambda: self._answer(context, read(), session, only_changed=incremental),
            release=parked.wake,
        )
        return answer

    def _bytes_max(self, context: RequestContext, request: FetchRequest) -> int:
        """The most bytes of an answer. Above what a quota permits at once it would never be sent."""
        bytes_max = min(request.max_bytes, self._answer_bytes_max)
        if not self._quotas.is_active:
            return bytes_max
        quota = self._quotas.fetch_bytes_max(context.connection, context.header.client_id)
        return int(min(bytes_max, quota))

    def _answer(
        self,
        context: RequestContext,
        attempt: _Attempt,
        session: FetchSession | None,
        *,
        only_changed: bool,
    ) -> FetchResponse:
        """The response, without records if they are above the quota of the client (KIP-219)."""
        is_granted = not context.throttle_ms
        if is_granted and attempt.bytes_read and self._quotas.is_active:
            is_granted, context.throttle_ms = self._quotas.grant_fetch(
                context.connection, context.header.client_id, attempt.bytes_read
            )
        if not is_granted:
            if session is not None and not only_changed:
                # Clients do not take over a session from an answer that lacks partitions.
                self._sessions.end(session.session_id)
                session = None
            return FetchResponse(session_id=session.session_id if session else NO_SESSION_ID)
        for partition, messages, size in attempt.taken:
            partition.sent_messages += messages
            partition.sent_bytes += size
        return _respond(attempt, session, only_changed=only_changed)

    def _read(
        self,
        context: RequestContext,
        asked: Sequence[FetchedPartition],
        request: FetchRequest,
        isolation: Isolation,
        *,
        by_id: bool,
    ) -> _Attempt:
        attempt = _Attempt()
        bytes_left = self._bytes_max(context, request)
        reads_committed = isolation is Isolation.READ_COMMITTED
        topic_id: uuid.UUID | None = None
        topic = name = ""
        rack = request.rack_id if self._selects_by_rack else ""
        as_follower = self._selects_by_rack and context.version >= _FIRST_VERSION_WITH_RACKS
        for fetched in asked:
            key = fetched.key
            answer = PartitionData(partition_index=key.partition)
            attempt.answers.append((fetched, answer))
            try:
                # The keys of a topic's partitions share their objects: it is looked up once.
                if key.topic_id is not topic_id or key.topic is not topic:
                    name = self._name_of(context.may, key, by_id=by_id)
                    topic_id, topic = key.topic_id, key.topic
                partition = self._replicas.partition(name, key.partition)
                partition.check_leader_epoch(fetched.current_leader_epoch, as_follower=as_follower)
                attempt.readable.append(partition)
                answer.high_watermark = end_offset = partition.high_watermark
                answer.last_stable_offset = partition.last_stable_offset
                answer.log_start_offset = partition.log_start_offset
                answer.aborted_transactions = [] if reads_committed else None
                if rack:
                    replica = self._read_replica(partition, fetched.fetch_offset, rack)
                    answer.preferred_read_replica = replica
                    if replica != LEADER:
                        attempt.must_answer = True
                        continue
                if reads_committed:
                    end_offset = answer.last_stable_offset
                if fetched.fetch_offset == end_offset:
                    continue  # as most partitions of a session: there is nothing to read
                # KIP-74: the first batch of an answer is sent whole however large it is, so that
                # a consumer always makes progress.
                records = partition.read(
                    fetched.fetch_offset,
                    min(fetched.max_bytes, max(bytes_left, 0)),
                    at_least_one=attempt.bytes_read == 0,
                    isolation=isolation,
                    as_follower=as_follower,
                )
            except BrokerError as reason:
                answer.error_code = reason.code
                answer.high_watermark = _UNKNOWN_OFFSET
                answer.last_stable_offset = _UNKNOWN_OFFSET
                answer.log_start_offset = _UNKNOWN_OFFSET
                answer.records = b""
                attempt.must_answer = True
                continue
            size = len(records)
            answer.records = records.regions[0] if size else b""
            attempt.bytes_read += size
            if size:
                messages = records.next_offset - fetched.fetch_offset
                attempt.taken.append((partition, messages, size))
            if records.aborted:
                answer.aborted_transactions = [
                    AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                    for each in records.aborted
                ]
            if size and records.next_offset < end_offset:
                # A read ends with its segment, or before an emptied batch: more bytes for min_bytes
                # exist already, behind these.
                attempt.must_answer = True
            bytes_left -= size
        return attempt

    def _read_replica(self, partition: Partition, offset: int, rack: str) -> int:
        racks = {int(each): known.rack for each, known in self._store.image.brokers.items()}
        return read_replica(partition, offset, rack, racks, self._clock.monotonic_ms())

    def _name_of(self, may: May, key: FetchKey, *, by_id: bool) -> str:
        """The name of the topic, if it exists and the client may read it."""
        name = key.topic
        if by_id:
            topic = self._store.image.topics_by_id.get(key.topic_id)
            if topic is None:
                raise UnknownTopicId(f"there is no topic with id {key.topic_id}")
            name = topic.name
        if not may(_READ, _TOPIC, name):
            raise TopicAuthorizationFailed("reading this topic is not permitted")
        return name


def _new_committed_records(partitions: Sequence[Partition]) -> Callable[[Watched], bool]:
    """Whether a partition has more committed records than now."""
    ends = {partition: partition.last_stable_offset for partition in partitions}

    def has_new(source: Watched) -> bool:
        assert isinstance(source, Partition)
        return source.last_stable_offset > ends[source]

    return has_new


def _asked_partitions(request: FetchRequest) -> list[FetchedPartition]:
    return [
        FetchedPartition(
            FetchKey(topic.topic_id, topic.topic, partition.partition),
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]


def _forgotten_partitions(request: FetchRequest) -> list[FetchKey]:
    return [
        FetchKey(topic.topic_id, topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


def _respond(
    attempt: _Attempt, session: FetchSession | None, *, only_changed: bool
) -> FetchResponse:
    response = FetchResponse(session_id=session.session_id if session else NO_SESSION_ID)
    topic: FetchableTopicResponse | None = None
    for fetched, answer in attempt.answers:
        if session is not None:
            has_bytes = len(answer.records or b"") > 0
            has_update = (
                has_bytes
                or answer.error_code != ErrorCode.NONE
                or answer.high_watermark != fetched.sent_high_watermark
                or answer.log_start_offset != fetched.sent_log_start_offset
                or answer.preferred_read_replica != LEADER
            )
            if has_bytes:
                session.served(fetched.key)
            if only_changed and not has_update:
                continue
            fetched.sent_high_watermark = answer.high_watermark
            fetched.sent_log_start_offset = answer.log_start_offset
        key = fetched.key
        if topic is None or topic.topic != key.topic or topic.topic_id != key.topic_id:
            topic = FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id)
            response.responses.append(topic)
        topic.partitions.append(answer)
    return response
