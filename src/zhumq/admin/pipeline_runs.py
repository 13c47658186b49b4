"""The topic `_pipelines`: the last progress of each pipeline that publishes it, one key a pipeline."""

import contextlib
from dataclasses import dataclass
from typing import Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AlreadyExists
from zhumq.admin.messages import read_messages
from zhumq.admin.offsets import EARLIEST, LATEST, resolve_offsets
from zhumq.admin.topics import create_topic, topic_descriptions

TOPIC: Final = "_pipelines"
DOCUMENT_BYTES_MAX: Final = 64 * 1024
# Small segments: the last one is never compacted, and readers read it all.
SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
_PARTITION: Final = 0
# A reader looks at so many of the newest messages: a compacted topic has far fewer.
MESSAGES_READ_MAX: Final = 20_000
BYTES_READ_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """The newest message of a pipeline. Any client that may write to the topic can have written it: readers check it."""

    pipeline: str
    document: bytes
    time_ms: int


def make_topic(connection: ClusterConnection) -> None:
    """Create the topic unless it exists."""
    if TOPIC not in topic_descriptions(connection, [TOPIC]):
        with contextlib.suppress(AlreadyExists):
            create_topic(connection, TOPIC, partitions=1, settings=SETTINGS)


def read_runs(connection: ClusterConnection) -> list[PublishedRun]:
    """The newest message of each pipeline, by name. None if nothing was published, or the caller may not see the topic."""
    if TOPIC not in topic_descriptions(connection, [TOPIC]):
        return []
    ends = resolve_offsets(connection, TOPIC, [_PARTITION], LATEST)
    first = resolve_offsets(connection, TOPIC, [_PARTITION], EARLIEST)[_PARTITION]
    page = read_messages(
        connection,
        TOPIC,
        begin={_PARTITION: max(first, ends[_PARTITION] - MESSAGES_READ_MAX)},
        ends=ends,
        limit=MESSAGES_READ_MAX,
        bytes_max=BYTES_READ_MAX,
    )
    found: dict[str, PublishedRun] = {}
    for message in page.messages:
        name = (message.key or b"").decode(errors="replace")
        if message.value is None:
            found.pop(name, None)
        elif name and len(message.value) <= DOCUMENT_BYTES_MAX:
            found[name] = PublishedRun(
                pipeline=name, document=message.value, time_ms=message.timestamp_ms
            )
    return [found[name] for name in sorted(found)]
