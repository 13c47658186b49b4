"""Removes records of a segmented log: truncates its end, raises its start, starts it over."""

from typing import TYPE_CHECKING

from zhumq.model.errors import CorruptMessage, OffsetOutOfRange
from zhumq.storage.log_files import SNAPSHOT_SUFFIX, offset_in
from zhumq.storage.producer_restore import restore_producers
from zhumq.storage.recovery import write_corrupt_ranges
from zhumq.storage.segment import Segment

if TYPE_CHECKING:
    from zhumq.storage.segmented_log import SegmentedLog


class LogTruncation:
    """Removes records, and takes back what was derived from them: epochs, producers, offsets. The methods
    are those of Log."""

    __slots__ = ("_log",)

    def __init__(self, log: "SegmentedLog") -> None:
        self._log = log

    def delete_records_before(self, offset: int) -> int:
        log = self._log
        if log.failure is not None:
            raise log.failure
        if not 0 <= offset <= log.log_end_offset:
            raise OffsetOutOfRange(
                f"{log.topic_partition} ends at {log.log_end_offset}, before {offset}"
            )
        if offset > log.log_start_offset:
            log.log_start_offset = offset
            if log.leader_epochs.truncate_start(offset):
                log.flushing.write_leader_epochs()
        return log.log_start_offset

    def truncate_to(self, offset: int) -> None:
        log = self._log
        if offset >= log.log_end_offset:
            return
        if offset < log.segments.base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self._lower_recovery_point(offset)
        removed = log.segments.take_from(offset)
        segment = log.segments.active
        segment.unseal()
        was_damaged = bool(log.corrupt_ranges)
        position, end_offset = _end_before(segment, offset)
        self._lower_recovery_point(end_offset)  # whole batches go, so it may be below the offset
        log.flushing.write_manifest()
        for each in removed:
            self._remove_files(each)
        segment.truncate(position, end_offset)
        if was_damaged:
            write_corrupt_ranges(log.directory, log.segments.all, log.disk)
        if end_offset < log.log_start_offset:
            self.truncate_fully_and_start_at(log.log_start_offset)
        else:
            self._end_at(end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        log = self._log
        log.make_files()
        self._lower_recovery_point(min(offset, log.log_start_offset))
        removed = log.segments.take_all()
        log.flushing.drop_manifest()
        log.transaction_indexes.truncate_to(0)
        log.key_indexes.truncate_to(0)
        for segment in removed:
            self._remove_files(segment)
        for entry in log.disk.list_directory(log.directory):
            if offset_in(entry.name, SNAPSHOT_SUFFIX) is not None:
                # The producers go with the records.
                log.disk.unlink(f"{log.directory}/{entry.name}")
        log.segments.add(log.new_segment(offset))
        log.log_start_offset = offset
        log.recovery_point = offset
        log.proof.gaps_end = 0
        self._end_at(offset)

    def _lower_recovery_point(self, offset: int) -> None:
        log = self._log
        log.flushing.before_truncation()
        if offset < log.recovery_point:
            log.recovery_point = max(offset, log.log_start_offset)
            log.before_recovery_point_falls()

    def _end_at(self, end_offset: int) -> None:
        log = self._log
        log.log_end_offset = end_offset
        log.flushed_offset = min(log.flushed_offset, end_offset)
        log.first_dirty_offset = min(log.first_dirty_offset, end_offset)
        log.proof.gaps_end = min(log.proof.gaps_end, end_offset)
        log.flushing.forget_removed()
        if log.leader_epochs.truncate_end(end_offset):
            log.flushing.write_leader_epochs()
        log.transaction_indexes.truncate_to(end_offset)
        log.key_indexes.truncate_to(end_offset)
        log.producer_state, log.flushing.snapshot_offset = restore_producers(
            log.directory,
            log.segments.all,
            end_offset,
            disk=log.disk,
            indexes=log.transaction_indexes,
        )

    def _remove_files(self, segment: Segment) -> None:
        for path in (*segment.paths, segment.prefix + SNAPSHOT_SUFFIX):
            self._log.disk.unlink(path)
        segment.release()


def _end_before(segment: Segment, offset: int) -> tuple[int, int]:
    """The position and the offset where the batches and the damage begin that reach this offset."""
    position, end_offset = segment.size, offset
    try:
        found = segment.find(offset)
    except CorruptMessage:
        # The position of the offset is unknown: the whole segment is removed, and fetched again.
        position, end_offset = 0, segment.base_offset
    else:
        if found is not None:
            position, end_offset = found[0], min(offset, found[1].base_offset)
    for bad in segment.corrupt_ranges:
        if bad.next_offset > offset:
            position = min(position, bad.start_position)
            end_offset = min(end_offset, bad.first_offset)
    return position, end_offset
