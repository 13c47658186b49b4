"""The share partitions of a stream, read in turn: whole batches from the log with the ranges to deliver."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from zhumq.coordinators.delivery_seam import Delivered, Delivery
from zhumq.filters.filter import Filter
from zhumq.model.errors import BrokerError
from zhumq.model.ids import TopicPartition
from zhumq.protocol.push import push_pb2 as pb

# Bytes per read: large enough to send whole batches cheaply, small enough that a stream that
# waits for a slow consumer holds little memory.
FRAME_BYTES: Final = 256 * 1024


class StreamPartition:
    """A share partition that one stream delivers from."""

    __slots__ = ("_last_records", "_unwatch", "blocked", "delivery", "place", "round")

    def __init__(self, delivery: Delivery, wake: Callable[[], None]) -> None:
        self.place = TopicPartition(delivery.topic, delivery.partition)
        self.delivery = delivery
        # Grows when ordered deliveries are released, and when the partition is opened again.
        self.round = 0
        # Not 0: nothing is acquired until a release or a revocation has finished.
        self.blocked = 0
        self._last_records: bytes | None = None
        self._unwatch = delivery.watch(wake)

    def close(self) -> None:
        self._unwatch()

    def frame(self, delivered: Delivered) -> pb.ServerFrame:
        """The frame to send. Records that the previous frame carried are left out."""
        records = delivered.records
        repeated = records is self._last_records
        self._last_records = records
        return pb.ServerFrame(
            messages=pb.Messages(
                topic=self.place.topic,
                partition=self.place.partition,
                round=self.round,
                ranges=[
                    pb.Range(
                        first_offset=each.first_offset,
                        last_offset=each.last_offset,
                        delivery_count=each.delivery_count,
                    )
                    for each in delivered.ranges
                ],
                records=b"" if repeated else records,
            )
        )


class StreamPartitions:
    """The share partitions of one stream."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self._turns: deque[StreamPartition] = deque()
        self._by_place: dict[TopicPartition, StreamPartition] = {}
        # The last round of partitions that are not open now: a client drops earlier rounds as stale.
        self._rounds: dict[TopicPartition, int] = {}
        # Acquired from a share partition, not yet sent.
        self._taken: deque[tuple[StreamPartition, Delivered]] = deque()

    def __iter__(self) -> Iterator[StreamPartition]:
        return iter(tuple(self._by_place.values()))

    def __contains__(self, place: TopicPartition) -> bool:
        return place in self._by_place

    @property
    def has_unsent(self) -> bool:
        return bool(self._taken)

    @property
    def places(self) -> frozenset[TopicPartition]:
        return frozenset(self._by_place)

    def find(self, place: TopicPartition) -> StreamPartition | None:
        return self._by_place.get(place)

    def add(self, delivery: Delivery) -> StreamPartition:
        """Add a delivery. It replaces an earlier one of the same partition."""
        place = TopicPartition(delivery.topic, delivery.partition)
        known = self._by_place.get(place)
        if known is not None and known.delivery is delivery:
            return known
        if known is not None:
            self.remove(place)
        stream_partition = StreamPartition(delivery, self.wake)
        stream_partition.round = self._rounds.pop(place, -1) + 1
        self._by_place[place] = stream_partition
        self._turns.append(stream_partition)
        self.wake()
        return stream_partition

    def remove(self, place: TopicPartition) -> StreamPartition | None:
        stream_partition = self._by_place.pop(place, None)
        if stream_partition is not None:
            stream_partition.close()
            self._turns.remove(stream_partition)
            self._rounds[place] = stream_partition.round
            self.discard_unsent(stream_partition)
        return stream_partition

    def discard_unsent(self, stream_partition: StreamPartition) -> None:
        """Discard what was acquired from it and not sent: it has been released."""
        self._taken = deque(each for each in self._taken if each[0] is not stream_partition)

    def take(
        self, member: str, room: int, lock_ms: int, bytes_max: float, message_filter: Filter | None
    ) -> "tuple[StreamPartition, Delivered] | PartitionClosed | None":
        """The next delivery of at most `room` messages; None: there is nothing now.

        PartitionClosed means that a share partition has closed; the caller removes it.
        """
        if self._taken:
            return self._taken.popleft()
        for _ in range(len(self._turns)):
            stream_partition = self._turns[0]
            self._turns.rotate(-1)
            if stream_partition.blocked:
                continue
            try:
                batches = stream_partition.delivery.acquire(
                    member,
                    records_max=room,
                    bytes_max=int(min(FRAME_BYTES, bytes_max)),
                    lock_ms=lock_ms,
                    message_filter=message_filter,
                )
            except BrokerError as error:
                return PartitionClosed(stream_partition, error)
            if batches and message_filter is not None:
                # A filter leaves little of what is read, and a frame costs more than a message.
                return stream_partition, Delivered.joined(batches)
            if batches:
                self._taken.extend((stream_partition, delivered) for delivered in batches)
                return self._taken.popleft()
        return None

    def close(self) -> None:
        for stream_partition in self:
            self.remove(stream_partition.place)


class PartitionClosed(BrokerError):
    """A share partition has closed: its partition moved, or was deleted."""

    def __init__(self, stream_partition: StreamPartition, cause: BrokerError) -> None:
        super().__init__(str(cause))
        self.stream_partition = stream_partition
