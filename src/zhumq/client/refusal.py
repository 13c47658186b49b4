"""Finds out, while a client retries in vain, whether the brokers refuse its security settings."""

import threading
import time
from typing import Final

from zhumq.client.errors import SecurityFailed
from zhumq.client.security import ClientSecurity
from zhumq.model.address import parse_addresses

PROBE_SECONDS_MIN: Final = 5.0  # between two questions
CONFIRM_SECONDS: Final = (
    1.0  # until a refusal is confirmed: a broker that stops closes connections, too
)
DEFAULT_PORT: Final = 9092


class RefusalWatch:
    """Asks a broker after errors, over a connection of its own, and raises what it says for good."""

    def __init__(self, bootstrap: str, security: ClientSecurity) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._lock = threading.Lock()
        self._errors = 0
        self._errors_probed = 0
        self._probe_at = 0.0
        self._is_suspected = False  # The last answer was a refusal.

    def note_error(self) -> None:
        with self._lock:
            self._errors += 1

    def check(self) -> None:
        """Raise SecurityFailed if two questions in a row were refused.

        Blocks for a few seconds after new errors, at most once in `PROBE_SECONDS_MIN`; else returns at once.
        """
        now = time.monotonic()
        with self._lock:
            if now < self._probe_at or self._errors == self._errors_probed:
                return
            self._errors_probed = self._errors
            self._probe_at = now + PROBE_SECONDS_MIN
        refusal = self._ask()
        if refusal is not None and self._is_suspected:
            raise refusal
        self._is_suspected = refusal is not None
        if self._is_suspected:
            self._probe_at = time.monotonic() + CONFIRM_SECONDS

    def _ask(self) -> SecurityFailed | None:
        # Imported here: a client that is served needs no codecs.
        from zhumq.client.probe import find_refusal  # noqa: PLC0415

        try:
            addresses = parse_addresses(self._bootstrap, default_port=DEFAULT_PORT)
        except ValueError:
            return None  # The client reports it.
        return find_refusal(addresses, security=self._security)
