"""Sessions of push consumers, merged from all brokers: list them, and resume parked ones."""

from dataclasses import dataclass, fields, replace

from zhumq.admin.connection import ClusterConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A push consumer's session as the brokers report it."""

    name: str
    group: str
    consumer: str
    topics: tuple[str, ...]
    mode: str
    state: str  # active, retrying or parked
    reason: str
    attempt: int
    since_ms: int
    connected: bool
    in_flight: int
    delivered: int
    redelivered: int
    broker_id: int


# The fields that the brokers' answer has under the same names.
_SAME_FIELDS = {each.name for each in fields(Session)} - {"mode", "topics"}


def list_sessions(connection: ClusterConnection, group: str = "") -> list[Session]:
    """The sessions of a group's push consumers, or of all, on all brokers."""
    from zhumq.admin import push_calls  # noqa: PLC0415 (grpcio is an extra)

    found: dict[str, Session] = {}
    for answer in push_calls.call_all(connection, "ListSessions", group=group):
        for each in answer.sessions:
            same = {name: getattr(each, name) for name in _SAME_FIELDS}
            mode = push_calls.mode_name(each.mode) or "unknown"
            session = Session(mode=mode, topics=tuple(each.topics), **same)
            known = found.get(session.name)
            found[session.name] = session if known is None else _merge(known, session)
    return sorted(found.values(), key=lambda session: session.name)


def resume_session(connection: ClusterConnection, name: str) -> None:
    """Resume a parked session at its position. Raises NotFound."""
    from zhumq.admin import push_calls  # noqa: PLC0415 (grpcio is an extra)

    push_calls.call_all(connection, "ResumeSession", name=name)


def _merge(one: Session, other: Session) -> Session:
    """Merge one consumer's session from two brokers: the worse state, and the sum of the counts."""
    states = ("active", "retrying", "parked")
    worse = max(one, other, key=lambda each: (states.index(each.state), each.connected))
    return replace(
        worse,
        connected=one.connected or other.connected,
        in_flight=one.in_flight + other.in_flight,
        delivered=one.delivered + other.delivered,
        redelivered=one.redelivered + other.redelivered,
    )
