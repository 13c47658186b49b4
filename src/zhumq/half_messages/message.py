"""A half message without its body: its state, and the states that may follow. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from zhumq.model.ids import TopicPartition

ID_LENGTH_MAX: Final = 64
GROUP_LENGTH_MAX: Final = 249


class HalfState(StrEnum):
    """What is decided about a half message."""

    PENDING = "pending"  # its producer has not decided
    COMMITTED = "committed"  # on its way into its topic
    FAILED = "failed"  # committed, but its topic refuses it: an operator decides
    GIVEN_UP = "given-up"  # rolled back by the broker: no producer decided in time
    SENT = "sent"  # in its topic
    ROLLED_BACK = "rolled-back"


TRANSITIONS: Final[dict[HalfState, frozenset[HalfState]]] = {
    HalfState.PENDING: frozenset(
        {HalfState.PENDING, HalfState.COMMITTED, HalfState.ROLLED_BACK, HalfState.GIVEN_UP}
    ),
    HalfState.COMMITTED: frozenset({HalfState.SENT, HalfState.FAILED}),
    HalfState.FAILED: frozenset({HalfState.COMMITTED, HalfState.ROLLED_BACK}),
    HalfState.GIVEN_UP: frozenset({HalfState.COMMITTED, HalfState.ROLLED_BACK}),
    HalfState.SENT: frozenset(),
    HalfState.ROLLED_BACK: frozenset(),
}
# The body is needed no more: only the decision is remembered for a while, for a request that comes again.
ENDED: Final = frozenset({HalfState.SENT, HalfState.ROLLED_BACK})


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage:
    """What a shard keeps of a half message in memory. The body stays in the log, at `offset`."""

    id: str
    group: str  # of its producers
    target: TopicPartition
    offset: int
    prepared_ms: int
    state: HalfState = HalfState.PENDING
    checks: int = 0  # how often a producer was asked
    changed_ms: int = 0  # when it was asked last, or when the state was decided
    reason: str = ""  # of FAILED and GIVEN_UP


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What consumers will see."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size_bytes(self) -> int:
        """About as many bytes as its record."""
        size = len(self.key or b"") + len(self.value or b"")
        return size + sum(len(key) + len(value or b"") + 10 for key, value in self.headers)
