"""Events of the audit log, and the bound on how many of them are written. Pure."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

# Different events of one flush. Beyond it events are counted, not written: a client that makes up names
# must not fill the disk.
EVENTS_MAX: Final = 500
NAME_CHARACTERS_MAX: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """Who did what to which resource, from where, and whether it was allowed."""

    principal: str
    host: str
    listener: str
    action: str  # the name of an API, or Authenticate
    operation: str  # such as WRITE; empty for Authenticate
    resource: str  # such as topic:orders; for Authenticate the mechanism
    allowed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which lines a reader asks for. Texts are parts of names, in any case."""

    principal: str = ""
    resource: str = ""
    allowed: bool | None = None

    def passes(self, event: Mapping[str, Any]) -> bool:
        """Whether a line that was read back passes. One about dropped events does, unless a name is sought."""
        if self.allowed is not None and event.get("allowed") is not self.allowed:
            return False
        return _has(event, "principal", self.principal) and _has(event, "resource", self.resource)


class AuditBuffer:
    """Events since the last flush. Equal ones are counted, so that a loop writes one line a flush."""

    def __init__(self) -> None:
        self._counts: dict[AuditEvent, int] = {}
        self._dropped = 0

    def add(self, event: AuditEvent) -> bool:
        """True for the first event since the last flush: there is something to flush."""
        is_first = not self._counts and not self._dropped
        if event in self._counts or len(self._counts) < EVENTS_MAX:
            self._counts[event] = self._counts.get(event, 0) + 1
        else:
            self._dropped += 1
        return is_first

    def take_lines(self, time: str) -> list[str]:
        """The lines to write, without their newlines. The buffer is empty after this."""
        counts, self._counts = self._counts, {}
        dropped, self._dropped = self._dropped, 0
        lines = [_line(time, event, count) for event, count in counts.items()]
        if dropped:
            lines.append(json.dumps({"time": time, "dropped": dropped}))
        return lines


def _has(event: Mapping[str, Any], name: str, sought: str) -> bool:
    return not sought or sought.lower() in str(event.get(name, "")).lower()


def _line(time: str, event: AuditEvent, count: int) -> str:
    """One JSON object in ASCII: whatever clients put into names stays inside its string."""
    facts = {
        name: value[:NAME_CHARACTERS_MAX] if isinstance(value, str) else value
        for name, value in asdict(event).items()
    }
    return json.dumps({"time": time, **facts, "count": count})
