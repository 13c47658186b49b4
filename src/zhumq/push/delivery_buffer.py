"""The delivery buffer of one stream: its open share partitions and its in-flight deliveries."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Final

from zhumq.coordinators.delivery_seam import NO_EPOCH, Owner
from zhumq.model.errors import BrokerError, NotLeaderOrFollower
from zhumq.model.ids import TopicPartition
from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.frames import Refusal, leaders
from zhumq.push.in_flight_deliveries import InFlightDeliveries
from zhumq.push.services import PushServices
from zhumq.push.sessions import Traffic
from zhumq.push.stream_partitions import PartitionClosed, StreamPartition, StreamPartitions
from zhumq.push.subscribing import Accepted
from zhumq.share.subscription import PartitionTaken, Start, StartKind

# The acquisition lock outlives the ack deadline by this much, so that the stream acts first.
LOCK_GRACE_MS: Final = 1_000
REOPEN_SECONDS: Final = 0.2


class DeliveryBuffer:
    """Opens partitions, acquires messages, releases them. `send` queues a small frame for the client."""

    def __init__(
        self,
        services: PushServices,
        accepted: Accepted,
        member: str,
        *,
        send: Callable[[pb.ServerFrame], None],
        wake: Callable[[], None],
    ) -> None:
        self._services = services
        self._accepted = accepted
        self._send = send
        self.member = member
        self.epoch = NO_EPOCH  # of the member, in PTP exclusive
        self.stream_partitions = StreamPartitions(wake)
        self.in_flight_deliveries = InFlightDeliveries()
        self._delivered = 0
        self._redelivered = 0
        self._reopening: set[TopicPartition] = set()
        # Partitions assigned to this member while a consumer that chose them still holds them.
        self._taken: set[TopicPartition] = set()
        self._sent_leaders = self.leaders(accepted.places)

    @property
    def lock_ms(self) -> int:
        return self._accepted.ack_timeout_ms + LOCK_GRACE_MS

    @property
    def traffic(self) -> Traffic:
        return Traffic(
            in_flight=self.in_flight_deliveries.count,
            delivered=self._delivered,
            redelivered=self._redelivered,
        )

    def leaders(self, places: Iterable[TopicPartition]) -> list[pb.Leader]:
        return leaders(self._services.image, places, self._services.push_addresses())

    async def open(self, place: TopicPartition, *, first_time: bool) -> None:
        """Open a partition if this broker leads it; else send the client its leader."""
        accepted = self._accepted
        if not self._services.leads(place):
            self.send_moved(place)
            return
        start = accepted.start if first_time else accepted.continued_start
        if place not in accepted.places:
            # The partition was added after the subscription: deliver it from its first message.
            start = Start(StartKind.STORED, otherwise=StartKind.EARLIEST)
        owner = None
        if accepted.mode.is_ordered:
            owner = Owner(member=self.member, epoch=self.epoch)
        try:
            delivery = await self._services.deliveries.open(
                group=accepted.session.group,
                topic=place.topic,
                partition=place.partition,
                mode=accepted.mode,
                start=start,
                owner=owner,
                max_deliveries=accepted.max_deliveries,
                isolation=accepted.isolation,
                is_durable=not accepted.anonymous,
            )
        except NotLeaderOrFollower:
            self.send_moved(place)
        except PartitionTaken as error:
            if self.epoch == NO_EPOCH:
                raise Refusal.of(error) from error
            self._taken.add(place)
        except BrokerError as error:
            raise Refusal.of(error) from error
        else:
            self._taken.discard(place)
            self.stream_partitions.add(delivery)

    async def open_taken(self) -> None:
        """Try again to open assigned partitions that another consumer held."""
        for place in tuple(self._taken):
            await self.open(place, first_time=True)

    def forget(self, places: frozenset[TopicPartition]) -> None:
        """Close partitions that this consumer no longer owns."""
        self._taken -= places
        for place in places:
            self.stream_partitions.remove(place)
            self.in_flight_deliveries.drop(place)

    async def open_missing(self) -> None:
        """Open the partitions of the subscription that this broker leads and has not opened."""
        for place in self._places():
            missing = place not in self.stream_partitions and place not in self._reopening
            if missing and self._services.leads(place):
                await self.open(place, first_time=False)

    def send_leaders(self) -> None:
        """Send the client the partition leaders, if they changed since the last time."""
        leaders_now = self.leaders(self._places())
        if leaders_now != self._sent_leaders:
            self._sent_leaders = leaders_now
            self._send(pb.ServerFrame(moved=pb.Moved(leaders=leaders_now)))

    def _places(self) -> list[TopicPartition]:
        """The partitions of the subscription, with those added since."""
        places = dict.fromkeys(self._accepted.places)
        topics = self._services.image.topics
        for name in self._accepted.whole_topics & topics.keys():
            for index in range(len(topics[name].partitions)):
                places[TopicPartition(name, index)] = None
        return list(places)

    def send_moved(self, place: TopicPartition) -> None:
        self._send(pb.ServerFrame(moved=pb.Moved(leaders=self.leaders([place]))))

    def take(self, room: int, bytes_max: float) -> pb.ServerFrame | PartitionClosed | None:
        """The next delivery as a frame, in flight from now on. None: nothing to deliver."""
        taken = self.stream_partitions.take(
            self.member, room, self.lock_ms, bytes_max, self._accepted.message_filter
        )
        if taken is None or isinstance(taken, PartitionClosed):
            return taken
        stream_partition, delivered = taken
        deadline_ms = self._services.clock.monotonic_ms() + self._accepted.ack_timeout_ms
        for each in delivered.ranges:
            self.in_flight_deliveries.add(
                stream_partition.place, each.first_offset, each.last_offset, deadline_ms
            )
            count = each.last_offset - each.first_offset + 1
            self._delivered += count
            if each.delivery_count > 1:
                self._redelivered += count
        return stream_partition.frame(delivered)

    async def reopen(self, closed: PartitionClosed) -> None:
        """Reopen a closed share partition: its partition moved, or its state has to be loaded again."""
        place = closed.stream_partition.place
        if self.stream_partitions.find(place) is closed.stream_partition:
            self.stream_partitions.remove(place)
        self.in_flight_deliveries.drop(place)
        if not self._services.exists(place):
            raise Refusal(pb.UNKNOWN_TOPIC, f"{place} was deleted")
        if not self._services.leads(place):
            self.send_moved(place)
            return
        self._reopening.add(place)
        try:
            await asyncio.sleep(REOPEN_SECONDS)
            await self.open(place, first_time=False)
        finally:
            self._reopening.discard(place)

    async def release(self, stream_partition: StreamPartition, reason: str) -> None:
        """Release the in-flight deliveries of a partition; in ordered mode from the first one on."""
        self.stream_partitions.discard_unsent(stream_partition)
        self.in_flight_deliveries.drop(stream_partition.place)
        stream_partition.round += 1
        with contextlib.suppress(BrokerError):
            await stream_partition.delivery.release_member(self.member, reason, counts=bool(reason))

    async def release_all(self, reason: str) -> None:
        for stream_partition in self.stream_partitions:
            await self.release(stream_partition, reason)

    async def release_overdue(self, reason: str) -> None:
        """Release the in-flight deliveries past their ack deadline."""
        for place, piece in list(
            self.in_flight_deliveries.overdue(self._services.clock.monotonic_ms())
        ):
            if not self._accepted.mode.is_ordered:
                # Its acquisition lock expires just after this; then any consumer may acquire it.
                self.in_flight_deliveries.remove(place, piece.first_offset, piece.next_offset - 1)
                continue
            stream_partition = self.stream_partitions.find(place)
            if stream_partition is not None and self.in_flight_deliveries.count_of(place):
                await self.release(stream_partition, reason)
