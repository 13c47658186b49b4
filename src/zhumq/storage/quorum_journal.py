"""The quorum states of this broker's replicas: epochs, votes, modes. One file, one sync for many."""

import logging
import struct
import uuid
from collections.abc import Iterable, Mapping
from typing import Final

from zhumq.consensus.contract import NO_EPOCH, Mode, QuorumState
from zhumq.host.disk import Disk, DiskFile
from zhumq.model.errors import DiskFull, StorageFailed
from zhumq.records.codecs import crc32c

logger = logging.getLogger(__name__)

QUORUM_FILE: Final = "quorum-journal"
# The file: | magic 8s | entries |. An entry:
# | crc u32 | topic id 16s | partition i32 | epoch i64 | voted for i32 | leader id i32 | flags u8 |
# | accepted epoch i64 | accepted offset i64 |
_MAGIC: Final = b"zhumqQJ2"
_ENTRY = struct.Struct(">I16siqiiBqq")
# Without magic: a file of an earlier release, which had no accepted epochs.
_ENTRY_BEFORE = struct.Struct(">I16siqiiB")
_CRC_BYTES: Final = 4
_NO_BROKER: Final = -1
_FETCH_FLAG: Final = 1
_RECOVERING_FLAG: Final = 2
_VOTES_UNKNOWN_FLAG: Final = 4
_FORGOTTEN_FLAG: Final = 8
# The file is rewritten once it holds this many entries for each live one.
_ENTRIES_PER_LIVE_MAX: Final = 4
_ENTRIES_MIN: Final = 10_000

ReplicaKey = tuple[uuid.UUID, int]


