"""AuditLog: the newest lines of this broker's audit log."""

import asyncio
from typing import Any, Final

from zhumq.broker.audit_reader import AuditReader, FoundLine, Place
from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.model.errors import BrokerError, InvalidConfig, InvalidRequest, StorageFailed
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.audit_log import AuditLine, AuditLogRequest, AuditLogResponse
from zhumq.security.audit import AuditFilter

LINES_MAX: Final = 1_000  # of one answer
_ALLOWED: Final = {-1: None, 0: False, 1: True}


class AuditLogHandler:
    """Reads the audit log, if this broker writes one."""

    def __init__(self, reader: AuditReader | None) -> None:
        self._reader = reader
        self._turn = asyncio.Lock()  # One reading at a time: each costs a thread and memory.

    def handlers(self) -> dict[ApiKey, Handler]:
        return {ApiKey.AUDIT_LOG: self.audit_log}

    async def audit_log(
        self, _context: RequestContext, request: AuditLogRequest
    ) -> AuditLogResponse:
        try:
            return await self._read(request)
        except BrokerError as reason:
            return AuditLogResponse(error_code=reason.code, error_message=str(reason))

    async def _read(self, request: AuditLogRequest) -> AuditLogResponse:
        if self._reader is None:
            raise InvalidConfig("this broker writes no audit log: it has audit.log.enable=false")
        if not 1 <= request.limit <= LINES_MAX or request.allowed not in _ALLOWED:
            raise InvalidRequest(f"an answer has 1 to {LINES_MAX} lines, not {request.limit}")
        before = Place(request.file, request.position) if request.file >= 0 else None
        selection = AuditFilter(
            principal=request.principal,
            resource=request.resource,
            allowed=_ALLOWED[request.allowed],
        )
        try:
            async with self._turn:
                found = await asyncio.to_thread(self._reader.read, before, request.limit, selection)
        except OSError as reason:
            raise StorageFailed(f"the audit log cannot be read: {reason.strerror}") from reason
        response = AuditLogResponse(
            lines=[_line(each) for each in found.lines], oldest_time=found.oldest_time
        )
        if found.next is not None:
            response.next_file, response.next_position = found.next
        return response


def _line(found: FoundLine) -> AuditLine:
    event = found.event
    return AuditLine(
        file=found.place.file,
        position=found.place.position,
        time=_text(event, "time"),
        principal=_text(event, "principal"),
        host=_text(event, "host"),
        listener=_text(event, "listener"),
        action=_text(event, "action"),
        operation=_text(event, "operation"),
        resource=_text(event, "resource"),
        allowed=event.get("allowed") is True,
        count=_number(event, "count"),
        dropped=_number(event, "dropped"),
    )


def _text(event: dict[str, Any], name: str) -> str:
    # A name may have half a surrogate pair, which no string of the protocol can hold.
    return str(event.get(name, "")).encode(errors="replace").decode()


def _number(event: dict[str, Any], name: str) -> int:
    value = event.get(name, 0)
    return min(value, 2**31 - 1) if isinstance(value, int) and value >= 0 else 0
