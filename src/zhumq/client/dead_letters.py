"""Names of dead-letter topics, and the headers that record why and where a message failed."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

SUFFIX: Final = ".dlq"
GROUP: Final = "zhumq.group"
REASON: Final = "zhumq.reason"
DELIVERIES: Final = "zhumq.deliveries"
TOPIC: Final = "zhumq.topic"
PARTITION: Final = "zhumq.partition"
OFFSET: Final = "zhumq.offset"
TIME: Final = "zhumq.time"
TIMESTAMP: Final = "zhumq.timestamp"
STORY: Final = frozenset({GROUP, REASON, DELIVERIES, TOPIC, PARTITION, OFFSET, TIME, TIMESTAMP})

HeaderPair = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Why a message is a dead letter, and where it came from."""

    group: str
    reason: str
    deliveries: int
    topic: str
    partition: int
    offset: int
    time_ms: int

    def headers(self) -> list[tuple[str, bytes]]:
        texts = {
            GROUP: self.group,
            REASON: self.reason,
            DELIVERIES: str(self.deliveries),
            TOPIC: self.topic,
            PARTITION: str(self.partition),
            OFFSET: str(self.offset),
            TIME: str(self.time_ms),
        }
        return [(name, text.encode()) for name, text in texts.items()]


def topic_of(topic: str) -> str:
    """The dead-letter topic of a topic."""
    return f"{topic}{SUFFIX}"


def read_story(headers: Iterable[HeaderPair]) -> Story | None:
    """The story in these headers; None: the message is no dead letter."""
    found = {name: (value or b"").decode(errors="replace") for name, value in headers}
    try:
        return Story(
            group=found.get(GROUP, ""),
            reason=found.get(REASON, ""),
            deliveries=int(found.get(DELIVERIES, "0")),
            topic=found[TOPIC],
            partition=int(found[PARTITION]),
            offset=int(found[OFFSET]),
            time_ms=int(found.get(TIME, "0")),
        )
    except (KeyError, ValueError):
        return None


def original_headers(headers: Iterable[HeaderPair]) -> list[HeaderPair]:
    """The headers that the message had before it became a dead letter."""
    return [(name, value) for name, value in headers if name not in STORY]
