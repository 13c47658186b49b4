"""Keeps librdkafka's last connection error: for the log while a client waits, and for the error it raises."""

import logging
import threading
import time
from typing import Any, Final

from confluent_kafka import KafkaError

from zhumq.client.refusal import RefusalWatch
from zhumq.client.security import PLAINTEXT, ClientSecurity

logger = logging.getLogger("zhumq.client")

LOG_SECONDS_MIN: Final = 5.0  # between two log lines


class Waiting:
    """The last error of the connections to the brokers.

    librdkafka reconnects forever and reports errors only through `error_cb`. A client that waits logs the
    last one, and adds it to the error that it raises when it gives up.
    """

    def __init__(self, bootstrap: str, security: ClientSecurity = PLAINTEXT) -> None:
        self._bootstrap = bootstrap
        self._refusal = RefusalWatch(bootstrap, security)
        self._lock = threading.Lock()
        self._cause = ""
        self._logged_at = -LOG_SECONDS_MIN

    @property
    def cause(self) -> str:
        """The last error; empty if there was none."""
        with self._lock:
            return self._cause

    def on_error(self, error: Any) -> None:
        """librdkafka's `error_cb`."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self.cause:
            self._refusal.note_error()
            return  # It follows the error that names the reason.
        self.note(error.str())

    def note(self, cause: str) -> None:
        """Keep a cause, and log it, at most once in `LOG_SECONDS_MIN`."""
        now = time.monotonic()
        self._refusal.note_error()
        with self._lock:
            self._cause = cause
            is_due = now - self._logged_at >= LOG_SECONDS_MIN
            if is_due:
                self._logged_at = now
        if is_due:
            logger.warning("waiting for a broker at %s: %s", self._bootstrap, cause)

    def raise_if_refused(self) -> None:
        """Raise SecurityFailed if the brokers refuse these security settings, as librdkafka retries for ever.

        May block for a few seconds.
        """
        self._refusal.check()

    def explain(self, message: str) -> str:
        """The message with the cause added, if one is known."""
        cause = self.cause
        return f"{message}: {cause}" if cause and cause not in message else message
