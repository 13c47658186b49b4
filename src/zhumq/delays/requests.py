"""What a shard of delayed messages is asked, and what it answers."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from zhumq.delays.due_index import Entry
from zhumq.delays.persisted import MessageKey, Position, Source
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Producer
from zhumq.protocol.messages.delays import DelayedRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Store the delayed records of a partition between two positions. Answered with Staged: the shard's own position, which
    is `until` if the records are stored."""

    source: Source
    topic: str
    begins: Position | None  # None: only ask
    until: Position
    records: tuple[DelayedRecord, ...] = ()
    now_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeDue:
    """The broker that leads the shard asks for messages that it moves into their topics. Answered with Due. The messages of
    the last answer are in a transaction by now, or are given again: those in `put_off` at the time there, those in `held`
    behind the others that wait for the same partition and were due before them."""

    now_ms: int
    put_off: Mapping[int, int] = field(default_factory=dict)  # serial -> when it is tried again
    held: Mapping[int, TopicPartition] = field(default_factory=dict)  # serial -> for what it waits
    avoided: Collection[TopicPartition] = ()  # Those that wait for these are left where they are.
    # Whether open transactions with marks will be committed. Otherwise the answer is that there are some.
    marks_count: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkMoved:
    """These messages are in their topics, once the transaction of the producer is committed. Answered with Ended."""

    keys: tuple[MessageKey, ...]
    producer: Producer


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """A message that was taken has lost its topic, or its record. Answered with Ended."""

    key: MessageKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Delete messages that are not due yet. Answered with Ended."""

    keys: tuple[MessageKey, ...]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Answered with Scanned: the messages behind this one, in the order of their due times."""

    after: MessageKey
    limit: int


NOWHERE: Final = Position(-1)  # Nothing of this partition was ever staged.

DelayRequest = Stage | TakeDue | MarkMoved | Drop | Cancel | Scan


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    code: ErrorCode = ErrorCode.NONE
    position: Position = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    code: ErrorCode = ErrorCode.NONE
    entries: tuple[Entry, ...] = ()
    resumed: tuple[tuple[TopicPartition, Entry], ...] = ()  # that waited for their partitions
    # Partitions that others still wait for: none of `entries` may overtake those.
    held: frozenset[TopicPartition] = frozenset()
    next_due_ms: int | None = None  # of those that do not wait for a partition
    # A transaction with marks is open, maybe of an earlier leader. Until it has ended there are no messages: one that
    # it has marked may be given again, and goes before them.
    is_marked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    code: ErrorCode = ErrorCode.NONE
    keys: tuple[MessageKey, ...] = ()  # that were ended by this request


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    code: ErrorCode = ErrorCode.NONE
    entries: tuple[Entry, ...] = ()
    has_more: bool = False
    pending: int = 0


DelayResponse = Staged | Due | Ended | Scanned


def refusal(request: DelayRequest, code: ErrorCode) -> DelayResponse:
    """The answer of a broker that does not lead the shard."""
    match request:
        case Stage():
            return Staged(code=code)
        case TakeDue():
            return Due(code=code)
        case Scan():
            return Scanned(code=code)
        case _:
            return Ended(code=code)
