"""Compares the replicas of a partition on disk, byte for byte, up to the high watermark.

It parses the files itself, without the broker's code.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chaos.findings import Findings, Kind

# The start of a record batch:
# | base offset i64 | length of the rest i32 | leader epoch i32 | magic i8 | crc u32 |
# | attributes i16 | last offset delta i32 |
_HEAD: Final = struct.Struct(">qiibIhi")
_BEFORE_REST_BYTES: Final = 12
_MAGIC: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """One record batch in a file."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    data: bytes


class NotBatches(Exception):
    """The bytes in a file are not a sequence of record batches."""


def stored_batches(folder: Path) -> Iterator[StoredBatch]:
    """The batches of a partition's folder in order, across segments. Raises NotBatches."""
    expected = None
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        place = 0
        while place < len(data):
            batch = _batch_at(data, place, path)
            if expected is not None and batch.base_offset < expected:
                raise NotBatches(f"{path.name}: offset {batch.base_offset} after {expected - 1}")
            expected = batch.last_offset + 1
            place += len(batch.data)
            yield batch


def compare_replicas(
    partition: str, folders: Mapping[str, Path], high_watermark: int, findings: Findings
) -> int:
    """Compare the replicas' folders (by broker name); returns the number of bytes compared."""
    replicas: dict[str, list[StoredBatch]] = {}
    for name, folder in folders.items():
        try:
            below = [
                batch for batch in stored_batches(folder) if batch.base_offset < high_watermark
            ]
        except NotBatches as error:
            findings.add(Kind.REPLICA_DAMAGED, partition, f"{name}: {error}")
            continue
        replicas[name] = below
        _check_one(partition, name, below, high_watermark, findings)
    if not replicas:
        return 0
    first_name, first = next(iter(replicas.items()))
    for name, batches in replicas.items():
        if name != first_name:
            _compare(partition, (first_name, first), (name, batches), findings)
    return sum(len(batch.data) for batches in replicas.values() for batch in batches)


def _check_one(
    partition: str, name: str, batches: list[StoredBatch], high_watermark: int, findings: Findings
) -> None:
    end = batches[-1].last_offset + 1 if batches else 0
    if end < high_watermark:
        findings.add(
            Kind.REPLICA_SHORT, partition, f"{name} ends at {end}, not at {high_watermark}"
        )
    epoch = -1
    for batch in batches:
        if batch.leader_epoch < epoch:
            findings.add(
                Kind.EPOCH_WENT_BACK,
                partition,
                f"{name}: epoch {batch.leader_epoch} at {batch.base_offset} after epoch {epoch}",
            )
        epoch = max(epoch, batch.leader_epoch)


def _compare(
    partition: str,
    one: tuple[str, list[StoredBatch]],
    other: tuple[str, list[StoredBatch]],
    findings: Findings,
) -> None:
    # A short replica is reported already; what it has must be equal.
    for left, right in zip(one[1], other[1], strict=False):
        if left.data != right.data:
            findings.add(
                Kind.REPLICAS_DIFFER,
                partition,
                f"{one[0]} has offsets {left.base_offset}-{left.last_offset} of epoch"
                f" {left.leader_epoch} where {other[0]} has {right.base_offset}-"
                f"{right.last_offset} of epoch {right.leader_epoch}",
            )
            return


def _batch_at(data: bytes, place: int, path: Path) -> StoredBatch:
    if place + _HEAD.size > len(data):
        raise NotBatches(f"{path.name}: {len(data) - place} bytes too many at {place}")
    base_offset, length, leader_epoch, magic, _crc, _attributes, delta = _HEAD.unpack_from(
        data, place
    )
    end = place + _BEFORE_REST_BYTES + length
    if magic != _MAGIC or length <= 0 or delta < 0 or end > len(data):
        raise NotBatches(f"{path.name}: no batch at {place}")
    return StoredBatch(
        base_offset=base_offset,
        last_offset=base_offset + delta,
        leader_epoch=leader_epoch,
        data=data[place:end],
    )
