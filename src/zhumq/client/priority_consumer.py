"""A consumer of several topics by priority: each topic gets turns by its weight, and none starves."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final, Literal, Self

from zhumq.client.consumer import POLL_SECONDS, Consumer
from zhumq.client.expiry import ExpiredCounts, OnExpired
from zhumq.client.message import Message
from zhumq.client.security import Security
from zhumq.client.weighted_turns import WeightedTurns
from zhumq.model.isolation import IsolationLevel

# While no topic has messages each is waited for in turn, so the others' new messages wait this long.
IDLE_POLL_SECONDS: Final = 0.02
# A topic with a small weight is polled when its messages in this process are processed, which may take long.
POLL_INTERVAL_MS_MAX: Final = 3_600_000


class PriorityConsumer:
    """Pulls messages of several topics in a Kafka consumer group, more often of those with a larger weight.

    `{"urgent": 8, "normal": 1}`: while both have messages, eight of nine are urgent. A new urgent message
    overtakes all normal ones but those that the program has already. Within a partition the order
    holds. Messages are answered as those of Consumer.

    >>> import zhumq
    >>> with zhumq.Producer(bootstrap) as producer:
    ...     for number in range(2):
    ...         producer.send("jobs", b"normal %d" % number, partition=0)
    >>> weights = {"orders": 8, "jobs": 1}
    >>> with zhumq.PriorityConsumer(weights, group="docs-priorities", bootstrap=bootstrap) as consumer:
    ...     for message in consumer:
    ...         print(message.value.decode())
    ...         if message.offset == 1:
    ...             break
    normal 0
    normal 1
    """

    def __init__(
        self,
        weights: Mapping[str, int],
        *,
        group: str,
        bootstrap: str = "127.0.0.1:9092",
        start: Literal["earliest", "latest"] = "earliest",
        auto_ack: bool = True,
        max_deliveries: int = 0,
        isolation: IsolationLevel = "read_committed",
        filter: str = "",  # noqa: A002 (the protocol's word)
        on_expired: OnExpired = "drop",
        security: Security = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`weights` are whole numbers from 1 to 1000. The other options are those of Consumer."""
        self._turns = WeightedTurns(weights)
        self._auto_ack = auto_ack
        self._current: Message | None = None
        self._waiting: dict[str, deque[Message]] = {topic: deque() for topic in weights}
        self._consumers: dict[str, Consumer] = {}
        with ExitStack() as opened:
            # One member of the group for each topic: librdkafka does not say which topic's messages come next.
            for topic in weights:
                self._consumers[topic] = Consumer(
                    topic,
                    group=group,
                    bootstrap=bootstrap,
                    start=start,
                    auto_ack=False,
                    max_deliveries=max_deliveries,
                    isolation=isolation,
                    filter=filter,
                    on_expired=on_expired,
                    security=security,
                    settings={"max.poll.interval.ms": POLL_INTERVAL_MS_MAX} | dict(settings or {}),
                )
                opened.callback(self._consumers[topic].close)
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None and self._auto_ack and self._current is not None:
            self._current.ack()  # The program left the loop with `break` after this message.
        self.close()

    def __iter__(self) -> Iterator[Message]:
        while True:
            message = self.poll()
            if message is None:
                continue
            self._current = message
            yield message
            self._current = None
            if self._auto_ack:
                message.ack()

    def poll(self, seconds: float = POLL_SECONDS) -> Message | None:
        """The next message by priority, if one is there or arrives within this time. Answer it."""
        deadline = time.monotonic() + seconds
        self._fill(0)
        while not (ready := self._ready()):
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self._fill(min(left, IDLE_POLL_SECONDS))
        return self._waiting[self._turns.choose(ready)].popleft()

    @property
    def expired(self) -> dict[str, ExpiredCounts]:
        """How many messages of each topic were expired, so that the program did not get them."""
        return {topic: consumer.expired for topic, consumer in self._consumers.items()}

    def close(self) -> None:
        """Commit the processed messages and leave the group."""
        for waiting in self._waiting.values():
            waiting.clear()
        self._opened.close()

    def _fill(self, seconds: float) -> None:
        """Poll every topic that has no messages here. It waits for none once another topic has some."""
        for topic, waiting in self._waiting.items():
            if not waiting:
                waiting.extend(self._consumers[topic].poll(0 if self._ready() else seconds))

    def _ready(self) -> list[str]:
        """The topics whose next message is here. A message that was released is read again later."""
        for waiting in self._waiting.values():
            while waiting and waiting[0].is_stale:
                waiting.popleft()
        return [topic for topic, waiting in self._waiting.items() if waiting]
