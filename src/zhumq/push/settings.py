"""How the push door waits, pings and gives up."""

from dataclasses import dataclass, field

from zhumq.share.push_session import SessionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """Plain values from the broker's settings."""

    ping_interval_ms: int = 5_000
    # Nothing heard for so long, with pings sent: the consumer is lost.
    ping_timeout_ms: int = 15_000
    # How long an answer may take, where the consumer does not say.
    ack_timeout_ms: int = 30_000
    ack_timeout_ms_max: int = 3_600_000
    # How often a member's heartbeat is sent on its behalf: how soon it learns of a rebalance.
    heartbeat_interval_ms: int = 500
    streams_max: int = 10_000
    session: SessionPolicy = field(default_factory=SessionPolicy)
