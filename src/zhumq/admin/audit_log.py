"""The audit log of all brokers: who did what, from where, allowed or denied, newest first."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Refused, Unavailable
from zhumq.model.errors import RETRIABLE_CODES, ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.audit_log import AuditLine, AuditLogRequest, AuditLogResponse

_CHOICES: Final = {None: -1, False: 0, True: 1}


class AuditPlace(NamedTuple):
    """A place in the audit log of a broker: one of its files, and where in it. Brokers know what the numbers mean."""

    file: int
    position: int


NEWEST: Final = AuditPlace(-1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One line of an audit log. Equal events of a moment are one line with their count."""

    id: str  # of the line, as long as it is kept
    broker: int
    time_ms: int | None  # None: the line has no time that can be read
    principal: str
    host: str
    listener: str
    action: str  # the name of an API, or Authenticate
    operation: str  # such as WRITE; empty for Authenticate
    resource: str  # such as topic:orders; for Authenticate the mechanism
    allowed: bool
    count: int
    dropped: int  # Not 0: so many events were not written, as there were too many; the line has no others.


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """Lines of all brokers, newest first, and where each broker goes on. A broker that has no more is not in it."""

    records: tuple[AuditRecord, ...]
    next: Mapping[int, AuditPlace]


def read_audit(
    connection: ClusterConnection,
    *,
    limit: int,
    begin: Mapping[int, AuditPlace] | None = None,
    principal: str = "",
    resource: str = "",
    allowed: bool | None = None,
) -> AuditPage:
    """The newest lines that pass the filter, or those from `next` of the page before on.

    `principal` and `resource` are parts of names, in any case. A broker looks at a bounded number of lines: a page may have
    fewer than `limit` although there are more. Raises Refused without the right to alter the cluster.
    """
    addresses = connection.broker_addresses()
    places = dict.fromkeys(addresses, NEWEST) if begin is None else begin
    answers = {}
    for broker in sorted(places.keys() & addresses.keys()):
        request = AuditLogRequest(
            file=places[broker].file,
            position=places[broker].position,
            limit=limit,
            principal=principal,
            resource=resource,
            allowed=_CHOICES[allowed],
        )
        answers[broker] = _ask(connection, request, broker, addresses[broker])
    return merged(answers, places, limit)


def merged(
    answers: Mapping[int, AuditLogResponse], places: Mapping[int, AuditPlace], limit: int
) -> AuditPage:
    """The page that is made of the answers of brokers to requests from these places."""
    # What is older than this may have newer lines before it, at which a broker has not looked yet.
    horizon = max(
        (each.oldest_time for each in answers.values() if each.next_file >= 0), default=""
    )
    lines = [
        (line, broker)
        for broker, answer in answers.items()
        for line in answer.lines
        if line.time >= horizon
    ]
    # The sort is stable: the lines of a broker stay in their order.
    lines.sort(key=lambda each: each[0].time, reverse=True)
    taken = lines[:limit]
    following = {}
    for broker, answer in answers.items():
        mine = [line for line, of in taken if of == broker]
        if len(mine) < len(answer.lines):
            last = mine[-1] if mine else None
            following[broker] = (
                places[broker] if last is None else AuditPlace(last.file, last.position)
            )
        elif answer.next_file >= 0:
            following[broker] = AuditPlace(answer.next_file, answer.next_position)
    return AuditPage(records=tuple(_record(line, broker) for line, broker in taken), next=following)


def _ask(
    connection: ClusterConnection, request: AuditLogRequest, broker: int, address: str
) -> AuditLogResponse:
    answer: AuditLogResponse = connection.request(ApiKey.AUDIT_LOG, request, address=address)
    code = ErrorCode(answer.error_code)
    if code is ErrorCode.NONE:
        return answer
    reason = answer.error_message or code.name.lower().replace("_", " ")
    kind = Unavailable if code in RETRIABLE_CODES else Refused
    raise kind(f"broker {broker} shows no audit log: {reason}", code=code.name)


def _record(line: AuditLine, broker: int) -> AuditRecord:
    return AuditRecord(
        id=f"{broker}:{line.file}:{line.position}",
        broker=broker,
        time_ms=_milliseconds(line.time),
        principal=line.principal,
        host=line.host,
        listener=line.listener,
        action=line.action,
        operation=line.operation,
        resource=line.resource,
        allowed=line.allowed,
        count=line.count,
        dropped=line.dropped,
    )


def _milliseconds(text: str) -> int | None:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
