"""Producers and consumers in a simulation, each with one request in flight."""

from typing import TYPE_CHECKING

from simulation.simulated_replica import Produce

if TYPE_CHECKING:
    from simulation.simulator import World

REQUEST_TIMEOUT_MS = 1_200


class SimulatedProducer:
    """Sends numbered messages one after another. With acks=-1 each until it is acknowledged."""

    def __init__(self, producer: int, world: "World", *, acks: int) -> None:
        self._world = world
        # Without acks=-1 a message may be lost, so the producer sends no sequence numbers.
        self._producer = producer if acks == -1 else -1
        self._acks = acks
        self._sequence = 0
        self._attempt = 0
        self._leader = world.draw_node()
        self.stopped = False
        self.last_offset = -1

    @property
    def repeats(self) -> bool:
        """Whether the message after the last acknowledged one may be in the log already."""
        return self._producer >= 0

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight that may still be acknowledged."""
        return self.stopped

    def send(self) -> None:
        """Send the current message, for the first time or again."""
        world = self._world
        if world.producers_stop and self._acks != -1:
            self.stopped = True
            return
        self._attempt += 1
        attempt = self._attempt
        produce = Produce(
            producer=self._producer,
            sequence=self._sequence,
            acks=self._acks,
            answer=lambda offset, hint: world.later(
                world.draw(1, 10), "produced", self._answered, attempt, offset, hint
            ),
        )
        world.later(world.draw(1, 15), "produce", world.deliver_produce, self._leader, produce)
        world.later(REQUEST_TIMEOUT_MS, "timeout", self._timed_out, attempt)

    def _answered(self, attempt: int, offset: int | None, hint: int | None) -> None:
        if attempt != self._attempt:
            return
        self._attempt += 1
        if offset is None:
            self._leader = hint if hint is not None else self._world.draw_node()
            self._world.later(self._world.draw(20, 150), "again", self.send)
            return
        self.last_offset = max(self.last_offset, offset)
        self._sequence += 1
        if self._world.producers_stop:
            self.stopped = True
            return
        self._world.later(self._world.think_ms(), "next", self.send)

    def _timed_out(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._leader = self._world.draw_node()
            self.send()


class SimulatedConsumer:
    """Reads from any broker that serves, up to the high watermark, without gaps."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.position = 0

    def poll(self) -> None:
        world = self._world
        broker = world.brokers[world.draw_node()]
        entries = broker.read(self.position)
        if entries:
            start = max(self.position, broker.log.log_start_offset)
            for offset, entry in enumerate(entries, start):
                world.checkers.consumed(offset, entry)
            self.position = start + len(entries)
        world.later(world.draw(50, 300), "poll", self.poll)
