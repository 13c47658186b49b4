"""Half messages as the push listener sees them: prepares, decides and lists them, and asks producers about them."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.group_service import partition_for
from zhumq.coordinators.internal_topic import InternalTopic
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.coordinators.shard_loops import ShardLoops
from zhumq.coordinators.shard_moves import LOAD_SECONDS
from zhumq.coordinators.staged_reader import StagedMissing, StagedReader
from zhumq.half_messages.message import Body, HalfMessage
from zhumq.half_messages.persisted import body_of
from zhumq.half_messages.requests import (
    Answer,
    AwaitChecks,
    Decide,
    Decision,
    HalfRequest,
    HalfResponse,
    ListHalfMessages,
    Messages,
    Prepare,
    SetLive,
)
from zhumq.metadata.image import NO_BROKER
from zhumq.model.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    ErrorCode,
    InvalidRecord,
    MessageTooLarge,
    UnknownTopicOrPartition,
)
from zhumq.model.ids import HALF_MESSAGES_TOPIC, INTERNAL_TOPICS, BrokerId, TopicPartition
from zhumq.records.partitioner import partition_of
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.storage.log_config import SchemaRule
from zhumq.storage.schema_ids import KnownSchemas, ids_of_message

logger = logging.getLogger(__name__)

LISTED_MAX: Final = 10_000
LIST_WAIT_SECONDS_MAX: Final = 5.0
BODY_BYTES_MAX: Final = 1_000_000  # a frame of the push listener has one MiB
HEADERS_MAX: Final = 1_000
HEADER_KEY_BYTES_MAX: Final = 32_767
BATCH_OVERHEAD_BYTES: Final = 128  # of a batch with one record

HalfRuntime = CoordinatorRuntime[HalfRequest, HalfResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetLimits:
    """What a topic accepts."""

    message_bytes_max: int
    needs_keys: bool
    schema_rule: SchemaRule | None


class LiveProducer(Protocol):
    """A connected producer that answers for its group."""

    @property
    def group(self) -> str: ...

    def check(self, message: HalfMessage, body: Body) -> None:
        """Ask it about a message. It answers with a decision, or not at all."""

    def lose(self) -> None:
        """This broker does not coordinate the group any more."""


class HalfMessageService:
    """The way to the shards of this broker, and to the producers that are connected to it."""

    def __init__(
        self,
        runtime: HalfRuntime,
        topic: InternalTopic,
        store: MetadataStore,
        replicas: ReplicaManager,
        broker_id: BrokerId,
        limits_of: Callable[[str], TargetLimits],
        schemas: KnownSchemas,
    ) -> None:
        self._runtime = runtime
        self._topic = topic
        self._store = store
        self._replicas = replicas
        self._broker_id = broker_id
        self._limits_of = limits_of
        self._schemas = schemas
        self._turns = itertools.count()
        # The producers of each group, the next one to be asked first.
        self._producers: dict[str, dict[LiveProducer, None]] = {}
        self.checks_total = 0
        self._loops = ShardLoops(
            replicas,
            HALF_MESSAGES_TOPIC,
            self._check,
            name="half-message-checks",
            on_lost=self._lose_producers,
        )

    @property
    def producers_count(self) -> int:
        return sum(len(each) for each in self._producers.values())

    async def close(self) -> None:
        await self._loops.close()

    # Producers

    async def coordinator_of(self, group: str) -> int:
        """The broker that coordinates a group; NO_BROKER while there is none. Raises BrokerError."""
        await self._topic.ensure()
        image = self._store.image
        state = image.partition(self._place_of(group))
        return NO_BROKER if state is None else int(image.leader_of(state))

    def coordinates(self, group: str) -> bool:
        """Whether this broker coordinates the group, as the metadata image has it."""
        image = self._store.image
        state = image.partition(self._place_of(group))
        return state is not None and image.leader_of(state) == self._broker_id

    def attach(self, producer: LiveProducer) -> None:
        """Ask this producer from now on, in turn with the others of its group."""
        group = producer.group
        self._producers.setdefault(group, {})[producer] = None
        self._runtime.report(self._index_of(group), SetLive(group=group, is_live=True))

    def detach(self, producer: LiveProducer) -> None:
        group = producer.group
        others = self._producers.get(group, {})
        others.pop(producer, None)
        if not others:
            self._producers.pop(group, None)
            self._runtime.report(self._index_of(group), SetLive(group=group, is_live=False))

    async def prepare(
        self, message_id: str, group: str, topic: str, partition: int | None, body: Body
    ) -> Answer:
        """Store a half message. Raises BrokerError if its topic would not take it."""
        target = self._target(topic, partition, body)
        return await self._ask(
            self._index_of(group), Prepare(id=message_id, group=group, target=target, body=body)
        )

    async def decide(self, message_id: str, group: str, decision: Decision) -> Answer:
        """The decision of a producer of this group."""
        request = Decide(id=message_id, group=group, decision=decision)
        return await self._ask(self._index_of(group), request)

    # Operators

    async def listed(self, request: ListHalfMessages) -> Messages:
        """The messages of all shards of this broker, the oldest first. Waits for shards that are being loaded, and raises
        CoordinatorLoadInProgress if that takes too long: a client would take a partial list for the whole."""
        found: list[HalfMessage] = []
        has_more = False
        deadline = asyncio.get_running_loop().time() + LIST_WAIT_SECONDS_MAX
        for index in self._runtime.led:
            while True:
                answer = await self._runtime.submit(index, request)
                assert isinstance(answer, Messages)
                if answer.code in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                    break
                if asyncio.get_running_loop().time() > deadline:
                    raise CoordinatorLoadInProgress("half messages are being loaded: ask again")
                await asyncio.sleep(LOAD_SECONDS)
            found += answer.messages
            has_more = has_more or answer.has_more
        found.sort(key=lambda each: each.prepared_ms)
        return Messages(
            messages=tuple(found[: request.limit]),
            has_more=has_more or len(found) > request.limit,
        )

    async def find(self, message_id: str) -> HalfMessage | None:
        """A message of this broker's shards, also one that ended a short time ago. Raises CoordinatorLoadInProgress."""
        found = await self.listed(ListHalfMessages(id=message_id))
        return found.messages[0] if found.messages else None

    def body_of(self, message: HalfMessage) -> Body:
        """Raises StagedMissing and BrokerError."""
        partition = self._replicas.partition(*self._place_of(message.group))
        return read_body(StagedReader(partition), message.offset)

    async def decide_for(self, message: HalfMessage, decision: Decision) -> Answer:
        """The decision of an operator."""
        request = Decide(id=message.id, group="", decision=decision)
        return await self._ask(self._index_of(message.group), request)

    # Checks

    def _lose_producers(self, index: int) -> None:
        for producer in list(self._producers_of(index)):
            producer.lose()

    async def _check(self, index: int, _leader_epoch: int) -> None:
        """Ask producers about the messages of a shard."""
        is_known = False  # whether the shard knows the groups whose producers are connected
        while True:
            try:
                is_known = await self._check_once(index, is_known=is_known)
            except Exception:
                logger.exception("the checks of half message shard %d failed", index)
                is_known = False
            if not is_known:
                await asyncio.sleep(LOAD_SECONDS)

    async def _check_once(self, index: int, *, is_known: bool) -> bool:
        if not is_known:
            for group in {each.group for each in self._producers_of(index)}:
                self._runtime.report(index, SetLive(group=group, is_live=True))
        response = await self._runtime.submit(index, AwaitChecks())
        assert isinstance(response, Messages)
        for message in response.messages:
            self._ask_producer(message)
        return response.code is ErrorCode.NONE

    def _ask_producer(self, message: HalfMessage) -> None:
        producers = self._producers.get(message.group)
        if not producers:
            return  # The last one has gone meanwhile: another one is asked after the interval.
        producer = next(iter(producers))
        producers[producer] = producers.pop(producer)
        try:
            body = self.body_of(message)
        except (StagedMissing, BrokerError) as reason:
            logger.warning("half message %s cannot be checked: %s", message.id, reason)
            return
        self.checks_total += 1
        producer.check(message, body)

    def _producers_of(self, index: int) -> Iterable[LiveProducer]:
        for group, producers in self._producers.items():
            if self._index_of(group) == index:
                yield from producers

    # Places

    def _index_of(self, group: str) -> int:
        return partition_for(group, self._topic.partition_count)

    def _place_of(self, group: str) -> TopicPartition:
        return TopicPartition(HALF_MESSAGES_TOPIC, self._index_of(group))

    def _target(self, name: str, partition: int | None, body: Body) -> TopicPartition:
        topic = self._store.image.topics.get(name)
        if topic is None or name in INTERNAL_TOPICS:
            raise UnknownTopicOrPartition(f"there is no topic {name!r} for half messages")
        count = len(topic.partitions)
        if partition is None:
            key = body.key
            partition = next(self._turns) % count if key is None else partition_of(key, count)
        if not 0 <= partition < count:
            raise UnknownTopicOrPartition(f"topic {name!r} has no partition {partition}")
        limits = self._limits_of(name)
        bytes_max = min(BODY_BYTES_MAX, limits.message_bytes_max - BATCH_OVERHEAD_BYTES)
        if body.size_bytes > bytes_max:
            raise MessageTooLarge(
                f"a half message of {body.size_bytes} bytes: topic {name!r} takes at most {bytes_max}"
            )
        if len(body.headers) > HEADERS_MAX or any(
            len(key.encode()) > HEADER_KEY_BYTES_MAX for key, _ in body.headers
        ):
            raise InvalidRecord(f"a half message has at most {HEADERS_MAX} headers with short keys")
        if limits.needs_keys and body.key is None:
            raise InvalidRecord(f"topic {name!r} is compacted: its messages need a key")
        rule = limits.schema_rule
        if rule is not None:
            # Not when it is committed: the broker appends it then, and could refuse no producer.
            used = ids_of_message(body.key, body.value, rule)
            self._schemas.check(name, used, any_subject=rule.any_subject)
        return TopicPartition(name, partition)

    async def _ask(self, index: int, request: HalfRequest) -> Answer:
        answer = await self._runtime.submit(index, request)
        assert isinstance(answer, Answer)
        return answer


def read_body(reader: StagedReader, offset: int) -> Body:
    """The body of the half message whose record is at this offset. Raises StagedMissing and BrokerError."""
    body = body_of(reader.read(offset).value or b"")
    if body is None:
        raise StagedMissing(f"there is no half message at offset {offset}")
    return body
