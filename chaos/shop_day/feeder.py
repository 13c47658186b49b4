"""Sends the messages of a day in order, tick by tick, as far as it may, and notes where each one is."""

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Delivered

from chaos.shop_day.facts import TICKS, Message

FLUSH_SECONDS_MAX: Final = 400.0  # longer than a message may take (message.timeout.ms)
Place = tuple[str, int, int]


class FeedFailed(Exception):
    """A message that no broker has acknowledged."""


class Feeder:
    """A thread that sends ticks up to the one that it may.

    Each tick is acknowledged before the next begins, so that no partition is ahead of the others by more:
    the time of a message never lies further behind a watermark than the day says.
    """

    def __init__(self, bootstrap: str, messages: Sequence[Message], *, tick_seconds: float) -> None:
        self.places: dict[int, Place] = {}
        self._ticks: dict[int, list[Message]] = defaultdict(list)
        for message in messages:
            self._ticks[message.tick].append(message)
        self._tick_seconds = tick_seconds
        self._failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._changed = threading.Condition()
        self._allowed = 0
        self._done = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._thread.start()

    @property
    def ticks_done(self) -> int:
        """How many ticks are acknowledged. Raises FeedFailed if a message is not."""
        with self._changed:
            if self._failed:
                raise FeedFailed(self._failed[0])
            return self._done

    def allow(self, tick: int) -> None:
        """Let it send the ticks before this one."""
        with self._changed:
            self._allowed = max(self._allowed, tick)
            self._changed.notify_all()

    def send(self, messages: Iterable[Message]) -> None:
        """Send messages now, and return when they are acknowledged. Raises FeedFailed."""
        sent = list(messages)
        for message in sent:
            self._produce(message)
        if self._producer.flush(FLUSH_SECONDS_MAX):
            left = [each for each in sent if each.number not in self.places]
            words = ", ".join(f"{each.number} of {each.topic} ({each.key!r})" for each in left)
            raise FeedFailed(f"not acknowledged in {FLUSH_SECONDS_MAX:g} s: {words}")
        if self._failed:
            raise FeedFailed(self._failed[0])

    def stop(self) -> None:
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        for tick in range(TICKS):
            with self._changed:
                self._changed.wait_for(lambda: tick < self._allowed or self._stopped.is_set())  # noqa: B023
            if self._stopped.is_set():
                return
            try:
                self.send(self._ticks.get(tick, ()))
            except FeedFailed as error:
                with self._changed:
                    self._failed.append(str(error))
                return
            with self._changed:
                self._done = tick + 1
            # The day has its own pace, which gives the pipelines more than one batch.
            self._stopped.wait(self._tick_seconds)

    def _produce(self, message: Message) -> None:
        while True:
            try:
                self._producer.produce(
                    message.topic,
                    message.value,
                    message.key,
                    timestamp=message.at_ms,
                    on_delivery=partial(self._delivered, message.number),
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return

    def _delivered(self, number: int, error: KafkaError | None, delivered: Delivered) -> None:
        if error is not None:
            self._failed.append(f"message {number}: {error}")
            return
        topic, partition, offset = delivered.topic(), delivered.partition(), delivered.offset()
        if topic is None or partition is None or offset is None:
            self._failed.append(f"message {number} is acknowledged without a place")
            return
        self.places[number] = (topic, partition, offset)
