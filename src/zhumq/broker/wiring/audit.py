"""Wiring of the audit log: where its file is, and who reports to it."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from zhumq.broker.audit_log import AuditFile, AuditLog
from zhumq.broker.config import BrokerConfig
from zhumq.host.clock import Clock
from zhumq.security.audit import AuditEvent

FILE_NAME = "audit.log"


def open_audit(
    config: BrokerConfig, clock: Clock, parts: contextlib.AsyncExitStack
) -> Callable[[AuditEvent], None]:
    """What takes the events of this broker. The file is made with the first of them."""
    settings = config.settings
    if not settings.boolean("audit.log.enable"):
        return lambda _: None
    path = settings.text("audit.log.file")
    log = AuditLog(
        AuditFile(
            path=Path(path) if path else config.data_dir / FILE_NAME,
            bytes_max=settings.integer("audit.log.max.bytes"),
            files=settings.integer("audit.log.files"),
        ),
        clock,
    )
    parts.push_async_callback(log.close)
    return log.record
