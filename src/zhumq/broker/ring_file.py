"""A ring of samples in a file: one slot is written at a time, and a file that is none is replaced."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zhumq.history.fields import Sample
from zhumq.history.ring import HEADER_BYTES, SLOT_BYTES, Ring, encode_slot

logger = logging.getLogger(__name__)

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


@dataclass(frozen=True, slots=True)
class RingFile:
    """The file of a ring, which is open only while it is used. Its methods block, and raise OSError.

    Nothing is synced: samples survive the end of the process, and what a power cut tears is skipped.
    """

    ring: Ring
    path: Path

    def write(self, sample: Sample) -> None:
        """Write a sample into its slot. A file that is missing, damaged or of another version begins anew."""
        self.path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
        with _opened(self.path, os.O_RDWR | os.O_CREAT) as descriptor:
            found = os.pread(descriptor, HEADER_BYTES, 0)
            if not self.ring.begins(found):
                if found:
                    logger.warning(
                        "the history in %s is damaged or of another version: it begins anew",
                        self.path,
                    )
                # A crash in between leaves an empty file, or one that begins anew with the next sample.
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, self.ring.header(), 0)
            position = self.ring.position_of(self.ring.slot_of(sample.time_ms))
            os.pwrite(descriptor, encode_slot(sample), position)

    def read(self, slot: int, count: int) -> list[bytes]:
        """The bytes of neighbouring slots; empty where nothing was ever written."""
        try:
            with _opened(self.path, os.O_RDONLY) as descriptor:
                if not self.ring.begins(os.pread(descriptor, HEADER_BYTES, 0)):
                    return [b""] * count
                data = os.pread(descriptor, count * SLOT_BYTES, self.ring.position_of(slot))
        except FileNotFoundError:
            data = b""
        return [data[at : at + SLOT_BYTES] for at in range(0, count * SLOT_BYTES, SLOT_BYTES)]


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
