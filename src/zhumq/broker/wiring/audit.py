"""Wiring of the audit log: where its file is, who reports to it, and who reads it."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zhumq.broker.audit_log import AuditLog
from zhumq.broker.audit_reader import AuditReader
from zhumq.broker.config import BrokerConfig
from zhumq.host.clock import Clock
from zhumq.host.rotated_file import RotatedFile
from zhumq.security.audit import AuditEvent

FILE_NAME = "audit.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What takes the events of this broker, and what reads them; None: it writes no audit log."""

    record: Callable[[AuditEvent], None]
    reader: AuditReader | None


def open_audit(config: BrokerConfig, clock: Clock, parts: contextlib.AsyncExitStack) -> Audit:
    """The audit log of this broker. The file is made with the first event."""
    settings = config.settings
    if not settings.boolean("audit.log.enable"):
        return Audit(record=lambda _: None, reader=None)
    path = settings.text("audit.log.file")
    file = RotatedFile(
        path=Path(path) if path else config.data_dir / FILE_NAME,
        bytes_max=settings.integer("audit.log.max.bytes"),
        files=settings.integer("audit.log.files"),
    )
    log = AuditLog(file, clock)
    parts.push_async_callback(log.close)
    return Audit(record=log.record, reader=AuditReader(file))
