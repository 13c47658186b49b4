"""A delivered message, and the batches that messages arrive in, decoded on first use."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, overload

Headers = tuple[tuple[str, bytes | None], ...]
NO_HEADERS: Headers = ()
# As programs give them to producers.
HeaderPairs = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]

if TYPE_CHECKING:
    # Python 3.11 has no defaults of type variables; type checkers know them from here.
    from typing_extensions import TypeVar as TypeVarWithDefault

    V = TypeVarWithDefault("V", default=bytes)
    K = TypeVarWithDefault("K", default=bytes)
else:
    V = TypeVar("V")  # what values are
    K = TypeVar("K")  # what keys are


class Typed(Generic[V, K]):
    """A class with values and keys of some types, which may be left out: `Message[Order]`."""

    __slots__ = ()

    # Before Python 3.13 Generic knows no defaults, and would refuse one type of two.
    def __class_getitem__(cls, types: Any) -> GenericAlias:
        return GenericAlias(cls, types)


def pairs_of(headers: HeaderPairs | None) -> list[tuple[str, bytes | str | None]]:
    """The headers that a program gave, as a list."""
    return list(headers.items() if isinstance(headers, Mapping) else headers or ())


class Range(NamedTuple):
    """Delivered offsets with their delivery count."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AnswerKind(IntEnum):
    """The result of processing a message; the numbers are those of push.proto."""

    ACK = 0
    NACK = 1
    REJECT = 2
    EXTEND = 3
    RELEASE = 4


class Answer(NamedTuple):
    """A program's answer for a message. Equal answers share a frame."""

    kind: AnswerKind
    reason: str = ""
    # NACK: how long the message waits before it is delivered again; None: the broker's backoff.
    delay_ms: int | None = None


class Origin(Protocol):
    """The partition that messages came from; takes their answers."""

    # Where decoding stopped in a batch that arrives in parts.
    cursor: "Cursor | None"

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    def answer(
        self, first_offset: int, last_offset: int, answer: "Answer", round_: int
    ) -> None: ...

    def is_stale(self, round_: int, offset: int) -> bool:
        """Whether the broker has released this delivery."""


class Cursor(NamedTuple):
    """A position between two records of a batch."""

    records: bytes  # what the batch arrived in
    base_offset: int
    data: bytes  # its records, decompressed
    record_index: int  # of the next one
    position: int  # in the data


class Delivery:
    """What messages of one delivery share."""

    __slots__ = ("count", "gaps", "origin", "round")

    def __init__(self, origin: Origin, round_: int, count: int) -> None:
        self.origin = origin
        self.round = round_
        self.count = count
        # The offset range that a message's answer covers, if it is more than its own offset.
        self.gaps: dict[int, tuple[int, int]] | None = None


class Message(Typed[V, K]):
    """One message. Answer it once: `ack()`, `nack(reason)` or `reject(reason)`. Its value and key are bytes, or what the
    consumer's serializers make of them: `Message[Order]`, `Message[Order, str]`."""

    __slots__ = ("answered", "delivery", "headers", "key", "offset", "timestamp_ms", "value")

    delivery: Delivery
    offset: int
    timestamp_ms: int
    key: K | None
    value: V | None
    headers: Headers
    answered: bool

    @property
    def topic(self) -> str:
        return self.delivery.origin.topic

    @property
    def partition(self) -> int:
        return self.delivery.origin.partition

    @property
    def delivery_count(self) -> int:
        """How often the message has been delivered; 1: the first time."""
        return self.delivery.count

    @property
    def is_stale(self) -> bool:
        """Whether the broker has released the message: it delivers it again, here or elsewhere."""
        return self.delivery.origin.is_stale(self.delivery.round, self.offset)

    def ack(self) -> None:
        """The message is processed: never deliver it again."""
        self.answer(AnswerKind.ACK)

    def nack(self, reason: str = "", *, delay_ms: int | None = None) -> None:
        """Processing failed: deliver the message again, after `delay_ms` or the broker's backoff. A message
        that fails too often becomes a dead letter."""
        self.answer(AnswerKind.NACK, reason, delay_ms)

    def reject(self, reason: str = "") -> None:
        """The message cannot be processed by any consumer: make it a dead letter."""
        self.answer(AnswerKind.REJECT, reason)

    def release(self) -> None:
        """The message was not processed: deliver it to the next consumer. Not counted as a failure."""
        self.answer(AnswerKind.RELEASE)

    def extend(self) -> None:
        """The message is still being processed: restart its ack timeout."""
        if not self.answered:
            self._send_answer(Answer(AnswerKind.EXTEND))

    def answer(self, kind: AnswerKind, reason: str = "", delay_ms: int | None = None) -> None:
        if not self.answered:
            self.answered = True
            self._send_answer(Answer(kind, reason, delay_ms))

    def __repr__(self) -> str:
        return f"Message({self.topic}-{self.partition}@{self.offset}, value={self.value!r})"

    def _send_answer(self, answer: Answer) -> None:
        delivery, offset = self.delivery, self.offset
        first, last = (delivery.gaps or {}).get(offset, (offset, offset))
        delivery.origin.answer(first, last, answer, delivery.round)


