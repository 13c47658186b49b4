"""Facts of a partition's log, for requests and metrics."""

from collections.abc import Mapping, Sequence
from typing import Final

from zhumq.model.errors import BrokerError
from zhumq.records.batch import HEADER, HEADER_BYTES, BatchHeader
from zhumq.replication.flush_levels import FlushLevels
from zhumq.replication.pending import Watcher, Watchers
from zhumq.storage.key_indexes import KeyIndexes
from zhumq.storage.leader_epochs import EpochStart
from zhumq.storage.log import Log
from zhumq.storage.log_slice import CorruptRange
from zhumq.storage.producer_state import ProducerEntry
from zhumq.storage.schema_ids import KnownSchemas
from zhumq.storage.time_lookup import TimestampedOffset
from zhumq.storage.transaction_index import AbortedTransaction

CONTROL_BATCHES_MAX: Final = 16  # that are skipped in search of a message


class PartitionLog:
    """What a partition knows by its log alone, as leader and as follower; and the watchers of its records."""

    __slots__ = ("_watchers", "flush_levels", "log", "sent_bytes", "sent_messages")

    def __init__(self, log: Log) -> None:
        self.log = log
        self.flush_levels: FlushLevels | None = None
        self._watchers = Watchers()
        # To consumers, since it is served here.
        self.sent_messages = self.sent_bytes = 0

    def watch(self, watcher: Watcher) -> None:
        self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def use_flush_levels(self, levels: FlushLevels | None) -> None:
        """Flush by these levels from now on."""
        before, self.flush_levels = self.flush_levels, levels
        if before is not None:
            self.unwatch(before)
            before.close()
        if levels is not None:
            self.watch(levels)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return self.log.size_bytes

    @property
    def bytes_written(self) -> int:
        """Bytes that were appended since the log was opened."""
        return self.log.bytes_written

    @property
    def corrupt_ranges(self) -> tuple[CorruptRange, ...]:
        """Damaged ranges, which readers are refused."""
        return self.log.corrupt_ranges

    @property
    def failure(self) -> BrokerError | None:
        """Why the log is offline; None while it works."""
        return self.log.failure

    @property
    def producers(self) -> Mapping[int, ProducerEntry]:
        """The idempotent producers whose last batches are remembered, by producer id."""
        return self.log.producer_state.producers

    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which this offset was written; -1 if it is not known."""
        return self.log.epoch_of(offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochStart:
        """The largest known epoch not above this one, and the offset where it ends."""
        return self.log.end_offset_for_epoch(epoch)

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record that is not older than this timestamp."""
        return self.log.offset_for_timestamp(timestamp)

    def max_timestamp_offset(self) -> TimestampedOffset | None:
        """The record with the largest timestamp."""
        return self.log.max_timestamp_offset()

    def time_of(self, offset: int, end_offset: int) -> int | None:
        """The timestamp of the first message from this offset on and before another one, to within its batch. None:
        there is no message. Raises BrokerError.

        Only headers of batches are read: within a batch, messages count as evenly spread over its time.
        """
        offset = max(offset, self.log_start_offset)
        for _ in range(CONTROL_BATCHES_MAX):
            if offset >= end_offset:
                break
            found = self.log.read(offset, max_bytes=1, up_to_offset=end_offset, for_consumer=True)
            if not found.regions:
                break
            region = found.regions[0]
            header = BatchHeader(*HEADER.unpack(region.file.read_at(region.position, HEADER_BYTES)))
            if not header.is_control:
                return _time_in(header, offset)
            offset = header.next_offset
        return None

    def aborted_transactions(self, offset: int, next_offset: int) -> Sequence[AbortedTransaction]:
        """The aborted transactions that reach from an offset to before another one."""
        return self.log.aborted_transactions(offset, next_offset)

    @property
    def takes_delays(self) -> bool:
        """Whether the topic sets delay.enable."""
        return self.log.config.delay_max_ms > 0

    def accept_deferred(self) -> None:
        """The coordinator of delayed messages stages those that are appended from now on."""
        self.log.accepts_deferred = True

    @property
    def needs_schemas(self) -> bool:
        """Whether the topic sets schema.validation."""
        return self.log.config.schema_rule is not None

    def use_schemas(self, known: KnownSchemas) -> None:
        """Ask `known` which schemas are registered, from the next append on."""
        self.log.known_schemas = known

    @property
    def key_indexes(self) -> KeyIndexes | None:
        """The index of keys and tags; None unless the topic sets index.keys."""
        return self.log.key_indexes if self.log.config.index_keys else None

    def has_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this producer is open here: its next batches need no verification."""
        return self.log.producer_state.has_transaction(producer_id, producer_epoch)

    def verification(self, producer_id: int) -> int:
        """A number for `allow_transaction`, taken before the coordinator is asked."""
        return self.log.producer_state.verification(producer_id)

    def allow_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        verification: int,
        *,
        begins_at_zero: bool = False,
    ) -> None:
        """The coordinator confirmed that the producer's transaction includes this partition."""
        self.log.producer_state.allow_transaction(
            producer_id, producer_epoch, verification, begins_at_zero=begins_at_zero
        )


def _time_in(header: BatchHeader, offset: int) -> int:
    last_ms = header.max_timestamp
    # Compaction keeps another time in the place of the first timestamp.
    first_ms = last_ms if header.delete_horizon_ms is not None else header.base_timestamp
    passed = max(offset - header.base_offset, 0)
    return first_ms + (last_ms - first_ms) * passed // max(header.last_offset_delta, 1)
