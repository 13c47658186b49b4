"""What changed between two looks at the cluster: topics, groups and brokers. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

EVENTS_PATH: Final = "/events"
# Of one kind between two looks. Above it there is one event that names none.
NAMED_MAX: Final = 500


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A change. `name` is the topic, the group or the id of the broker; null if very many have changed.

    `connected` is the first event of a stream, and the one after events were lost: read again what you show.
    """

    kind: Literal["topic", "group", "broker", "cluster"]
    change: Literal["created", "changed", "deleted", "connected", "unavailable", "available"]
    name: str | None = None
    detail: str | None = None


CONNECTED: Final = Event(kind="cluster", change="connected")
AVAILABLE: Final = Event(kind="cluster", change="available")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The cluster at one time: by name, what is compared."""

    topics: Mapping[str, Any]
    groups: Mapping[str, Any]
    brokers: Mapping[str, Any]


def changes(before: Snapshot, after: Snapshot) -> list[Event]:
    """The events from one time to another."""
    return [
        *_changes("broker", before.brokers, after.brokers),
        *_changes("topic", before.topics, after.topics),
        *_changes("group", before.groups, after.groups),
    ]


def unavailable(detail: str) -> Event:
    return Event(kind="cluster", change="unavailable", detail=detail)


def _changes(
    kind: Literal["topic", "group", "broker"], before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Event]:
    found = [
        *(Event(kind=kind, change="deleted", name=name) for name in before if name not in after),
        *(Event(kind=kind, change="created", name=name) for name in after if name not in before),
        *(
            Event(kind=kind, change="changed", name=name)
            for name, state in after.items()
            if name in before and before[name] != state
        ),
    ]
    if len(found) > NAMED_MAX:
        yield Event(kind=kind, change="changed")
    else:
        yield from found
