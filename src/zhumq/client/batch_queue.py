"""Batches on their way to the leaders of their partitions: order, retries, bounds. Pure."""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from zhumq.model.address import Address
from zhumq.model.ids import TopicPartition

# Kafka's brokers remember the last five batches of a producer, and recognise no older one when it is repeated.
IN_FLIGHT_MAX: Final = 4  # requests to one broker, each with one batch of a partition
REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024  # a larger batch goes alone


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """A batch with its sequence: it is the same in each attempt."""

    place: TopicPartition
    number: int  # the order within the producer
    data: bytes


@dataclass(slots=True, eq=False)
class _Lane:
    """The batches of one partition."""

    waiting: deque[Batch]
    # Failed: they are sent again, in order, once all that is in flight is answered.
    returned: list[Batch]
    in_flight: int = 0
    address: Address | None = None  # of the broker that has those in flight


class BatchQueue:
    """Which batches may be sent now. A partition's batches reach its leader in order."""

    def __init__(self) -> None:
        self._lanes: dict[TopicPartition, _Lane] = {}

    @property
    def is_empty(self) -> bool:
        """Whether every batch is acknowledged."""
        return not self._lanes

    @property
    def has_waiting(self) -> bool:
        """Whether a batch is to be sent: now, or after the answers to others."""
        return any(lane.waiting or lane.returned for lane in self._lanes.values())

    def add(self, batch: Batch) -> None:
        lane = self._lanes.setdefault(batch.place, _Lane(deque(), []))
        lane.waiting.append(batch)

    def sendable(self) -> list[TopicPartition]:
        """The partitions of which a batch can be sent."""
        return [place for place, lane in self._lanes.items() if lane.waiting and not lane.returned]

    def take(
        self, address: Address, led: Collection[TopicPartition]
    ) -> dict[TopicPartition, Batch]:
        """The batches of the next request to a broker, one of each of the partitions that it leads."""
        taken: dict[TopicPartition, Batch] = {}
        size = 0
        for place in self.sendable():
            lane = self._lanes[place]
            batch = lane.waiting[0]
            # Batches in flight to an earlier leader are answered first, or these would overtake them.
            is_elsewhere = lane.in_flight > 0 and lane.address != address
            if is_elsewhere or place not in led:
                continue
            if taken and size + len(batch.data) > REQUEST_BYTES_MAX:
                continue
            lane.waiting.popleft()
            lane.in_flight += 1
            lane.address = address
            size += len(batch.data)
            taken[place] = batch
        return taken

    def done(self, batch: Batch) -> None:
        """The leader has the batch."""
        lane = self._lanes[batch.place]
        lane.in_flight -= 1
        self._settle(batch.place, lane)

    def give_back(self, batches: Iterable[Batch]) -> None:
        """These are to be sent again."""
        for batch in batches:
            lane = self._lanes[batch.place]
            lane.in_flight -= 1
            lane.returned.append(batch)
            self._settle(batch.place, lane)

    def is_behind_failure(self, place: TopicPartition) -> bool:
        """Whether an earlier batch of the partition failed: those after it are out of sequence."""
        return bool(self._lanes[place].returned)

    def clear(self) -> None:
        """Give all batches up."""
        self._lanes.clear()

    def _settle(self, place: TopicPartition, lane: _Lane) -> None:
        if lane.in_flight:
            return
        if lane.returned:
            lane.returned.sort(key=lambda batch: batch.number, reverse=True)
            lane.waiting.extendleft(lane.returned)
            lane.returned.clear()
        if not lane.waiting:
            del self._lanes[place]
