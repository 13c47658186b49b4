"""Message TTL: what a consumer does with messages whose `zhumq-ttl-ms` is over."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from zhumq.client.message import Headers, Message

TTL_HEADER: Final = "zhumq-ttl-ms"
TTL_DIGITS_MAX: Final = 20
OnExpired = Literal["drop", "dead-letter", "deliver"]
CHOICES: Final = ("drop", "dead-letter", "deliver")


@dataclass(slots=True, kw_only=True)
class ExpiredCounts:
    """How many messages a consumer did not get because their TTL was over, and how many had one that is none."""

    dropped: int = 0
    dead_lettered: int = 0
    malformed: int = 0


class Expiry:
    """Answers expired messages itself, so that the program never sees them.

    The TTL counts from the timestamp of the message. A TTL that is no whole number, or below zero, is
    ignored and counted: the message is delivered.
    """

    def __init__(
        self, choice: OnExpired, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        if choice not in CHOICES:
            raise ValueError(f"on_expired is drop, dead-letter or deliver, not {choice!r}")
        self._choice = choice
        self._now_ms = now_ms
        self.counts = ExpiredCounts()

    def unexpired(self, messages: list[Message]) -> list[Message]:
        """The messages that are not expired. The others are acked, or become dead letters."""
        if self._choice == "deliver" or not any(each.headers for each in messages):
            return messages
        now_ms = self._now_ms()
        return [each for each in messages if not each.headers or self._is_kept(each, now_ms)]

    def _is_kept(self, message: Message, now_ms: int) -> bool:
        ttl_ms = self._ttl_ms(message)
        if ttl_ms is None or message.timestamp_ms < 0:
            return True
        late_ms = now_ms - message.timestamp_ms - ttl_ms
        if late_ms <= 0:
            return True
        if self._choice == "drop":
            self.counts.dropped += 1
            message.ack()
        else:
            self.counts.dead_lettered += 1
            message.reject(f"expired: its {TTL_HEADER} of {ttl_ms} was over {late_ms} ms ago")
        return False

    def _ttl_ms(self, message: Message) -> int | None:
        """The TTL; None if there is none, or one that is counted as malformed."""
        try:
            return read_ttl_ms(message.headers)
        except ValueError:
            self.counts.malformed += 1
            return None


def read_ttl_ms(headers: Headers) -> int | None:
    """The TTL in these headers; None if there is none. Raises ValueError if it is no whole number, or below zero.

    Of several, the last one counts, as with all of Kafka's headers.
    """
    text: bytes | None = None
    for name, value in headers:
        if name == TTL_HEADER:
            text = value or b""
    if text is None:
        return None
    if text.isdigit() and len(text) < TTL_DIGITS_MAX:
        return int(text)
    raise ValueError(f"{TTL_HEADER}={text!r} is not a whole number of milliseconds")
