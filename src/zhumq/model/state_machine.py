"""The seam of every replicated state machine: requests in, records and replies out.

`handle` decides and never does: it returns the records that make the decision so and the replies
that may be sent once those records are durable. `replay` is the only writer of hard state and never
fails; the runtime calls it for each record of an outcome after appending it, and for the whole log
when a shard is loaded. Time is an argument everywhere.
"""

from dataclasses import dataclass, field
from typing import Generic, NewType, Protocol, TypeVar

ReplyToken = NewType("ReplyToken", int)
Request = TypeVar("Request", contravariant=True)
Response = TypeVar("Response", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRecord:
    """One key and its new value in the shard's log; None deletes the key."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Reply(Generic[Response]):
    """The answer to the request that came with this token."""

    token: ReplyToken
    response: Response


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[Response]):
    """What a shard decided. The replies wait until the records are durable."""

    records: tuple[StateRecord, ...] = ()
    replies: tuple[Reply[Response], ...] = field(default=())


class Shard(Protocol[Request, Response]):
    """A state machine whose hard state is exactly the replay of its log."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When `expire` wants to be called next; None while nothing is waiting."""

    def handle(self, request: Request, token: ReplyToken, now_ms: int) -> Outcome[Response]:
        """Decide on a request. Its reply may come now or in a later outcome."""

    def expire(self, now_ms: int) -> Outcome[Response]:
        """Act on every deadline that has passed."""

    def replay(self, record: StateRecord, now_ms: int) -> None:
        """Take over a record of the log. Never fails."""
