"""Verifies stored batches before readers get them: checksums, offsets and leader epochs."""

import logging
from typing import Final

from zhumq.host.disk import DiskFile
from zhumq.model.errors import CorruptMessage
from zhumq.records.batch import (
    BATCH_LENGTH_MIN,
    CHECKED_OFFSET,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    BatchHeader,
)
from zhumq.records.codecs import crc32c
from zhumq.storage.batch_scan import no_batch
from zhumq.storage.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from zhumq.storage.log_slice import CorruptRange
from zhumq.storage.recovery_scan import ScanBuffer, scan_segment
from zhumq.storage.segment import Segment

logger = logging.getLogger(__name__)

# The minimum of one verification, so that the next reads of the same consumer need none.
RUN_BYTES_MIN: Final = 256 * 1024
BUFFER_BYTES: Final = 1024 * 1024
# A segment with gaps is verified by the checksum of its file if it is no larger than this.
WHOLE_FILE_BYTES_MAX: Final = 32 * 1024 * 1024


class Unverified(Exception):
    """The bytes of a read failed verification. Only the log catches it; callers never see it."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment.prefix)
        self.segment = segment


class Proof:
    """The expected values of batches: where offsets may have gaps, and the epoch of each offset."""

    __slots__ = ("epochs", "gaps_end")

    def __init__(self, *, gaps_end: int, epochs: LeaderEpochs) -> None:
        self.gaps_end = gaps_end
        self.epochs = epochs

    def check(self, header: BatchHeader, expected_offset: int) -> bool:
        """Whether the fields that no checksum covers, offset and epoch, are valid."""
        base_offset = header.base_offset
        if base_offset != expected_offset and not (
            expected_offset < base_offset <= self.gaps_end and expected_offset < self.gaps_end
        ):
            return False
        epoch = self.epochs.epoch_of(base_offset)
        return epoch in (header.partition_leader_epoch, UNDEFINED_EPOCH)


def verify_read(
    segment: Segment, start: int, end: int, bytes_min: int, proof: Proof
) -> tuple[int, int]:
    """Verify what a read returns, at least bytes_min bytes if the end is not before; returns where it
    stopped and the offset there. The segment keeps the last verified run, which is not read again."""
    first, stop, stop_offset = segment.verified
    if first <= start < stop and (end <= stop or stop - start >= bytes_min):
        return stop, stop_offset
    if segment.checksum is not None and segment.size <= WHOLE_FILE_BYTES_MAX:
        if not file_matches(segment):
            raise Unverified(segment)
        segment.unverified_end = 0
        return end, segment.base_offset
    begin, begun = (stop, first) if first <= start <= stop and stop else (start, start)
    stop, stop_offset = verify_run(segment, begin, end, bytes_min - (begin - start), proof)
    segment.verified = (begun, stop, stop_offset)
    return stop, stop_offset


def verify_run(
    segment: Segment, start: int, end: int, bytes_min: int, proof: Proof
) -> tuple[int, int]:
    """Verify the batches between two boundaries, at least bytes_min bytes of them.

    Returns the position where it stopped and the offset there. The offset index confirms the offset
    of the first batch, and the header behind the last batch that of the last one. Raises Unverified.
    """
    try:
        return _verify_run(segment, start, end, max(bytes_min, RUN_BYTES_MIN), proof)
    except CorruptMessage as reason:
        raise Unverified(segment) from reason


def _verify_run(
    segment: Segment, start: int, end: int, bytes_min: int, proof: Proof
) -> tuple[int, int]:
    index = segment.offset_index
    position = index.boundary_before(start)
    expected_offset = segment.base_offset
    known_last_offset = index.last_offset_at(position) if position else None
    buffer = ScanBuffer(segment.file, segment.size, BUFFER_BYTES)
    stop = segment.size
    while position < segment.size:
        header = _header_at(buffer, position, segment.file, segment.size)
        if known_last_offset is not None:
            if header.last_offset != known_last_offset:
                raise no_batch(segment.file, position)
            known_last_offset = None
            expected_offset = header.base_offset
        if position >= end or position - start >= bytes_min:
            # Only the header of the batch behind the run is read: it confirms the last offset.
            if not proof.check(header, expected_offset):
                raise no_batch(segment.file, position)
            stop = position
            break
        _check_batch(buffer, position, header, expected_offset, proof, segment.file)
        position += header.size
        expected_offset = header.next_offset
    else:
        check_end(segment, expected_offset, proof)
    return stop, expected_offset


def check_end(segment: Segment, next_offset: int, proof: Proof) -> None:
    """Check that a sealed segment ends where the next one begins, unless compaction emptied its end."""
    expected = segment.next_offset
    if expected is None or next_offset == expected:
        return
    if next_offset > expected or next_offset >= proof.gaps_end:
        raise CorruptMessage(f"{segment.prefix}.log ends at offset {next_offset}, not {expected}")


def _header_at(buffer: ScanBuffer, position: int, file: DiskFile, end: int) -> BatchHeader:
    data = buffer.view(position, HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        raise no_batch(file, position)
    header = BatchHeader._make(HEADER.unpack_from(data))
    if (
        header.magic != MAGIC
        or not BATCH_LENGTH_MIN <= header.batch_length <= end - position - PREFIX_BYTES
        or header.last_offset_delta < 0
    ):
        raise no_batch(file, position)
    return header


def verify_batches(
    file: DiskFile, position: int, end: int, bytes_max: int, expected_offset: int, proof: Proof
) -> tuple[int, int]:
    """Verify about bytes_max bytes of batches; returns the position where it stopped and the offset
    there. Raises CorruptMessage. May run in a thread, with a file of its own."""
    if file.size < end:
        raise no_batch(file, file.size)
    buffer = ScanBuffer(file, end, BUFFER_BYTES)
    stop = position + bytes_max
    while position < min(end, stop):
        header = _header_at(buffer, position, file, end)
        _check_batch(buffer, position, header, expected_offset, proof, file)
        position += header.size
        expected_offset = header.next_offset
    return position, expected_offset


def _check_batch(
    buffer: ScanBuffer,
    position: int,
    header: BatchHeader,
    expected_offset: int,
    proof: Proof,
    file: DiskFile,
) -> None:
    if not proof.check(header, expected_offset):
        raise CorruptMessage(
            f"{file.path} holds offset {header.base_offset} of epoch"
            f" {header.partition_leader_epoch} at byte {position}, not {expected_offset}"
        )
    if crc32c(buffer.view(position, header.size)[CHECKED_OFFSET:]) != header.crc:
        raise CorruptMessage(f"{file.path} fails its checksum at byte {position}")


def examine_segment(
    segment: Segment, next_offset: int, proof: Proof, *, size: int | None = None
) -> list[CorruptRange]:
    """Scan a whole segment that should end at next_offset, rebuild its indexes, and return its damaged
    ranges. `size` is that of the manifest, if known."""
    segment.start_indexes()
    segment.corrupt_ranges = []
    result = scan_segment(
        segment,
        0,
        segment.base_offset,
        gaps_end=proof.gaps_end,
        leader_epochs=LeaderEpochs(),
        proof_epochs=proof.epochs,
    )
    found = list(result.corrupt_ranges)
    is_cut = size is not None and size != segment.size
    # Compaction may have removed the last offsets, but not in a file of another size.
    ends_early = result.next_offset < next_offset and (
        is_cut or result.next_offset >= proof.gaps_end
    )
    if segment.checksum is not None and not file_matches(segment):
        # With gaps, two batches do not show which of them has the wrong offset.
        found = [
            CorruptRange(segment.base_offset, 0, segment.size, segment.base_offset, next_offset)
        ]
    elif result.has_bad_end or ends_early or (is_cut and not found):
        found.append(
            CorruptRange(
                segment.base_offset,
                result.valid_end,
                segment.size,
                min(result.next_offset, next_offset - 1),
                next_offset,
            )
        )
    segment.replace_index_files(final=segment.is_sealed)
    for bad in found:
        logger.error(
            "%s.log is damaged at bytes %d to %d: offsets %d to %d cannot be read, nothing was cut",
            segment.prefix,
            bad.start_position,
            bad.end_position - 1,
            bad.first_offset,
            bad.next_offset - 1,
        )
    return found


def file_matches(segment: Segment) -> bool:
    """Whether the checksum of the whole file is the one that compaction computed."""
    return file_checksum(segment.file) == segment.checksum


def file_checksum(file: DiskFile) -> int:
    """The crc32c of a file as it is now."""
    checksum = 0
    for position in range(0, file.size, BUFFER_BYTES):
        checksum = crc32c(file.read_at(position, BUFFER_BYTES), checksum)
    return checksum
