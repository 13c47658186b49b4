"""Throttles clients: what each has used of its quotas, and for how long its connection is not read."""

from typing import Final, Protocol

from zhumq.host.clock import Clock
from zhumq.metadata.image import ClusterImage
from zhumq.model.ids import Principal
from zhumq.net.service import ConnectionInfo
from zhumq.protocol.api import ApiKey
from zhumq.security.quota import QuotaKey, QuotaUse, Sampling

_MAPPED_IPV4: Final = "::ffff:"  # before the address of an IPv4 client on a listener for both
_NANOSECONDS_PER_PERCENT: Final = 10_000_000  # of a second


class Quotas(Protocol):
    """What the dispatcher and the handler of Fetch need to throttle clients."""

    # Without any quota the dispatcher saves the calls.
    is_active: bool

    def record_request(
        self, connection: ConnectionInfo, client_id: str | None, api_key: ApiKey, request_bytes: int
    ) -> int:
        """Counts requests that arrived, and throttles their connection. Returns for how long.

        KIP-219: the answer has the throttle time and is sent at once; the connection is read after it.
        """

    def take_back(
        self, connection: ConnectionInfo, client_id: str | None, request_bytes: int
    ) -> None:
        """Produce requests that were counted are handled, and counted, later."""

    def record_time(
        self, connection: ConnectionInfo, client_id: str | None, nanoseconds: int
    ) -> None:
        """Counts the time that requests have taken; the next one is throttled if it was too much."""

    def grant_fetch(
        self, connection: ConnectionInfo, client_id: str | None, answer_bytes: int
    ) -> tuple[bool, int]:
        """Whether an answer may have these bytes, and for how long its connection is throttled."""

    def record_fetch(
        self, connection: ConnectionInfo, client_id: str | None, answer_bytes: int
    ) -> int:
        """Counts the bytes of an answer that is sent in any case. Returns for how long it is throttled."""

    def fetch_bytes_max(self, connection: ConnectionInfo, client_id: str | None) -> float:
        """Larger answers would never be granted."""


class NoQuotas:
    """Throttles no client."""

    is_active = False

    def record_request(self, *_: object) -> int:
        return 0

    def take_back(self, *_: object) -> None: ...

    def record_time(self, *_: object) -> None: ...

    def grant_fetch(self, *_: object) -> tuple[bool, int]:
        return True, 0

    def record_fetch(self, *_: object) -> int:
        return 0

    def fetch_bytes_max(self, *_: object) -> float:
        return float("inf")


class ClientQuotas:
    """The quotas of the metadata image, applied to connections of the Kafka listeners and to push streams."""

    def __init__(self, sampling: Sampling, clock: Clock) -> None:
        self._use = QuotaUse(sampling)
        self._clock = clock
        self.is_active = False
        self._quotas: object = None

    def apply(self, image: ClusterImage) -> None:
        """A watcher of the metadata store."""
        quotas = image.security.quotas
        if quotas is not self._quotas:
            self._quotas = quotas
            self.is_active = bool(quotas)
            self._use.update(quotas)

    def record_request(
        self, connection: ConnectionInfo, client_id: str | None, api_key: ApiKey, request_bytes: int
    ) -> int:
        user, client = _user_of(connection.principal), client_id or ""
        now_ms = self._clock.monotonic_ms()
        # Time is recorded when a request has been handled: this is about those before.
        throttle_ms = self._use.record(QuotaKey.REQUEST, user, client, 0, now_ms)
        if api_key is ApiKey.PRODUCE:
            throttle_ms = max(
                throttle_ms,
                self._use.record(QuotaKey.PRODUCE, user, client, request_bytes, now_ms),
            )
        return _throttle(connection, throttle_ms)

    def take_back(
        self, connection: ConnectionInfo, client_id: str | None, request_bytes: int
    ) -> None:
        self._use.record(
            QuotaKey.PRODUCE,
            _user_of(connection.principal),
            client_id or "",
            -request_bytes,
            self._clock.monotonic_ms(),
        )

    def record_time(
        self, connection: ConnectionInfo, client_id: str | None, nanoseconds: int
    ) -> None:
        self._use.record(
            QuotaKey.REQUEST,
            _user_of(connection.principal),
            client_id or "",
            nanoseconds / _NANOSECONDS_PER_PERCENT,
            self._clock.monotonic_ms(),
        )

    def grant_fetch(
        self, connection: ConnectionInfo, client_id: str | None, answer_bytes: int
    ) -> tuple[bool, int]:
        is_granted, throttle_ms = self._use.grant(
            QuotaKey.FETCH,
            _user_of(connection.principal),
            client_id or "",
            answer_bytes,
            self._clock.monotonic_ms(),
        )
        return is_granted, _throttle(connection, throttle_ms)

    def record_fetch(
        self, connection: ConnectionInfo, client_id: str | None, answer_bytes: int
    ) -> int:
        throttle_ms = self.record_delivery(connection.principal, client_id or "", answer_bytes)
        return _throttle(connection, throttle_ms)

    def fetch_bytes_max(self, connection: ConnectionInfo, client_id: str | None) -> float:
        return self.delivery_bytes_max(connection.principal, client_id or "")

    def record_delivery(self, principal: Principal, client_id: str, size: int) -> int:
        """Counts bytes that are sent to a consumer. Returns for how long it is throttled."""
        if not self.is_active:
            return 0
        return self._use.record(
            QuotaKey.FETCH, _user_of(principal), client_id, size, self._clock.monotonic_ms()
        )

    def record_prepared(self, principal: Principal, client_id: str, size: int) -> int:
        """Counts bytes of half messages that a producer sends. Returns for how long it is throttled."""
        if not self.is_active:
            return 0
        return self._use.record(
            QuotaKey.PRODUCE, _user_of(principal), client_id, size, self._clock.monotonic_ms()
        )

    def delivery_bytes_max(self, principal: Principal, client_id: str) -> float:
        """More than this at once is above the quota even if nothing else is sent."""
        return self._use.amount_max(QuotaKey.FETCH, _user_of(principal), client_id)

    def connection_delay_ms(self, address: str) -> int:
        """Counts a new connection. Above 0: it is refused, after this time."""
        if not self.is_active:
            return 0
        is_granted, delay_ms = self._use.grant(
            QuotaKey.CONNECTION,
            address.removeprefix(_MAPPED_IPV4),
            "",
            1,
            self._clock.monotonic_ms(),
        )
        return 0 if is_granted else delay_ms


def _throttle(connection: ConnectionInfo, throttle_ms: int) -> int:
    if throttle_ms:
        connection.mute(throttle_ms)
    return throttle_ms


def _user_of(principal: Principal) -> str:
    return principal.partition(":")[2]
