"""One key through all topics that have an index of keys: where the same order, customer or device was written about."""

import time
from dataclasses import dataclass
from typing import Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AdminError, Unavailable
from zhumq.admin.lookup import FoundMessage, lookup
from zhumq.admin.settings import topics_with
from zhumq.admin.topics import list_topics

TOPICS_MAX: Final = 50  # that are looked into
PER_TOPIC_MAX: Final = 20  # messages, the newest ones
SECONDS_MAX: Final = 10.0
_INDEX: Final = "index.keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTrace:
    """The messages with a key, newest first."""

    messages: tuple[FoundMessage, ...]
    searched: tuple[str, ...]  # topics, by name
    left_out: tuple[
        str, ...
    ]  # topics with an index that were not looked into: too many, too slow, not permitted
    is_complete: bool  # False: older messages, or topics, were left out


def trace_key(
    connection: ClusterConnection, key: bytes, *, limit: int, seconds_max: float = SECONDS_MAX
) -> KeyTrace:
    """The newest messages with a key in the topics that have index.keys=true; 20 of each at most.

    Up to 50 topics are looked into, for ten seconds or so.
    """
    names = [each.topic for each in list_topics(connection) if not each.is_internal]
    topics = topics_with(connection, names, _INDEX, "true")
    deadline = time.monotonic() + seconds_max
    found: list[FoundMessage] = []
    searched: list[str] = []
    left_out = topics[TOPICS_MAX:]
    is_complete = not left_out
    for topic in topics[:TOPICS_MAX]:
        if time.monotonic() >= deadline:
            left_out.append(topic)
            continue
        try:
            part = lookup(connection, topic, key=key, limit=min(limit, PER_TOPIC_MAX))
        except Unavailable:
            raise
        except AdminError:
            # It may not be read, or is just being deleted.
            left_out.append(topic)
            continue
        searched.append(topic)
        found.extend(part.messages)
        is_complete = is_complete and part.is_complete
    found.sort(key=lambda each: (each.timestamp_ms, each.offset), reverse=True)
    return KeyTrace(
        messages=tuple(found[:limit]),
        searched=tuple(searched),
        left_out=tuple(sorted(left_out)),
        is_complete=is_complete and not left_out and len(found) <= limit,
    )
