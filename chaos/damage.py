"""Damages the files of a stopped broker, and checks whether its replicas have caught up again."""

import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from chaos.replicas import NotBatches, StoredBatch, stored_batches

ZEROED_BYTES: Final = 512  # a sector


class DamageKind(StrEnum):
    """Kinds of damage to files."""

    FLIP = "a flipped bit"
    ZERO = "a zeroed sector"
    CUT = "a lost tail"
    WIPE = "an empty disk"


def do_damage(
    kind: DamageKind, data_dir: Path, partitions: Sequence[str], draw: random.Random
) -> str:
    """Damage one of these partitions, or wipe the disk; returns a description."""
    if kind is DamageKind.WIPE:
        shutil.rmtree(data_dir)
        return "the whole disk is empty"
    partition = draw.choice(partitions)
    logs = [path for path in sorted((data_dir / partition).glob("*.log")) if path.stat().st_size]
    if not logs:
        return f"{partition} has nothing to damage"
    if kind is DamageKind.CUT:
        # Only the last segment loses its tail; in any other it would be a gap in the log.
        length = draw.randrange(logs[-1].stat().st_size)
        with open(logs[-1], "r+b") as file:
            file.truncate(length)
        return f"{partition}: {logs[-1].name} ends at byte {length}"
    log = draw.choice(logs)
    size = log.stat().st_size
    place = draw.randrange(size)
    with open(log, "r+b") as file:
        file.seek(place)
        if kind is DamageKind.ZERO:
            file.write(bytes(min(ZEROED_BYTES, size - place)))
            return f"{partition}: zeros from byte {place} of {size} on in {log.name}"
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ (1 << draw.randrange(8))]))
        return f"{partition}: a bit of byte {place} of {size} in {log.name} is flipped"


def end_offset(folder: Path) -> int:
    """The log end offset of a replica, as far as its files parse; a broker may be writing them."""
    end = 0
    for batch in _readable(folder):
        end = batch.last_offset + 1
    return end


def are_equal(folders: Mapping[str, Path], next_offset: int) -> bool:
    """Whether all replicas have the same bytes up to this offset."""
    contents = []
    for folder in folders.values():
        batches = [batch for batch in _readable(folder) if batch.last_offset < next_offset]
        if not batches or batches[-1].last_offset + 1 < next_offset:
            return next_offset == 0
        contents.append([batch.data for batch in batches])
    return all(content == contents[0] for content in contents)


def _readable(folder: Path) -> Iterator[StoredBatch]:
    """The batches before the first bytes that are none: the tail may be half written."""
    try:
        yield from stored_batches(folder)
    except (NotBatches, FileNotFoundError):
        return