class DecodedMessage(Message[V, K]):
    """A message whose value and key a serializer has decoded. Answered together with the one that has the bytes."""

    __slots__ = ("raw",)

    def __init__(self, raw: Message, value: V | None, key: K | None) -> None:
        self.raw = raw
        self.delivery = raw.delivery
        self.offset = raw.offset
        self.timestamp_ms = raw.timestamp_ms
        self.key = key
        self.value = value
        self.headers = raw.headers
        self.answered = raw.answered

    def answer(self, kind: AnswerKind, reason: str = "", delay_ms: int | None = None) -> None:
        # A revocation waits until the one with the bytes is answered.
        self.raw.answer(kind, reason, delay_ms)
        self.answered = True


class Unread(Iterator[Message]):
    """Messages that arrived and were not read yet, without those that have become stale. The last one can be put back."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.index = 0  # of the next one

    def __next__(self) -> Message:
        while self.index < len(self.messages):
            message = self.messages[self.index]
            self.index += 1
            if not message.is_stale:
                return message
        raise StopIteration

    def put_back(self) -> None:
        self.index -= 1


Decoder = Callable[[Origin, int, Sequence[Range], bytes], list[Message]]


class Selection(Protocol):
    """Which messages a program gets to see."""

    def unexpired(self, messages: list[Message]) -> list[Message]:
        """Those that are not expired. It answers the others."""


class MessageBatch(Sequence[Message]):
    """Messages of one partition that arrived together; answered as a whole or one by one."""

    __slots__ = (
        "_decode",
        "_decoded",
        "_messages",
        "_records",
        "origin",
        "ranges",
        "round",
        "selection",
    )

    def __init__(
        self,
        origin: Origin,
        round_: int,
        ranges: list[Range],
        records: bytes,
        decode: Decoder,
        selection: Selection | None = None,
    ) -> None:
        self.origin = origin
        self.round = round_
        self.ranges = ranges
        self._records = records
        self._decode = decode
        self.selection = selection  # None: the program sees all of them
        self._decoded: list[Message] = []
        self._messages: list[Message] | None = None

    @property
    def topic(self) -> str:
        return self.origin.topic

    @property
    def partition(self) -> int:
        return self.origin.partition

    @property
    def messages(self) -> list[Message]:
        """The messages, decoded on first use."""
        if self._messages is None:
            self._decoded = self._decode(self.origin, self.round, self.ranges, self._records)
            select = self.selection
            self._messages = self._decoded if select is None else select.unexpired(self._decoded)
        return self._messages

    def with_origin(self, origin: Origin) -> "MessageBatch":
        """The same batch, answered through another origin, and not decoded yet."""
        return MessageBatch(
            origin, self.round, self.ranges, self._records, self._decode, self.selection
        )

    def ack(self) -> None:
        """Ack all messages, except those that were answered one by one."""
        self._answer(AnswerKind.ACK)

    def release(self) -> None:
        """Release all messages, except those that were answered one by one."""
        self._answer(AnswerKind.RELEASE)

    def _answer(self, kind: AnswerKind) -> None:
        messages = self._decoded
        if any(each.answered for each in messages):
            for each in messages:
                each.answer(kind)
            return
        for first, last, _ in self.ranges:
            self.origin.answer(first, last, Answer(kind), self.round)
        for each in messages:
            each.answered = True

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self.messages[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)
