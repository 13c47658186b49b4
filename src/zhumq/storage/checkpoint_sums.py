"""Checksums of the checkpoint files, in a file beside them: Kafka's checkpoint format has no checksum."""

import json
from collections.abc import Mapping
from typing import Final

from zhumq.host.disk import Disk
from zhumq.records.codecs import crc32c

SUMS_FILE: Final = "checkpoint-sums"
# For each file the newest content and the one before: a crash may come between the two writes.
_KEPT: Final = 2

Sums = Mapping[str, list[int]]


def read_sums(disk: Disk, data_dir: str) -> Sums:
    """The valid checksums of each file; empty if the checksum file is missing or damaged."""
    data = disk.read_file(f"{data_dir}/{SUMS_FILE}") or b""
    body = data[9:]
    if data[:9] != b"%08x " % crc32c(body):
        return {}
    found: dict[str, list[int]] = json.loads(body)
    return found


def write_sums(disk: Disk, data_dir: str, contents: Mapping[str, bytes]) -> None:
    """Add the checksums of these contents. Called before the files are written."""
    known = read_sums(disk, data_dir)
    sums = {
        **known,
        **{
            name: [crc32c(content), *known.get(name, ())][:_KEPT]
            for name, content in contents.items()
        },
    }
    body = json.dumps(sums, separators=(",", ":")).encode()
    disk.write_file(f"{data_dir}/{SUMS_FILE}", b"%08x %s" % (crc32c(body), body), sync=False)


def is_as_written(sums: Sums, name: str, content: bytes | None) -> bool:
    """Whether the content matches a known checksum; True if no checksum of the file is known."""
    return content is None or name not in sums or crc32c(content) in sums[name]
