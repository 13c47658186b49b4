"""A log against a plain list, under appends, reads, truncations, deletions, restarts and crashes."""

import random
from dataclasses import dataclass

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.manual_time import ManualClock
from tests.unit.storage.storage_support import apply_retention, flush

from zhumq.model.ids import TopicPartition
from zhumq.records.batch import Record, batches
from zhumq.records.builder import build_batch
from zhumq.storage.leader_epochs import EpochStart
from zhumq.storage.log_config import LogConfig
from zhumq.storage.recovery import restore_producers
from zhumq.storage.retention import ReplicaFacts
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.storage.transaction_index import TransactionIndexes
from zhumq.testing.disk import MemoryDisk

NOW_MS = 1_700_000_000_000
FOLDER = "/data/model-0"


@dataclass(frozen=True)
class ModelBatch:
    base_offset: int
    values: tuple[bytes, ...]
    timestamp: int
    leader_epoch: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.values)


class LogMachine(RuleBasedStateMachine):
    @initialize(
        segment_bytes=st.sampled_from([150, 400, 3000]),
        index_interval_bytes=st.sampled_from([1, 100, 4096]),
    )
    def open_first(self, segment_bytes: int, index_interval_bytes: int) -> None:
        self.disk = MemoryDisk()
        self.config = LogConfig(
            segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes
        )
        self.model: list[ModelBatch] = []
        self.start = 0
        self.epoch = 0
        self.sequences = {1: 0, 2: 0}
        self.counter = 0
        self.written_recovery_point = 0
        self.open(clean=False)

    def open(self, *, clean: bool) -> None:
        self.log = SegmentedLog.open(
            FOLDER,
            TopicPartition("model", 0),
            self.config,
            disk=self.disk,
            clock=ManualClock(),
            recovery_point=self.written_recovery_point,
            clean_shutdown=clean,
            log_start_offset=self.start,
        )
        self.log.before_recovery_point_falls = self.write_recovery_point

    def write_recovery_point(self) -> None:
        self.written_recovery_point = self.log.recovery_point

    @property
    def end(self) -> int:
        return self.model[-1].next_offset if self.model else self.start

    @rule(
        count=st.integers(1, 5),
        size=st.integers(0, 60),
        producer=st.sampled_from([-1, 1, 2]),
        age_ms=st.integers(0, 50),
    )
    def append(self, count: int, size: int, producer: int, age_ms: int) -> None:
        self.counter += 1
        values = tuple(b"%d.%d." % (self.counter, place) + bytes(size) for place in range(count))
        timestamp = NOW_MS - age_ms
        records = [Record(timestamp=timestamp, value=value) for value in values]
        if producer > 0:
            entry = self.log.producer_state.producers.get(producer)
            sequence = entry.next_sequence if entry else 0
            data = build_batch(
                records, producer_id=producer, producer_epoch=0, base_sequence=sequence
            )
        else:
            data = build_batch(records)
        appended = self.log.append(data, leader_epoch=self.epoch, now_ms=NOW_MS)
        assert appended.base_offset == self.end
        self.model.append(ModelBatch(self.end, values, timestamp, self.epoch))

    @rule(data=st.data(), max_bytes=st.integers(1, 2000), at_least_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, at_least_one: bool) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        up_to = data.draw(st.integers(offset, self.end))
        part = self.log.read(
            offset, max_bytes=max_bytes, up_to_offset=up_to, at_least_one=at_least_one
        )
        found = list(batches(part.read_bytes()))
        expected = [
            batch
            for batch in self.model
            if batch.next_offset > offset and batch.next_offset <= up_to
        ][: len(found)]
        assert [
            (batch.header.base_offset, tuple(record.value for record in batch.records()))
            for batch in found
        ] == [(batch.base_offset, batch.values) for batch in expected]
        assert all(batch.crc_matches for batch in found)
        readable = [batch for batch in self.model if offset < batch.next_offset <= up_to]
        if at_least_one and readable:
            assert found
        if len(found) > 1 or not at_least_one:
            assert len(part) <= max_bytes

    @rule(data=st.data())
    def find_time(self, data: st.DataObject) -> None:
        timestamp = NOW_MS - data.draw(st.integers(-1, 51))
        expected = next(
            (
                (batch.timestamp, max(batch.base_offset, self.start), batch.leader_epoch)
                for batch in self.model
                if batch.timestamp >= timestamp and batch.next_offset > self.start
            ),
            None,
        )
        assert self.log.offset_for_timestamp(timestamp) == expected

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule(checkpoint=st.booleans())
    def flush(self, checkpoint: bool) -> None:
        flush(self.log, checkpoint=checkpoint)
        assert self.log.flushed_offset == self.end
        if checkpoint:
            self.write_recovery_point()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.truncate_to(offset)
        flush(self.log)
        self.model = [batch for batch in self.model if batch.next_offset <= offset]
        if self.end <= self.start:
            self.model = []

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.end))
        self.log.delete_records_before(self.start)
        apply_retention(self.log, NOW_MS, ReplicaFacts(high_watermark=self.end))
        if self.start == self.end:
            self.model = []

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        state = self.log.producer_state
        epochs = self.epochs_with_records()
        self.log.close(clean=clean)
        if clean:
            self.write_recovery_point()
        self.open(clean=clean)
        assert self.log.producer_state == state
        assert self.epochs_with_records() == epochs

    def epochs_with_records(self) -> list[EpochStart]:
        return [each for each in self.log.leader_epochs.entries if each.start_offset < self.end]

    @rule(seed=st.integers(0, 1000))
    def lose_power(self, seed: int) -> None:
        chance = random.Random(seed)
        flushed = self.log.flushed_offset
        self.disk.crash(
            lambda path, unsynced: chance.randint(0, unsynced) if path.endswith(".log") else 0
        )
        self.open(clean=False)
        end = self.log.log_end_offset
        assert end >= flushed
        if not self.log.corrupt_ranges:
            self.model = [batch for batch in self.model if batch.next_offset <= end]
            if end == self.start:
                self.model = []
            return
        # A sealed segment lost its end and a later one exists: a read of the damage must fail, and
        # all of the damage is above the flushed offset.
        damaged = min(bad.first_offset for bad in self.log.corrupt_ranges)
        assert max(damaged, self.start) >= flushed
        self.log.truncate_to(damaged)
        flush(self.log)
        end = self.log.log_end_offset
        self.model = [batch for batch in self.model if batch.next_offset <= end > self.start]
        assert self.log.corrupt_ranges == ()

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def the_ends_agree(self) -> None:
        assert self.log.log_end_offset == self.end
        assert self.log.log_start_offset == self.start
        assert self.log.recovery_point <= self.log.flushed_offset <= self.end

    @invariant()
    @precondition(lambda self: hasattr(self, "log"))
    def the_live_producers_are_those_of_the_log(self) -> None:
        replayed = restore_producers(
            FOLDER,
            self.log.segments.all,
            self.log.log_end_offset,
            disk=self.disk,
            indexes=TransactionIndexes(FOLDER, self.disk, ()),
        )
        assert replayed.state == self.log.producer_state


LogMachine.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=25,
    # Shrinking a long history takes minutes; the first failing history is readable enough.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
TestLogAgainstAList = LogMachine.TestCase
