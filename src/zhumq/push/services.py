"""What all push streams share: delivery service, groups, metadata image, sessions."""

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.delivery_seam import Deliveries
from zhumq.coordinators.half_message_service import HalfMessageService
from zhumq.host.clock import Clock
from zhumq.metadata.image import ClusterImage
from zhumq.model.ids import BrokerId, TopicPartition
from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.callers import CallerOf, any_caller
from zhumq.push.membership import GroupCalls
from zhumq.push.sessions import Sessions
from zhumq.push.settings import PushSettings
from zhumq.push.throttle import DeliveryQuotas, PrepareQuotas
from zhumq.push.unread import UnreadFrames
from zhumq.share.push_session import PushSession

if TYPE_CHECKING:
    from zhumq.push.half_stream import HalfStream

ENDING_SECONDS_MAX: Final = 5.0


class PushServices:
    """The parts of the push endpoint without its socket, which `PushServer` has."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        store: MetadataStore,
        deliveries: Deliveries,
        groups: GroupCalls,
        half_messages: HalfMessageService,
        clock: Clock,
        settings: PushSettings,
        push_addresses: Callable[[], dict[int, str]],
        quotas: DeliveryQuotas,
        prepare_quotas: PrepareQuotas,
        explain_retention: Callable[[str], pb.ExplainRetentionResponse],
        caller_of: CallerOf = any_caller,
    ) -> None:
        self.broker_id = broker_id
        self.deliveries = deliveries
        self.groups = groups
        self.half_messages = half_messages
        self.half_streams: set[HalfStream] = set()
        self.clock = clock
        self.settings = settings
        self.push_addresses = push_addresses
        self.quotas = quotas
        self.prepare_quotas = prepare_quotas
        self.explain_retention = explain_retention
        self.caller_of = caller_of
        self.sessions = Sessions(deliveries, clock, settings.session, delivers=self.delivers)
        self.topic_ids = _StoreTopicIds(store)
        self.endings = Endings()
        self.unread = UnreadFrames(time.monotonic)
        self.closing = False
        self._store = store
        self._security = store.image.security

    def apply(self, image: ClusterImage) -> None:
        """Called with every new metadata image: leaders may have changed, and users, rights and quotas."""
        before, self._security = self._security, image.security
        for stream in tuple(self.sessions.streams):
            stream.refresh()
            if image.security is not before:
                stream.check_access()
            if image.security.quotas is not before.quotas:
                stream.end_throttling()
        for producer in tuple(self.half_streams):
            if not self.half_messages.coordinates(producer.group):
                producer.lose()
            elif image.security is not before:
                producer.check_access()

    @property
    def image(self) -> ClusterImage:
        return self._store.image

    def leads(self, place: TopicPartition) -> bool:
        """Whether this broker leads the partition, and so delivers it."""
        state = self.image.partition(place)
        return state is not None and self.image.leader_of(state) == self.broker_id

    def delivers(self, session: PushSession) -> bool:
        """Whether this broker leads one of the session's partitions."""
        topics = (self.image.topics.get(name) for name in session.topic.split(","))
        return any(
            self.leads(TopicPartition(topic.name, partition))
            for topic in topics
            if topic is not None
            for partition in session.partitions or range(len(topic.partitions))
        )

    def exists(self, place: TopicPartition) -> bool:
        return self.image.partition(place) is not None


class Endings:
    """Cleanup tasks of ending streams. They run to the end even if the gRPC call is cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self) -> None:
        """Wait until all cleanups are done, at most `ENDING_SECONDS_MAX`."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=ENDING_SECONDS_MAX)


class _StoreTopicIds:
    """Topics by id in the newest metadata image."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def places(
        self, assigned: Iterable[tuple[uuid.UUID, Sequence[int]]]
    ) -> frozenset[TopicPartition]:
        topics = self._store.image.topics_by_id
        return frozenset(
            TopicPartition(topics[topic_id].name, partition)
            for topic_id, partitions in assigned
            if topic_id in topics
            for partition in partitions
        )

    def by_id(self, places: frozenset[TopicPartition]) -> Iterable[tuple[uuid.UUID, list[int]]]:
        topics = self._store.image.topics
        by_name: dict[str, list[int]] = {}
        for place in sorted(places):
            by_name.setdefault(place.topic, []).append(place.partition)
        for name, partitions in by_name.items():
            if name in topics:
                yield topics[name].topic_id, partitions
