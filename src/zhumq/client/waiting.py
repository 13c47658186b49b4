"""Keeps librdkafka's last connection error: for the log while a client waits, and for the error it raises."""

import logging
import threading
import time
from typing import Any, Final

from confluent_kafka import KafkaError

from zhumq.client.errors import SecurityFailed
from zhumq.client.security import PLAINTEXT, ClientSecurity
from zhumq.model.address import parse_addresses

logger = logging.getLogger("zhumq.client")

LOG_SECONDS_MIN: Final = 5.0  # between two log lines
PROBE_SECONDS_MIN: Final = 5.0  # between two questions whether the security settings fit
CONFIRM_SECONDS: Final = (
    1.0  # and until a refusal is confirmed: a broker that stops closes connections, too
)
DEFAULT_PORT: Final = 9092


class Waiting:
    """The last error of the connections to the brokers.

    librdkafka reconnects forever and reports errors only through `error_cb`. A client that waits logs the
    last one, and adds it to the error that it raises when it gives up.
    """

    def __init__(self, bootstrap: str, security: ClientSecurity = PLAINTEXT) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._errors = 0
        self._errors_probed = 0
        self._probe_at = 0.0
        self._is_suspected = False  # A broker has refused the security settings once.
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
            with self._lock:
                self._errors += 1
            return  # It follows the error that names the reason.
        self.note(error.str())

    def note(self, cause: str) -> None:
        """Keep a cause, and log it, at most once in `LOG_SECONDS_MIN`."""
        now = time.monotonic()
        with self._lock:
            self._cause = cause
            self._errors += 1
            is_due = now - self._logged_at >= LOG_SECONDS_MIN
            if is_due:
                self._logged_at = now
        if is_due:
            logger.warning("waiting for a broker at %s: %s", self._bootstrap, cause)

    def raise_if_refused(self) -> None:
        """Raise SecurityFailed if the brokers refuse these security settings, as librdkafka retries for ever.

        Blocks for a few seconds after new errors, at most once in `PROBE_SECONDS_MIN`; else returns at once.
        """
        now = time.monotonic()
        with self._lock:
            if now < self._probe_at or (self._errors == self._errors_probed):
                return
            self._errors_probed = self._errors
            self._probe_at = now + PROBE_SECONDS_MIN
        refusal = self._find_refusal()
        if refusal is not None and self._is_suspected:
            raise refusal
        self._is_suspected = refusal is not None
        if self._is_suspected:
            self._probe_at = time.monotonic() + CONFIRM_SECONDS

    def _find_refusal(self) -> SecurityFailed | None:
        # Imported here: a client that is served needs no codecs.
        from zhumq.client.probe import find_refusal  # noqa: PLC0415

        try:
            addresses = parse_addresses(self._bootstrap, default_port=DEFAULT_PORT)
        except ValueError:
            return None  # librdkafka reports it.
        return find_refusal(addresses, security=self._security)

    def explain(self, message: str) -> str:
        """The message with the cause added, if one is known."""
        cause = self.cause
        return f"{message}: {cause}" if cause and cause not in message else message
