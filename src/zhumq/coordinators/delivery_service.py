"""The delivery service: subscriptions, the share partitions open on this broker, sessions."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.claims import Claims
from zhumq.coordinators.dead_letters import DeadLetterWriter
from zhumq.coordinators.delivery_seam import GroupPosition, Owner
from zhumq.coordinators.delivery_settings import (
    RETRY_SETTING,
    DeliveryCounters,
    DeliverySettings,
)
from zhumq.coordinators.delivery_state import (
    DeliveryStateClient,
    PersistedSharePartitionStore,
    SharePartitionStore,
    TransientSharePartitionStore,
)
from zhumq.coordinators.filtered_batches import FilteredBatches
from zhumq.coordinators.group_overview import group_positions
from zhumq.coordinators.group_positions import PositionMirror, Positions
from zhumq.coordinators.share_partition_delivery import SharePartitionDelivery
from zhumq.coordinators.start_offsets import check_partition_start, clamped, first_offset
from zhumq.host.clock import Clock
from zhumq.metadata.image import ClusterImage, Topic
from zhumq.model.errors import (
    BrokerError,
    InvalidRequest,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from zhumq.model.ids import TopicPartition
from zhumq.model.isolation import Isolation
from zhumq.protocol.messages.delivery_state import (
    DeleteSharePartitionsRequest,
    DeleteSharePartitionsResponse,
    DescribedSharePartition,
    DescribeSharePartitionsRequest,
    DescribeSharePartitionsResponse,
    GroupSetting,
    GroupSettingsRequest,
    GroupSettingsResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    SaveSessionRequest,
    SaveSessionResponse,
)
from zhumq.replication.partition import Partition
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.share.partition_state import SharePartitionState
from zhumq.share.persisted import SessionKey, SharePartitionKey, read_session, session_value
from zhumq.share.push_session import PushSession, SessionState
from zhumq.share.share_partition import SharePartition, SharePartitionLimits
from zhumq.share.subscription import (
    Claim,
    Start,
    StartKind,
    Subscription,
    SubscriptionMode,
    check_claim,
    check_subscription,
)

logger = logging.getLogger(__name__)

DRAIN_SECONDS_MAX: Final = 2.0
GROUP_SETTINGS_KEPT_MS: Final = 5_000
GROUP_SETTINGS_KEPT_MAX: Final = 10_000


class DeliveryService:
    """All share partitions open on this broker. Implements `Deliveries` of the seam."""

    def __init__(
        self,
        settings: DeliverySettings,
        *,
        store: MetadataStore,
        metadata_client: MetadataClient,
        replicas: ReplicaManager,
        states: DeliveryStateClient,
        dead_letters: DeadLetterWriter,
        positions: Positions,
        clock: Clock,
    ) -> None:
        self._positions = positions
        self._settings = settings
        self._store = store
        self._metadata_client = metadata_client
        self._replicas = replicas
        self._states = states
        self._dead_letters = dead_letters
        self._clock = clock
        self._claims = Claims(states, store)
        self._share_partitions: dict[SharePartitionKey, SharePartitionDelivery] = {}
        # Invariant: the same share partitions, by topic partition.
        self._on_partition: dict[TopicPartition, set[SharePartitionDelivery]] = {}
        self._opening: dict[SharePartitionKey, asyncio.Task[SharePartitionDelivery]] = {}
        self._topics: dict[str, Topic] = dict(store.image.topics)
        self._background: set[asyncio.Task[None]] = set()
        # Cached settings with the time at which they expire.
        self._group_settings: dict[str, tuple[int, dict[str, str]]] = {}
        self._filtered_batches = FilteredBatches(clock)
        self.counters = DeliveryCounters()
        replicas.watch_leadership(self._on_leadership_changed)

    # Subscriptions

    async def subscribe(self, subscription: Subscription) -> Claim | None:
        topic = self._store.image.topics.get(subscription.topic)
        check_subscription(subscription, partition_count=len(topic.partitions) if topic else None)
        assert topic is not None
        if not subscription.mode.is_point_to_point or (
            subscription.start.kind is StartKind.OFFSET
            and await self.claim_of(subscription.topic) is None
        ):
            # A PSB group, or a new PTP group, begins at this offset. A PTP group with a position ignores it.
            for index in subscription.partitions or range(len(topic.partitions)):
                partition = self._replicas.find(subscription.topic, index)
                if partition is not None:
                    check_partition_start(partition, subscription.start)
        if not subscription.mode.is_point_to_point:
            return None
        claim = await self._claims.claim(topic, subscription.group, subscription.mode)
        check_claim(subscription, claim)
        return claim

    async def claim_of(self, topic: str) -> Claim | None:
        known = self._store.image.topics.get(topic)
        return None if known is None else await self._claims.of_topic(known)

    async def unclaim(self, topic: str, group: str) -> Claim | None:
        known = self._store.image.topics.get(topic)
        return None if known is None else await self._claims.release(known, group)

    async def claims(self, group: str) -> list[Claim]:
        return await self._claims.of_group(group)

    async def local_claims(self) -> list[Claim]:
        return await self._claims.local()

    # Share partitions

    async def open(
        self,
        *,
        group: str,
        topic: str,
        partition: int,
        mode: SubscriptionMode,
        start: Start = Start(),  # noqa: B008  frozen
        owner: Owner | None = None,
        max_deliveries: int | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
        is_durable: bool = True,
    ) -> SharePartitionDelivery:
        served = self._replicas.partition(topic, partition)
        if mode is SubscriptionMode.PSB:
            check_partition_start(served, start)
        if mode.is_ordered and owner is None:
            raise InvalidRequest(f"a share partition of mode {mode} needs an owner")
        moves = mode is SubscriptionMode.PSB and start.kind is not StartKind.STORED
        committed: int | None = None
        if mode is SubscriptionMode.PTP_EXCLUSIVE:
            # A pull consumer may have owned the partition before and committed its position.
            committed = await self._positions.committed(group, topic, partition)
            if committed is not None:
                start = Start(StartKind.OFFSET, clamped(served, committed))
        given = await self.group_settings(group) if is_durable else {}
        retries = given.get(RETRY_SETTING, "")
        delivery = await self.open_share_partition(
            group=group,
            topic=topic,
            partition=partition,
            limits=self._settings.limits(mode, max_deliveries, isolation, retries),
            start=start,
            is_durable=is_durable,
            moves=moves,
        )
        if max_deliveries is not None:
            # A limit in the subscription replaces the current one, even if the current one is higher.
            delivery.limits = replace(
                delivery.limits,
                redelivery=replace(delivery.limits.redelivery, max_deliveries=max_deliveries),
            )
        if owner is not None:
            exclusive = mode is SubscriptionMode.PTP_EXCLUSIVE
            delivery.take_over(owner, waits_for_chooser=exclusive)
            if is_durable and delivery.mirror is None:
                delivery.mirror = PositionMirror(self._positions, group, topic, partition)
        if committed is not None:
            delivery.skip_to(committed)
        return delivery

    async def open_share_partition(
        self,
        *,
        group: str,
        topic: str,
        partition: int,
        limits: SharePartitionLimits,
        start: Start,
        is_durable: bool = True,
        moves: bool = False,
    ) -> SharePartitionDelivery:
        """The share partition, loaded at its stored position or new at `start`; with `moves` always at `start`."""
        served = self._replicas.partition(topic, partition)
        key = SharePartitionKey(group, served.topic_id, partition)
        if moves:
            self._close(key, NotLeaderOrFollower(f"group {group!r} was repositioned"))
        while True:
            found = self._share_partitions.get(key)
            if found is not None and found.served is served and not found.is_closed and not moves:
                found.limits = found.limits.widened_by(limits)
                found.opened_count += 1
                return found
            opening = self._opening.get(key)
            if opening is not None and moves:
                # Another caller is opening it at the stored position: wait for that, then close it.
                await asyncio.wait([opening])
                self._close(key, NotLeaderOrFollower(f"group {group!r} was repositioned"))
                continue
            if opening is None:
                opening = asyncio.get_running_loop().create_task(
                    self._load(key, served, limits, start, is_durable=is_durable, moves=moves)
                )
                self._opening[key] = opening
                opening.add_done_callback(lambda _: self._opening.pop(key, None))
            # Other callers may wait for the same task: cancelling one of them must not cancel it.
            await asyncio.shield(opening)
            moves = False

    async def _load(
        self,
        key: SharePartitionKey,
        served: Partition,
        limits: SharePartitionLimits,
        start: Start,
        *,
        is_durable: bool,
        moves: bool,
    ) -> SharePartitionDelivery:
        if len(self._share_partitions) >= self._settings.share_partitions_max:
            raise InvalidRequest(
                f"{len(self._share_partitions)} share partitions are open on this broker: the limit is reached"
            )
        self._check_serves(served)
        store: SharePartitionStore
        if is_durable:
            kept = PersistedSharePartitionStore(self._states, key, leader_epoch=served.leader_epoch)
            state = await kept.read()
            if state is None or moves:
                state = await self._new_state(served, start, limits.isolation)
                await kept.reset(state)
            elif (truncated := state.truncated_at(served.log_end_offset)) is not state:
                # The log lost records that the group has read, as can happen with a single disk. New records at
                # those offsets have not been delivered.
                logger.warning(
                    "group %s: %s ends at offset %d, but the group has read up to %d",
                    key.group_id,
                    served.topic_partition,
                    served.log_end_offset,
                    state.runs[-1].last_offset if state.runs else state.start_offset,
                )
                state = truncated
                await kept.reset(state)
            store = kept
        else:
            state = await self._new_state(served, start, limits.isolation)
            store = TransientSharePartitionStore()
        self._check_serves(served)
        share_partition = SharePartition(state, limits)
        delivery = SharePartitionDelivery(
            key,
            served,
            share_partition,
            store,
            dead_letters=self._dead_letters,
            filtered_batches=self._filtered_batches,
            clock=self._clock,
            on_closed=self._on_closed,
        )
        self._share_partitions[key] = delivery
        self._on_partition.setdefault(served.topic_partition, set()).add(delivery)
        logger.debug("group %s opened %s", key.group_id, served.topic_partition)
        return delivery

    async def _new_state(
        self, served: Partition, start: Start, isolation: Isolation
    ) -> SharePartitionState:
        # Only for a group without a position: with one, `start` is ignored.
        check_partition_start(served, start)
        return SharePartitionState(
            start_offset=first_offset(served, start, isolation),
            dead_letter_producer_id=await self._metadata_client.next_producer_id(),
        )

    def _check_serves(self, served: Partition) -> None:
        name = served.topic_partition
        if self._replicas.find(name.topic, name.partition) is not served:
            raise NotLeaderOrFollower(f"{name} is no longer served by this broker")
        served.check_leads()

    def find(self, group: str, topic: str, partition: int) -> SharePartitionDelivery | None:
        """The share partition if it is open."""
        served = self._replicas.find(topic, partition)
        if served is None:
            return None
        return self._share_partitions.get(SharePartitionKey(group, served.topic_id, partition))

    def opened(self) -> Iterable[SharePartitionDelivery]:
        return tuple(self._share_partitions.values())

    def close_if_idle(self, delivery: SharePartitionDelivery) -> None:
        """Close it if no member reads from it. Its state is persisted in its shard."""
        if delivery.is_idle:
            task = asyncio.get_running_loop().create_task(
                self._close_when_written(delivery, delivery.opened_count)
            )
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _close_when_written(
        self, delivery: SharePartitionDelivery, opened_count: int
    ) -> None:
        await delivery.settle()
        # A member that opened it meanwhile is about to acquire.
        if delivery.is_idle and delivery.opened_count == opened_count:
            delivery.close(NotLeaderOrFollower("the share partition was idle: open it again"))

    def _close(self, key: SharePartitionKey, reason: BrokerError) -> None:
        delivery = self._share_partitions.get(key)
        if delivery is not None:
            delivery.close(reason)

    def _on_closed(self, delivery: SharePartitionDelivery) -> None:
        self.counters.add(delivery)
        if self._share_partitions.get(delivery.key) is delivery:
            del self._share_partitions[delivery.key]
        name = delivery.served.topic_partition
        on_partition = self._on_partition.get(name, set())
        on_partition.discard(delivery)
        if not on_partition:
            self._on_partition.pop(name, None)

    # Groups

    async def share_partitions_of(self, group: str) -> Sequence[DescribedSharePartition]:
        """The persisted positions of a group."""
        asked = DescribeSharePartitionsRequest(group_id=group)
        return (
            await self._states.ask(group, asked, DescribeSharePartitionsResponse)
        ).share_partitions

    async def positions(self, group: str) -> list[GroupPosition]:
        request = DescribeSharePartitionsRequest(group_id=group)
        kept = await self._states.ask_local(request, DescribeSharePartitionsResponse)
        return group_positions(
            [each for each in self._share_partitions.values() if group in ("", each.group)],
            [share_partition for answer in kept for share_partition in answer.share_partitions],
            topics=self._store.image.topics_by_id,
            replicas=self._replicas,
        )

    async def reset(self, group: str, topic: Topic, partition: int, start_offset: int) -> None:
        """Restart at an offset. A broker that has the share partition open is fenced at its next write."""
        key = SharePartitionKey(group, topic.topic_id, partition)
        store = PersistedSharePartitionStore(self._states, key, leader_epoch=-1)
        producer_id = await self._metadata_client.next_producer_id()
        await store.reset(
            SharePartitionState(start_offset=start_offset, dead_letter_producer_id=producer_id)
        )
        self._close(key, NotLeaderOrFollower(f"group {group!r} was reset to offset {start_offset}"))

    async def delete(self, group: str, topics: Sequence[Topic] | None = None) -> None:
        """Delete the state of a group on these topics; None: on all topics, with its sessions and claims."""
        ids = None if topics is None else [topic.topic_id for topic in topics]
        request = DeleteSharePartitionsRequest(group_id=group, topic_ids=ids)
        await self._states.ask(group, request, DeleteSharePartitionsResponse)
        if topics is None:
            await self._claims.release_all(group)
        for key in [each for each in self._share_partitions if each.group_id == group]:
            if ids is None or key.topic_id in ids:
                self._close(key, NotLeaderOrFollower(f"the state of group {group!r} was deleted"))

    async def group_settings(
        self, group: str, sets: Mapping[str, str] | None = None, deletes: Sequence[str] = ()
    ) -> dict[str, str]:
        """The settings of a group after these changes. Other brokers see a change within seconds."""
        now_ms = self._clock.monotonic_ms()
        known = self._group_settings.get(group)
        changes = bool(sets or deletes)
        if known is not None and known[0] > now_ms and not changes:
            return known[1]
        request = GroupSettingsRequest(
            group_id=group,
            sets=[GroupSetting(name=name, value=value) for name, value in (sets or {}).items()],
            deletes=list(deletes),
        )
        try:
            answer = await self._states.ask(group, request, GroupSettingsResponse)
        except BrokerError:
            if known is None or changes:
                raise
            return known[1]  # expired settings are better than a failure
        settings = {each.name: each.value for each in answer.settings}
        if len(self._group_settings) >= GROUP_SETTINGS_KEPT_MAX:
            self._group_settings.clear()
        self._group_settings[group] = (now_ms + GROUP_SETTINGS_KEPT_MS, settings)
        return settings

    # Sessions

    async def save_session(self, session: PushSession) -> None:
        is_over = session.state is SessionState.ENDED
        request = SaveSessionRequest(
            group_id=session.group,
            consumer=session.consumer,
            topic=session.topic,
            session=None if is_over else session_value(session),
        )
        await self._states.ask(session.group, request, SaveSessionResponse)

    async def sessions(self, group: str | None = None) -> list[PushSession]:
        request = ListSessionsRequest(group_id=group or "")
        if group is not None:
            answers = [await self._states.ask(group, request, ListSessionsResponse)]
        else:
            answers = await self._states.ask_local(request, ListSessionsResponse)
        found = (
            read_session(SessionKey(each.group_id, each.consumer, each.topic), each.session)
            for answer in answers
            for each in answer.sessions
        )
        return [session for session in found if session is not None]

    # Metadata changes

    def apply(self, image: ClusterImage) -> None:
        """Apply a new metadata image: delete the state of topics that it no longer has."""
        gone = [
            topic
            for name, topic in self._topics.items()
            if (now := image.topics.get(name)) is None or now.topic_id != topic.topic_id
        ]
        self._topics = dict(image.topics)
        if gone:
            task = asyncio.get_running_loop().create_task(self._delete_topics_state(gone))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    def _on_leadership_changed(
        self, topic_partition: TopicPartition, leads: bool, leader_epoch: int
    ) -> None:
        """Close share partitions that were opened under another leader epoch: their records are delivered again."""
        for delivery in tuple(self._on_partition.get(topic_partition, ())):
            if not leads or delivery.leader_epoch != leader_epoch:
                delivery.close(
                    NotLeaderOrFollower(f"the leadership of {topic_partition} has changed")
                )

    async def _delete_topics_state(self, topics: Sequence[Topic]) -> None:
        """Delete the state of deleted topics from the shards that this broker leads."""
        request = DeleteSharePartitionsRequest(topic_ids=[topic.topic_id for topic in topics])
        try:
            await self._states.ask_local(request, DeleteSharePartitionsResponse)
        except BrokerError as reason:
            logger.warning("cannot delete the delivery state of deleted topics: %s", reason)

    async def close(self) -> None:
        """Persist pending updates for up to DRAIN_SECONDS_MAX, then close all share partitions."""
        share_partitions = tuple(self._share_partitions.values())
        draining = [asyncio.ensure_future(each.drain()) for each in share_partitions]
        if draining:
            await asyncio.wait(draining, timeout=DRAIN_SECONDS_MAX)
        for share_partition in share_partitions:
            share_partition.close(NotLeaderOrFollower("the broker is stopping"))
        tasks = [*draining, *self._background, *self._opening.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def topic_of(store: MetadataStore, name: str) -> Topic:
    """The topic, or UnknownTopicOrPartition."""
    topic = store.image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"there is no topic {name!r}")
    return topic