class QuorumJournal:
    """One thread at a time appends; the event loop reads.

    The newest entry of a replica counts. A torn end was never acknowledged and is truncated. After a
    damaged entry, persisted votes may be missing, so none of them is trusted.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._states: dict[ReplicaKey, QuorumState] = {}
        self._failure: StorageFailed | None = None
        data = disk.read_file(path)
        # Whether all persisted votes are here. Unknown for a broker that has logs, but no journal.
        self.is_intact = data is not None
        self.is_missing = data is None
        self._entries_count = 0
        is_current = data is not None and data.startswith(_MAGIC)
        end = self._load(data or b"", _ENTRY if is_current else _ENTRY_BEFORE)
        # None: the first write creates the file, or rewrites it in the current format.
        self._file = self._open_at(end) if is_current else None

    @property
    def states(self) -> Mapping[ReplicaKey, QuorumState]:
        return self._states

    def find(self, key: ReplicaKey) -> QuorumState | None:
        return self._states.get(key)

    def admit(self, losses: Iterable[tuple[ReplicaKey, QuorumState]]) -> None:
        """Start a new journal that records the lost states of these replicas. The file is replaced
        atomically: until then the next start finds the journal missing or damaged as well.

        Raises DiskFull or StorageFailed.
        """
        self._states.update(losses)
        self._replace_file()

    def create(self) -> None:
        """Create the file if it is missing: before a replica may vote, so that a later start finds its votes
        or misses them. Raises DiskFull or StorageFailed."""
        if self.is_missing:
            self._replace_file()

    def write(self, states: Iterable[tuple[ReplicaKey, QuorumState | None]]) -> None:
        """Persist the states; None removes the replica. May be called in a thread.

        StorageFailed is final; after DiskFull the caller may retry.
        """
        if self._failure is not None:
            raise self._failure
        if self._file is None:
            self._replace_file()
        file = self._file
        assert file is not None
        entries = list(states)
        data = b"".join(_encode(key, state) for key, state in entries)
        try:
            file.append((data,))
            file.sync()
        except StorageFailed as error:
            # After a failed sync it is unknown what is on the disk, so the failure is final.
            self._failure = error
            raise
        for key, state in entries:
            if state is None:
                self._states.pop(key, None)
            else:
                self._states[key] = state
        self._entries_count += len(entries)
        if self._entries_count > max(_ENTRIES_MIN, _ENTRIES_PER_LIVE_MAX * len(self._states)):
            self._write_anew()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write_anew(self) -> None:
        try:
            self._replace_file()
        except DiskFull as error:
            logger.warning("cannot rewrite %s to shorten it: %s", self._path, error)

    def _replace_file(self) -> None:
        entries = (_encode(key, state) for key, state in self._states.items())
        data = b"".join((_MAGIC, *entries))
        try:
            self._disk.write_file(self._path, data, sync=True)
        except StorageFailed as error:
            self._failure = error
            raise
        self.close()
        self.is_missing = False
        self._file = self._disk.open_file(self._path)
        self._entries_count = len(self._states)

    def _load(self, data: bytes, form: struct.Struct) -> int:
        """Read the entries; returns the end of the last valid one."""
        end = len(_MAGIC) if form is _ENTRY else 0
        for position in range(end, len(data) - form.size + 1, form.size):
            if not self._take(memoryview(data)[position : position + form.size], form):
                continue
            if position != end:
                logger.error("%s is damaged at byte %d: votes may be missing", self._path, end)
                self.is_intact = False
            end = position + form.size
            self._entries_count += 1
        tail = data[end : end + (len(data) - end) // form.size * form.size]
        if tail.strip(b"\0"):
            # A torn end is shorter than an entry, or zeros. This entry was complete once.
            logger.error("%s is damaged at byte %d: votes may be missing", self._path, end)
            self.is_intact = False
        if end < len(data):
            logger.warning("%s had a torn end of %d bytes", self._path, len(data) - end)
        return end

    def _take(self, entry: memoryview, form: struct.Struct) -> bool:
        crc, topic_id, partition, epoch, voted_for, leader_id, flags, *accepted = form.unpack(entry)
        if crc32c(entry[_CRC_BYTES:]) != crc:
            return False
        key = (uuid.UUID(bytes=topic_id), partition)
        if flags & _FORGOTTEN_FLAG:
            self._states.pop(key, None)
            return True
        self._states[key] = QuorumState(
            epoch=epoch,
            voted_for=None if voted_for == _NO_BROKER else voted_for,
            leader_id=None if leader_id == _NO_BROKER else leader_id,
            mode=Mode.FETCH if flags & _FETCH_FLAG else Mode.RAFT,
            recovering=bool(flags & _RECOVERING_FLAG),
            votes_unknown=bool(flags & _VOTES_UNKNOWN_FLAG),
            accepted_epoch=accepted[0] if accepted else NO_EPOCH,
            accepted_offset=accepted[1] if accepted else 0,
        )
        return True

    def _open_at(self, end: int) -> DiskFile:
        file = self._disk.open_file(self._path, create=True)
        if file.size != end:
            file.truncate(end)
        file.sync()
        self._disk.sync_directory(self._path.rpartition("/")[0])
        return file


def _encode(key: ReplicaKey, state: QuorumState | None) -> bytes:
    flags = _FORGOTTEN_FLAG
    epoch, voted_for, leader_id = 0, None, None
    accepted = (NO_EPOCH, 0)
    if state is not None:
        accepted = (state.accepted_epoch, state.accepted_offset)
        epoch, voted_for, leader_id = state.epoch, state.voted_for, state.leader_id
        flags = (
            (_FETCH_FLAG if state.mode is Mode.FETCH else 0)
            | (_RECOVERING_FLAG if state.recovering else 0)
            | (_VOTES_UNKNOWN_FLAG if state.votes_unknown else 0)
        )
    entry = bytearray(
        _ENTRY.pack(
            0,
            key[0].bytes,
            key[1],
            epoch,
            _NO_BROKER if voted_for is None else voted_for,
            _NO_BROKER if leader_id is None else leader_id,
            flags,
            *accepted,
        )
    )
    entry[:_CRC_BYTES] = crc32c(memoryview(entry)[_CRC_BYTES:]).to_bytes(_CRC_BYTES, "big")
    return bytes(entry)
