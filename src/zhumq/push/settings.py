"""Settings of the push endpoint: pings, ack timeouts, sessions."""

from dataclasses import dataclass, field

from zhumq.share.push_session import SessionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """Plain values from the broker's settings."""

    ping_interval_ms: int = 5_000
    # A consumer that sends no frame for this long, though pinged, is unreachable.
    ping_timeout_ms: int = 15_000
    # The ack timeout of a consumer that does not set one.
    ack_timeout_ms: int = 30_000
    ack_timeout_ms_max: int = 3_600_000
    # How often the broker sends a member's heartbeat, which bounds how soon it learns of a rebalance.
    heartbeat_interval_ms: int = 500
    streams_max: int = 10_000
    session: SessionPolicy = field(default_factory=SessionPolicy)
