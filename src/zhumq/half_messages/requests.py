"""What a shard of half messages is asked, and what it answers."""

from dataclasses import dataclass
from enum import StrEnum

from zhumq.half_messages.message import Body, HalfMessage, HalfState
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Producer


class Decision(StrEnum):
    """What a producer or an operator says about a half message."""

    COMMIT = "commit"
    ROLL_BACK = "roll-back"
    UNKNOWN = "unknown"  # the answer to a check of a producer that does not know yet


class Problem(StrEnum):
    """Why a shard refuses a request."""

    INVALID = "invalid"
    UNKNOWN_ID = "unknown-id"
    DECIDED = "decided"  # the opposite, or its end, was decided before
    TOO_MANY = "too-many"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Store a half message. Answered with an Answer; the same id again is answered the same."""

    id: str
    group: str
    target: TopicPartition
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Decide:
    """Answered with an Answer. The same decision again is answered the same."""

    id: str
    group: str  # of the producer; empty for an operator, who also decides on what was given up or has failed
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLive:
    """Whether a producer of the group is connected that can be asked. Answered with an Answer."""

    group: str
    is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitChecks:
    """The broker that leads the shard asks for messages to check back on. Answered with Messages, once there are any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitCommitted:
    """The broker that leads the shard asks for committed messages that it moves into their topics. Answered with
    Messages, once there are any. The messages of the last answer are in a transaction by now, or are given again."""

    # Partitions that could not be written to a moment ago.
    avoided: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkSent:
    """These messages are in their topics, once the transaction of the producer is committed. Answered with an Answer."""

    ids: tuple[str, ...]
    producer: Producer


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkFailed:
    """The topic of a committed message refuses it. Answered with an Answer."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListHalfMessages:
    """Answered with Messages that are not ended, the oldest first. An empty filter lets all pass."""

    id: str = ""
    group: str = ""
    states: frozenset[HalfState] = frozenset()
    limit: int = 1_000


HalfRequest = (
    Prepare
    | Decide
    | SetLive
    | AwaitChecks
    | AwaitCommitted
    | MarkSent
    | MarkFailed
    | ListHalfMessages
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A code of the coordinator, or why the shard refuses the request."""

    code: ErrorCode = ErrorCode.NONE
    problem: Problem | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """Half messages without their bodies."""

    code: ErrorCode = ErrorCode.NONE
    messages: tuple[HalfMessage, ...] = ()
    has_more: bool = False  # than the limit of the list
    # AwaitCommitted: since the shard was loaded, a transaction with marks is open, maybe of an earlier leader.
    is_marked: bool = False


HalfResponse = Answer | Messages


def refusal(request: HalfRequest, code: ErrorCode) -> HalfResponse:
    """The answer of a broker that does not lead the shard."""
    if isinstance(request, (AwaitChecks, AwaitCommitted, ListHalfMessages)):
        return Messages(code=code)
    return Answer(code=code, message="this broker does not coordinate the group now")
