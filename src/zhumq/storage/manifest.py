"""The manifest of a log: the files its folder must hold, with a checksum, so that a lost file is detected."""

import json
import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from zhumq.host.disk import Disk
from zhumq.model.errors import BrokerError
from zhumq.records.codecs import crc32c
from zhumq.storage.leader_epochs import EpochStart
from zhumq.storage.newest_file import NewestFile
from zhumq.storage.transaction_index import IndexProof

logger = logging.getLogger(__name__)

MANIFEST_FILE: Final = "log-manifest"
VERSION: Final = 1
_CHECKSUM_DIGITS: Final = 8


class SealedRecord(NamedTuple):
    """A sealed segment, as it was when it was flushed, or written by compaction."""

    base_offset: int
    next_offset: int  # the offset behind its last batch
    size: int
    checksum: int | None = None  # crc32c of the whole file, for compacted segments with gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The properties of a log that none of Kafka's own files protects with a checksum."""

    topic_id: uuid.UUID | None
    log_start_offset: int
    recovery_point: int  # everything below was on the disk
    gaps_end: int  # compaction removed offsets below this one only
    active_base_offset: int
    active_size: int  # the flushed bytes of the active segment, at least
    epochs: tuple[EpochStart, ...]
    sealed: tuple[SealedRecord, ...]
    transaction_indexes: tuple[IndexProof, ...] = ()

    def without(self, first: int, next_offset: int) -> "Manifest":
        """The same without the segments that begin in this range."""
        kept = tuple(each for each in self.sealed if not first <= each.base_offset < next_offset)
        return replace(self, sealed=kept, gaps_end=max(self.gaps_end, next_offset))


def encode_manifest(manifest: Manifest) -> bytes:
    """`<crc32c of the rest in hex> <json>`, one line."""
    body = json.dumps(
        {
            "version": VERSION,
            "topic_id": None if manifest.topic_id is None else manifest.topic_id.hex,
            "log_start_offset": manifest.log_start_offset,
            "recovery_point": manifest.recovery_point,
            "gaps_end": manifest.gaps_end,
            "active": [manifest.active_base_offset, manifest.active_size],
            "epochs": manifest.epochs,
            "sealed": manifest.sealed,
            "transaction_indexes": manifest.transaction_indexes,
        },
        separators=(",", ":"),
    ).encode()
    return b"%08x %s\n" % (crc32c(body), body)


def decode_manifest(data: bytes) -> Manifest | None:
    """The manifest in a file; None if the file is damaged or has an unknown version."""
    body = data[_CHECKSUM_DIGITS + 1 : -1]
    if data != b"%08x %s\n" % (crc32c(body), body):
        return None
    content = json.loads(body)
    if content["version"] != VERSION:
        return None
    topic_id = content["topic_id"]
    active_base_offset, active_size = content["active"]
    return Manifest(
        topic_id=None if topic_id is None else uuid.UUID(hex=topic_id),
        log_start_offset=content["log_start_offset"],
        recovery_point=content["recovery_point"],
        gaps_end=content["gaps_end"],
        active_base_offset=active_base_offset,
        active_size=active_size,
        epochs=tuple(EpochStart(*each) for each in content["epochs"]),
        sealed=tuple(SealedRecord(*each) for each in content["sealed"]),
        transaction_indexes=tuple(
            IndexProof(*each) for each in content.get("transaction_indexes", ())
        ),
    )


def read_manifest(disk: Disk, directory: str) -> Manifest | None:
    """The manifest of a log; None if it has no valid one."""
    data = disk.read_file(f"{directory}/{MANIFEST_FILE}")
    if data is None:
        return None
    manifest = decode_manifest(data)
    if manifest is None:
        logger.warning("%s/%s is damaged and is written again", directory, MANIFEST_FILE)
    return manifest


class ManifestFile:
    """The manifest file of one log.

    It is written without a sync: a manifest that a power cut damaged is detected and written again,
    and file systems keep the order of renames.
    """

    __slots__ = ("_file", "_path")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._path = f"{directory}/{MANIFEST_FILE}"
        self._file = NewestFile(disk, self._path)

    def prepare(self, manifest: Manifest) -> Callable[[], None]:
        """A function that writes this manifest, in any thread, unless a newer one was written."""
        return self._file.prepare(lambda: encode_manifest(manifest), sync=False)

    def drop(self) -> None:
        """Remove the file: no manifest is better than one with wrong claims."""
        self._file.drop()

    def replace(self, manifest: Manifest) -> None:
        """Write it now, before files change. If that fails, remove the old one."""
        try:
            self.prepare(manifest)()
        except BrokerError as error:
            logger.warning("cannot write %s: %s", self._path, error)
            self.drop()
