"""Verifies flushed segments in the background at a limited rate, and finds damage on the disk."""

import logging
from dataclasses import dataclass
from typing import Final

from zhumq.host.clock import Clock
from zhumq.host.disk import Disk
from zhumq.model.errors import BrokerError, CorruptMessage
from zhumq.model.ids import TopicPartition
from zhumq.records.codecs import crc32c
from zhumq.storage.leader_epochs import LeaderEpochs
from zhumq.storage.log_manager import LogManager
from zhumq.storage.segment import Segment
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.storage.verification import Proof, check_end, verify_batches

logger = logging.getLogger(__name__)

POSITION_FILE: Final = "scrub-position"
TURN_MS: Final = 1_000  # the interval between reads, each as large as the rate allows
SEGMENTS_PER_TURN_MAX: Final = 200


@dataclass(slots=True, kw_only=True)
class Piece:
    """A segment being read: prepared on the event loop, read in a thread, finished on the loop."""

    log: SegmentedLog
    segment: Segment
    end: int  # of the flushed part
    size: int
    truncations: int
    proof: Proof
    position: int = 0
    next_offset: int = 0
    checksum: int = 0  # of the bytes read so far, if the file has a checksum
    is_damaged: bool = False

    @property
    def is_done(self) -> bool:
        return self.is_damaged or self.position >= self.end

    def read(self, disk: Disk, bytes_max: int) -> int:
        """Read and verify about bytes_max bytes of whole batches, in a thread; returns the bytes read."""
        start = self.position
        file = disk.open_file(self.segment.paths[0])
        try:
            if self.segment.checksum is not None:
                data = file.read_at(start, min(bytes_max, self.end - start))
                self.checksum = crc32c(data, self.checksum)
                self.position = start + len(data)
                is_intact = self.position < self.end or self.checksum == self.segment.checksum
                self.is_damaged = not data or not is_intact
            else:
                self.position, self.next_offset = verify_batches(
                    file, start, self.end, bytes_max, self.next_offset, self.proof
                )
                if self.position >= self.end and self.segment.is_sealed:
                    check_end(self.segment, self.next_offset, self.proof)
        except CorruptMessage:
            self.is_damaged = True
        finally:
            file.close()
        return self.position - start


class Scrubber:
    """Reads all logs at a limited rate, and begins again after an interval.

    The position is persisted, so that a restart continues from there. Used on the event loop, except
    `read`, which runs in a thread.
    """

    def __init__(
        self, logs: LogManager, clock: Clock, *, bytes_per_second: int, interval_ms: int
    ) -> None:
        self._logs = logs
        self._clock = clock
        self._interval_ms = interval_ms
        self.bytes_per_turn = bytes_per_second * TURN_MS // 1000
        self._names: list[TopicPartition] = []
        self._last: tuple[TopicPartition, int] | None = None  # the last finished segment
        self._pieces: list[Piece] = []
        self._begun_ms: int | None = None
        self._is_under_way = False
        self._pass_bytes = self._pass_segments = self._pass_damaged = 0
        self.bytes_read = 0
        self.segments_read = 0
        self.segments_damaged = 0
        self.passes = 0

    def begin(self) -> bool:
        """Choose what to read in this turn. True if there is anything."""
        if self._begun_ms is None:
            self._begin_pass(self._read_position())
        elif not self._is_under_way:
            if self._clock.monotonic_ms() - self._begun_ms < self._interval_ms:
                return False
            self._begin_pass(None)
        planned = sum(piece.end - piece.position for piece in self._pieces)
        while planned < self.bytes_per_turn and len(self._pieces) < SEGMENTS_PER_TURN_MAX:
            piece = self._next_piece()
            if piece is None:
                break
            self._pieces.append(piece)
            planned += piece.end
        if not self._pieces:
            self._end_pass()
        return bool(self._pieces)

    def read(self) -> None:
        """Read this turn's share. Called in a thread."""
        left = self.bytes_per_turn
        for piece in self._pieces:
            if left <= 0:
                break
            try:
                count = piece.read(self._logs.disk, left)
            except BrokerError as error:
                logger.warning("%s is not scrubbed: %s", piece.segment.prefix, error)
                piece.position = piece.end
                continue
            left -= count
            self.bytes_read += count
            self._pass_bytes += count

    def finish(self) -> None:
        """On the event loop: mark the segments that were read to the end as verified or damaged."""
        for piece in self._pieces:
            log, segment = piece.log, piece.segment
            is_same = (
                log.truncations == piece.truncations
                and segment in log.segments.all
                and log.failure is None
            )
            if not piece.is_done and is_same:
                continue
            piece.position = piece.end
            self._last = (log.topic_partition, segment.base_offset)
            if not is_same:
                continue
            self.segments_read += 1
            self._pass_segments += 1
            if piece.is_damaged and log.examine(segment):
                self.segments_damaged += 1
                self._pass_damaged += 1
            elif segment.is_sealed and segment.size == piece.size:
                segment.unverified_end = 0
        self._pieces = [piece for piece in self._pieces if piece.position < piece.end]
        self._write_position()

    def _begin_pass(self, last: tuple[TopicPartition, int] | None) -> None:
        self._begun_ms = self._clock.monotonic_ms()
        self._is_under_way = True
        self._last = last
        names = sorted(self._logs.logs)
        self._names = names if last is None else [name for name in names if name >= last[0]]
        self._pass_bytes = self._pass_segments = self._pass_damaged = 0

    def _end_pass(self) -> None:
        self._is_under_way = False
        self._last = None
        self.passes += 1
        self._write_position()
        if self._pass_segments:
            logger.info(
                "scrub: %d segments, %d bytes read, %d damaged",
                self._pass_segments,
                self._pass_bytes,
                self._pass_damaged,
            )

    def _next_piece(self) -> Piece | None:
        """The next segment after the last finished one and those being read."""
        while self._names:
            log = self._logs.logs.get(self._names[0])
            under_way = [each.segment.base_offset for each in self._pieces if each.log is log]
            if self._last is not None and self._last[0] == self._names[0]:
                under_way.append(self._last[1])
            floor = max(under_way, default=-1)
            for segment, end in log.flushing.flushed_segments() if log is not None else ():
                if segment.base_offset > floor and not segment.corrupt_ranges:
                    return _piece(log, segment, end)
            del self._names[0]
        return None

    def _write_position(self) -> None:
        path = f"{self._logs.data_dir}/{POSITION_FILE}"
        last = self._last
        text = "" if last is None else f"{last[0].topic} {last[0].partition} {last[1]}"
        try:
            self._logs.disk.write_file(path, text.encode(), sync=False)
        except BrokerError as error:
            logger.warning("cannot write the position of the scrub: %s", error)

    def _read_position(self) -> tuple[TopicPartition, int] | None:
        data = self._logs.disk.read_file(f"{self._logs.data_dir}/{POSITION_FILE}")
        try:
            topic, partition, base_offset = (data or b"").decode().split()
            return TopicPartition(topic, int(partition)), int(base_offset)
        except ValueError:
            return None  # Missing or damaged: start from the beginning.


def _piece(log: SegmentedLog | None, segment: Segment, end: int) -> Piece:
    assert log is not None
    return Piece(
        log=log,
        segment=segment,
        end=end,
        size=segment.size,
        truncations=log.truncations,
        # A copy: the event loop may change the epochs while the thread reads them.
        proof=Proof(
            gaps_end=log.proof.gaps_end, epochs=LeaderEpochs(list(log.leader_epochs.entries))
        ),
        next_offset=segment.base_offset,
    )
