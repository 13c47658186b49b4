"""A log that verifies its data: bytes that were on the disk at start are verified before the first read."""

import logging
import uuid
from collections.abc import Callable

from zhumq.host.clock import Clock
from zhumq.host.disk import Disk
from zhumq.model.errors import BrokerError
from zhumq.model.ids import TopicPartition
from zhumq.records.codecs import crc32c
from zhumq.storage.checkpoints import SUSPECT_FILE
from zhumq.storage.index_cache import IndexCache
from zhumq.storage.log_config import LogConfig
from zhumq.storage.log_upkeep import LogUpkeep
from zhumq.storage.new_log import LoadedLog
from zhumq.storage.recovery import write_corrupt_ranges
from zhumq.storage.segment import Segment
from zhumq.storage.verification import (
    WHOLE_FILE_BYTES_MAX,
    Proof,
    Unverified,
    examine_segment,
    file_matches,
    verify_run,
)

logger = logging.getLogger(__name__)


class VerifiedLog(LogUpkeep):
    """A log that tracks which of its bytes are verified and which are damaged."""

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        disk: Disk,
        clock: Clock,
        cache: IndexCache,
        topic_id: uuid.UUID | None,
    ) -> None:
        super().__init__(
            directory,
            topic_partition,
            config,
            loaded,
            disk=disk,
            clock=clock,
            cache=cache,
            topic_id=topic_id,
        )
        # Called with the first offset that cannot be read any more.
        self.on_damage: Callable[[int], object] = lambda _: None
        self._segments.verify = self._verify

    @property
    def proof(self) -> Proof:
        """The expected offsets and epochs of the batches in this log."""
        return Proof(gaps_end=self.gaps_end, epochs=self.leader_epochs)

    def _verify(self, segment: Segment, start: int, end: int, bytes_min: int) -> tuple[int, int]:
        """See SegmentList.verify. Remembers the last verified run, so that it is not read again."""
        first, stop, stop_offset = segment.verified
        if first <= start < stop and (end <= stop or stop - start >= bytes_min):
            return stop, stop_offset
        if segment.checksum is not None and segment.size <= WHOLE_FILE_BYTES_MAX:
            if not file_matches(segment):
                raise Unverified(segment)
            segment.unverified_end = 0
            return end, segment.base_offset
        begin, begun = (stop, first) if first <= start <= stop and stop else (start, start)
        stop, stop_offset = verify_run(segment, begin, end, bytes_min - (begin - start), self.proof)
        segment.verified = (begun, stop, stop_offset)
        return stop, stop_offset

    def examine(self, segment: Segment) -> bool:
        """Scan a whole segment that failed verification. True if it is damaged: the damage is then
        persisted, and reads of it fail."""
        place = self._segments.all.index(segment)
        next_offset = self._segments.next_offset_of(place, self.log_end_offset)
        segment.corrupt_ranges = examine_segment(segment, next_offset, self.proof)
        segment.unverified_end = 0
        self._segments.forget_positions()
        if not segment.corrupt_ranges:
            return False
        try:
            write_corrupt_ranges(self.directory, self._segments.all, self._disk)
        except BrokerError as error:
            logger.warning("%s: cannot persist the damage: %s", self.topic_partition, error)
        self.on_damage(min(bad.first_offset for bad in segment.corrupt_ranges))
        return True

    @property
    def suspect_offset(self) -> int | None:
        """The offset from which the log is not trusted, even if its checksums match. Persistent until
        the log is truncated there."""
        data = self._disk.read_file(f"{self.directory}/{SUSPECT_FILE}")
        if data is None:
            return None
        offset, _, checksum = data.partition(b" ")
        if checksum and checksum != b"%08x" % crc32c(offset):
            return self.log_start_offset
        try:
            return int(offset)
        except ValueError:
            return self.log_start_offset

    def mark_suspect(self, offset: int) -> None:
        """Persist that the log from this offset on is damaged, or was never flushed."""
        known = self.suspect_offset
        offset = offset if known is None else min(known, offset)
        path = f"{self.directory}/{SUSPECT_FILE}"
        text = b"%d" % offset
        self._disk.write_file(path, b"%s %08x" % (text, crc32c(text)), sync=True)

    def clear_suspect(self) -> None:
        """Remove the mark once the log is truncated."""
        self._disk.unlink(f"{self.directory}/{SUSPECT_FILE}")
