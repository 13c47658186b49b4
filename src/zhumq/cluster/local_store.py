"""The embedded metadata store of a single node: a journal of changes in the data folder."""

import asyncio
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

import crc32c

from zhumq.cluster.store import VersionConflict, Watcher
from zhumq.host.disk import Disk, DiskFile
from zhumq.metadata.changes import (
    Change,
    apply_changes,
    change_from_json,
    change_to_json,
    changes_of,
)
from zhumq.metadata.image import Broker, ClusterImage, PartitionState, Topic
from zhumq.model.errors import DataDirUnusable, StorageFailed
from zhumq.model.ids import BrokerId
from zhumq.model.replication_mode import Mode

logger = logging.getLogger(__name__)

JOURNAL_NAME: Final = "cluster-metadata.journal"
# After this many entries the journal is replaced by one snapshot, which bounds its size.
JOURNAL_ENTRIES_MAX: Final = 1_000
SECRET_NAME: Final = "cluster-secret"  # noqa: S105 (the name of a file)
SECRET_BYTES: Final = 32
# Its only broker is registered as long as the store is open.
BROKER_EPOCH: Final = 0


class LocalStore:
    """A journal of JSON lines with checksums. A line counts once it is synced.

    A line is `<crc32c in hex> <json>`. A crash may tear the last line: it was never acknowledged and
    is dropped. The broker does not start with any other invalid line.
    """

    def __init__(self, disk: Disk, path: str, image: ClusterImage, entries: int) -> None:
        self._disk = disk
        self._path = path
        self._image = image
        self._entries = entries
        self._watchers: list[Watcher] = []
        self._lock = asyncio.Lock()
        self._writing: set[asyncio.Task[ClusterImage]] = set()
        self._file: DiskFile = disk.open_file(path, create=True)
        # A failed sync is final: the content of the disk is unknown after it.
        self._failure: StorageFailed | None = None

    @classmethod
    def open(cls, data_dir: Path, *, disk: Disk, cluster_id: str, broker_id: BrokerId) -> Self:
        """Read the journal, or create one."""
        path = str(data_dir / JOURNAL_NAME)
        image = ClusterImage(
            version=0,
            cluster_id=cluster_id,
            controller_id=broker_id,
            brokers={},
            topics={},
            topics_by_id={},
        )
        content = disk.read_file(path) or b""
        changes, entries, valid_bytes = _read_journal(path, content)
        image = apply_changes(image, changes)
        _check_owner(image, broker_id)
        store = cls(disk, path, _with_leaders(image, {}, broker_id), entries)
        if len(content) > valid_bytes:
            store._file.truncate(valid_bytes)
        return store

    @property
    def image(self) -> ClusterImage:
        return self._image

    def secret(self) -> bytes:
        """A secret of this cluster of one broker, which is made at first use. Raises StorageFailed."""
        path = str(Path(self._path).with_name(SECRET_NAME))
        held = self._disk.read_file(path)
        if held is None or len(held) < SECRET_BYTES:
            held = secrets.token_bytes(SECRET_BYTES)
            self._disk.write_file(path, held, sync=True)
        return held

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    async def register(self, broker: Broker) -> None:
        async with self._lock:
            brokers = {broker.broker_id: broker}
            version = self._image.version + 1
            self._publish(replace(self._image, version=version, brokers=brokers))

    async def propose(self, changes: Sequence[Change], expected_version: int) -> ClusterImage:
        # A started proposal is completed even if its client disconnects: the journal and the image
        # must not diverge.
        writing = asyncio.get_running_loop().create_task(self._propose(changes, expected_version))
        self._writing.add(writing)
        writing.add_done_callback(self._written)
        return await asyncio.shield(writing)

    async def _propose(self, changes: Sequence[Change], expected_version: int) -> ClusterImage:
        async with self._lock:
            if self._image.version != expected_version:
                raise VersionConflict(f"at version {self._image.version}, not {expected_version}")
            before = self._image
            image = _with_leaders(
                apply_changes(before, changes), before.topics, before.controller_id
            )
            await asyncio.to_thread(self._write, changes, image)
            self._publish(image)
            return image

    async def close(self) -> None:
        await asyncio.gather(*self._writing, return_exceptions=True)
        async with self._lock:
            self._file.close()

    def _written(self, writing: asyncio.Task[ClusterImage]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled():
            writing.exception()  # Retrieved: the caller of `propose` got the error or was cancelled.

    def _publish(self, image: ClusterImage) -> None:
        self._image = image
        for watcher in self._watchers:
            watcher(image)

    def _write(self, changes: Sequence[Change], image: ClusterImage) -> None:
        if self._failure is not None:
            raise self._failure
        if self._entries >= JOURNAL_ENTRIES_MAX:
            self._disk.write_file(self._path, _encode_line(changes_of(image)), sync=True)
            self._file.close()
            self._file = self._disk.open_file(self._path)
            self._entries = 1
            return
        # Atomic: without disk space the append leaves the journal unchanged.
        self._file.append([_encode_line(changes)])
        try:
            self._file.sync()
        except StorageFailed as reason:
            self._failure = reason
            raise
        self._entries += 1


def _encode_line(changes: Sequence[Change]) -> bytes:
    body = json.dumps([change_to_json(change) for change in changes], separators=(",", ":"))
    data = body.encode()
    return b"%08x %s\n" % (crc32c.crc32c(data), data)


def _read_journal(path: str, content: bytes) -> tuple[list[Change], int, int]:
    """The changes, the number of lines, and how many bytes of the file are whole lines."""
    changes: list[Change] = []
    entries = 0
    position = 0
    while position < len(content):
        end = content.find(b"\n", position)
        parsed = _decode_line(content[position:end]) if end >= 0 else None
        if parsed is None:
            # A line and its newline are written together. So an invalid line with a newline was not
            # torn, and neither was a valid line whose newline is another byte.
            if end >= 0 or _decode_line(content[position:-1]) is not None:
                raise DataDirUnusable(
                    f"{path} is damaged at byte {position}: restore it from a copy"
                )
            logger.warning("dropped a torn last line of %s at byte %d", path, position)
            break
        changes.extend(parsed)
        entries += 1
        position = end + 1
    return changes, entries, position


def _decode_line(line: bytes) -> list[Change] | None:
    checksum, _, body = line.partition(b" ")
    try:
        if int(checksum, 16) != crc32c.crc32c(body):
            return None
        data: list[Mapping[str, object]] = json.loads(body)
        return [change_from_json(each) for each in data]
    except (ValueError, KeyError, TypeError):
        return None


def _check_owner(image: ClusterImage, broker_id: BrokerId) -> None:
    for topic in image.topics.values():
        for state in topic.partitions:
            if broker_id not in state.replicas:
                raise DataDirUnusable(
                    f"the data folder belongs to broker {state.replicas[0]}, not {broker_id}:"
                    f" start with --broker-id {state.replicas[0]}"
                )


def _with_leaders(
    image: ClusterImage, known: Mapping[str, Topic], broker_id: BrokerId
) -> ClusterImage:
    """Name the broker the leader of its raft partitions: with one replica there is nothing to elect, and the
    store is the controller. The topics that are known have their leaders already."""
    led = {
        name: replace(topic, partitions=tuple(_led(state, broker_id) for state in topic.partitions))
        for name, topic in image.topics.items()
        if known.get(name) is not topic
    }
    return replace(
        image,
        topics={**image.topics, **led},
        topics_by_id={**image.topics_by_id, **{each.topic_id: each for each in led.values()}},
    )


def _led(state: PartitionState, broker_id: BrokerId) -> PartitionState:
    if state.mode is Mode.FETCH:
        return state
    return replace(state, mode=Mode.FETCH, leader=broker_id, leader_broker_epoch=BROKER_EPOCH)
