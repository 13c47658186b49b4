"""The interface of replicated state machines: requests in, records and replies out.

`handle` has no side effects: it returns the records of its decision, and the replies that may be sent
once those records are durable. `replay` alone changes the hard state, and never fails. The runtime
calls it for each record of an outcome after appending it, and for the whole log when a shard is
loaded. Time is always an argument.
"""

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, NewType, Protocol, TypeVar, runtime_checkable

ReplyToken = NewType("ReplyToken", int)
Request = TypeVar("Request", contravariant=True)
Response = TypeVar("Response", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRecord:
    """One key and its new value in the shard's log; None deletes the key."""

    key: bytes
    value: bytes | None
    offset: int = -1  # in the log, for a shard that refers to its records; set when it is replayed


class Producer(NamedTuple):
    """A producer with a transaction."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Reply(Generic[Response]):
    """The answer to the request that came with this token."""

    token: ReplyToken
    response: Response


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[Response]):
    """The decision of a shard. The runtime sends the replies once the records are durable."""

    records: tuple[StateRecord, ...] = ()
    replies: tuple[Reply[Response], ...] = field(default=())
    # The records belong to the transaction of this producer. The log may refuse them: then only the replies
    # are refused, so an outcome with a producer must have no effect besides its records.
    producer: Producer | None = None


class Shard(Protocol[Request, Response]):
    """A state machine whose hard state is exactly the replay of its log."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When to call `expire` next; None while no deadline is pending."""

    def handle(self, request: Request, token: ReplyToken, now_ms: int) -> Outcome[Response]:
        """Decide on a request. Its reply may come now or in a later outcome."""

    def expire(self, now_ms: int) -> Outcome[Response]:
        """Act on every deadline that has passed."""

    def replay(self, record: StateRecord, now_ms: int) -> None:
        """Apply a record of the log to the state. Never fails."""


@runtime_checkable
class ClosableShard(Protocol):
    """A shard that holds more than memory."""

    def unloaded(self) -> None:
        """It is not used any more."""


@runtime_checkable
class TransactionalShard(Protocol):
    """A shard whose records may belong to transactions of producers."""

    def replay_pending(self, producer_id: int, record: StateRecord, now_ms: int) -> None:
        """Keep a record of a transaction until the end of the transaction. Never fails."""

    def end_transaction(self, producer_id: int, now_ms: int, *, is_commit: bool) -> None:
        """Apply or forget the records of a producer's transaction. Markers may be repeated, and may come
        for a producer without any records. Never fails."""
