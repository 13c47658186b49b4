"""What a client waits for, in the log, and the cause when it gives up: errors of librdkafka, kept and told."""

import logging
import threading
import time
from typing import Any, Final

from confluent_kafka import KafkaError

logger = logging.getLogger("zhumq.client")

LOG_SECONDS_MIN: Final = 5.0  # between two lines about the same thing


class Waiting:
    """The last thing that went wrong on the way to the brokers.

    librdkafka connects again for ever and says so only here. A client that waits names this in its log
    line, and in the error it raises when it gives up.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._lock = threading.Lock()
        self._cause = ""
        self._logged_at = -LOG_SECONDS_MIN

    @property
    def cause(self) -> str:
        """What went wrong last; empty if nothing did."""
        with self._lock:
            return self._cause

    def on_error(self, error: Any) -> None:
        """librdkafka's `error_cb`."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self.cause:
            return  # It follows the error that says why.
        self.note(error.str())

    def note(self, cause: str) -> None:
        """Keep a cause, and log it unless a line was written a moment ago."""
        now = time.monotonic()
        with self._lock:
            self._cause = cause
            is_due = now - self._logged_at >= LOG_SECONDS_MIN
            if is_due:
                self._logged_at = now
        if is_due:
            logger.warning("waiting for a broker at %s: %s", self._bootstrap, cause)

    def explain(self, message: str) -> str:
        """A message with its cause, where one is known."""
        cause = self.cause
        return f"{message}: {cause}" if cause and cause not in message else message
