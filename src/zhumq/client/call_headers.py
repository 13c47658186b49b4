"""Headers of request-reply: which call a message belongs to, and where its reply goes. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

CALL_HEADER: Final = "zhumq-call-id"
REPLY_TOPIC_HEADER: Final = "zhumq-reply-topic"
REPLY_PARTITION_HEADER: Final = "zhumq-reply-partition"
ERROR_HEADER: Final = "zhumq-error"

CALL_ID_BYTES_MAX: Final = 128
TOPIC_BYTES_MAX: Final = 249  # Kafka's longest name of a topic
ERROR_CHARACTERS_MAX: Final = 1_000
PARTITION_DIGITS_MAX: Final = 9

HeaderPair = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyAddress:
    """Where the reply to a request goes."""

    call_id: bytes
    topic: str
    partition: int

    def headers(self) -> list[tuple[str, bytes]]:
        """The headers of the request."""
        return [
            (CALL_HEADER, self.call_id),
            (REPLY_TOPIC_HEADER, self.topic.encode()),
            (REPLY_PARTITION_HEADER, b"%d" % self.partition),
        ]


def reply_address(headers: Iterable[HeaderPair]) -> ReplyAddress | None:
    """Where a request asks to be answered; None: nowhere, or at no possible address.

    An internal topic is no possible address: a service writes replies with its own rights.
    """
    found = _last_of_each(headers)
    call_id = found.get(CALL_HEADER)
    topic = found.get(REPLY_TOPIC_HEADER)
    partition = found.get(REPLY_PARTITION_HEADER)
    if not call_id or not topic or not partition:
        return None
    if len(call_id) > CALL_ID_BYTES_MAX or len(topic) > TOPIC_BYTES_MAX or topic[:2] == b"__":
        return None
    if not partition.isdigit() or len(partition) > PARTITION_DIGITS_MAX:
        return None
    try:
        return ReplyAddress(call_id=call_id, topic=topic.decode("ascii"), partition=int(partition))
    except UnicodeDecodeError:
        return None


def reply_headers(call_id: bytes, error: BaseException | None = None) -> list[tuple[str, bytes]]:
    """The headers of a reply; with an error, of one that says why there is no result."""
    headers = [(CALL_HEADER, call_id)]
    if error is not None:
        text = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]
        headers.append((ERROR_HEADER, text.encode(errors="replace")))
    return headers


def call_of(headers: Iterable[HeaderPair]) -> tuple[bytes | None, str | None]:
    """Which call a reply answers, and the error it reports."""
    found = _last_of_each(headers)
    error = found.get(ERROR_HEADER)
    return found.get(CALL_HEADER), None if error is None else error.decode(errors="replace")


def _last_of_each(headers: Iterable[HeaderPair]) -> dict[str, bytes]:
    """Of several headers with one name the last one counts, as with all of Kafka's."""
    return {name: value or b"" for name, value in headers}
