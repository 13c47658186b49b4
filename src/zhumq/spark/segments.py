"""Reads partitions from segment folders of zhumq or Kafka, without a broker."""

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from zhumq.model.errors import CorruptMessage, ZhumqError
from zhumq.model.ids import TopicPartition
from zhumq.records.batch import BATCH_LENGTH_MIN, HEADER_BYTES, MAGIC, decode_header
from zhumq.records.sections import AbortedTransactions, Section, section_of, whole_batches
from zhumq.spark.cluster_client import EARLIEST
from zhumq.spark.options import Bound, OptionInvalid, ReadOptions
from zhumq.spark.ranges import OffsetRange
from zhumq.storage.log_files import LOG_SUFFIX, offset_in

READ_BYTES: Final = 8 * 1024 * 1024  # at a time; a larger batch is read whole
BATCH_BYTES_MAX: Final = 1 << 30
_FOLDER: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d{1,10})")

logger = logging.getLogger(__name__)


class FolderUnusable(ZhumqError):
    """There is no partition folder to read at this path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRange:
    """Some offsets of one segment file, for one task."""

    file: str
    is_last: bool  # only the last segment may end with an incomplete batch: it is still written to
    range: OffsetRange


def plan_segments(options: ReadOptions) -> list[SegmentRange]:
    """The segments to read, each with the offsets to read from it."""
    assert options.path is not None
    found: list[SegmentRange] = []
    for place, folder in _partition_folders(Path(options.path), options):
        files = _segment_files(folder)
        if not files:
            continue
        log_start, log_end = files[0][0], _end_of(files[-1][1], files[-1][0])
        start = _resolve(options.start, place, log_start, log_end)
        end = _resolve(options.end, place, log_start, log_end)
        bounds = [base for base, _ in files] + [log_end]
        for index, (base, file) in enumerate(files):
            part = OffsetRange(
                place=place,
                first_offset=max(start, base),
                until_offset=min(end, bounds[index + 1]),
            )
            if part.size > 0:
                is_last = index == len(files) - 1
                found.append(SegmentRange(file=str(file), is_last=is_last, range=part))
    return found


def read_segment(segment: SegmentRange, *, fail_on_data_loss: bool) -> Iterator[Section]:
    """The sections of a segment that hold the offsets of its range."""
    part = segment.range
    # The aborted transactions are unknown without a broker: all are read, as with read_uncommitted.
    markers = AbortedTransactions(())
    with open(segment.file, "rb") as file:
        position = 0
        while chunk := _whole_batches_at(file, position):
            try:
                for batch in whole_batches(chunk):
                    position += batch.header.size
                    if batch.header.base_offset >= part.until_offset:
                        return
                    if batch.header.last_offset < part.first_offset or markers.hides(batch):
                        continue
                    yield section_of(batch)
            except CorruptMessage as error:
                if fail_on_data_loss:
                    raise CorruptMessage(
                        f"{segment.file}, at byte {position}: {error}; set failOnDataLoss to false"
                        " to go on without the rest of this file"
                    ) from error
                logger.warning(
                    "%s, at byte %d: %s; the rest is skipped", segment.file, position, error
                )
                return
        if position < os.fstat(file.fileno()).st_size and not segment.is_last:
            words = f"{segment.file} has bytes after position {position} that are not a batch"
            if fail_on_data_loss:
                raise CorruptMessage(f"{words}; set failOnDataLoss to false to go on without them")
            logger.warning("%s; they are skipped", words)


def _whole_batches_at(file: BinaryIO, position: int) -> bytes:
    """Bytes from a position on with at least one complete batch; empty if there is none."""
    head = os.pread(file.fileno(), HEADER_BYTES, position)
    if len(head) < HEADER_BYTES:
        return b""
    header = decode_header(head)
    if header.magic != MAGIC or not BATCH_LENGTH_MIN <= header.batch_length <= BATCH_BYTES_MAX:
        return b""
    chunk = os.pread(file.fileno(), max(READ_BYTES, header.size), position)
    return chunk if len(chunk) >= header.size else b""


def _end_of(file: Path, base_offset: int) -> int:
    """The next offset after the last complete batch of a segment."""
    end, position = base_offset, 0
    with open(file, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        while position + HEADER_BYTES <= size:
            header = decode_header(os.pread(stream.fileno(), HEADER_BYTES, position))
            if (
                header.magic != MAGIC
                or header.batch_length < BATCH_LENGTH_MIN
                or position + header.size > size
            ):
                break
            end, position = header.next_offset, position + header.size
    return end


def _partition_folders(path: Path, options: ReadOptions) -> list[tuple[TopicPartition, Path]]:
    """The partition folders at a path: the path itself, or the folders in it."""
    if not path.is_dir():
        raise FolderUnusable(f"path: there is no folder {path}")
    candidates = [path] if _segment_files(path) else sorted(path.iterdir())
    found = []
    for folder in candidates:
        match = _FOLDER.fullmatch(folder.resolve().name)
        if match is None or not folder.is_dir():
            continue
        place = TopicPartition(match[1], int(match[2]))
        if options.subscription.picks(place):
            found.append((place, folder))
    if not found:
        raise FolderUnusable(
            f"path: neither {path} nor a folder in it is a selected partition (TOPIC-PARTITION)"
        )
    return found


def _segment_files(folder: Path) -> list[tuple[int, Path]]:
    return sorted(
        (base, file)
        for file in folder.iterdir()
        if (base := offset_in(file.name, LOG_SUFFIX)) is not None
    )


def _resolve(bound: Bound, place: TopicPartition, log_start: int, log_end: int) -> int:
    if bound.timestamp_ms is not None or bound.timestamps_ms is not None:
        raise OptionInvalid(f"{bound.option} needs a broker: with path, filter on the timestamp")
    if bound.offsets is not None:
        if place not in bound.offsets:
            raise OptionInvalid(f"{bound.option} has no offset for {place}")
        offset = bound.offsets[place]
    else:
        assert bound.everywhere is not None
        offset = bound.everywhere
    if offset < 0:
        return log_start if offset == EARLIEST else log_end
    return offset
