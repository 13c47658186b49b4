"""Between a worker's readers and its processors: a task, where it came from, and what its handler sends."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from zhumq.client.message import HeaderPairs
from zhumq.client.task import Task

HeaderPair = tuple[str, bytes | str | None]


class Output(NamedTuple):
    """A message that a handler sends."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: HeaderPairs | None
    partition: int | None
    timestamp_ms: int | None


class Outputs:
    """What a handler sends for one task. It is sent if the handler returns, and dropped if it raises."""

    def __init__(self) -> None:
        self.messages: list[Output] = []

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: HeaderPairs | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Send a message with the transaction of the task. Its partition is the given one, else the key's, else any."""
        self.messages.append(Output(topic, value, key, headers, partition, timestamp_ms))


class Origin(Protocol):
    """Where a task came from: handles it, and learns how that ended."""

    def handle(self, task: Task) -> None: ...

    def send_to_dead_letters(self, task: Task, headers: Sequence[HeaderPair]) -> None: ...

    def mark_done(self, task: Task) -> None: ...

    def mark_abandoned(self, task: Task) -> None: ...


class Work(NamedTuple):
    """A task in the queue of a processor."""

    origin: Origin
    task: Task
