"""The key index of a log against a scan of it, under appends, truncations, retention, compaction, crashes, damage."""

import random
from collections.abc import Iterator

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.manual_time import ManualClock
from tests.unit.storage.key_index_support import append_keys, check_lookup, indexing
from tests.unit.storage.storage_support import FOLDER, PARTITION, apply_retention, flush

from zhumq.records.codecs import Compression
from zhumq.storage.log_compaction import begin_compaction, finish_compaction
from zhumq.storage.log_config import CleanupPolicy, LogConfig
from zhumq.storage.retention import ReplicaFacts
from zhumq.storage.segmented_log import SegmentedLog
from zhumq.testing.disk import MemoryDisk

KEYS = (b"", b"a", b"b", b"c", b"tag")
TAGS = (b"tag", b"x", b"y")
SOLE = ReplicaFacts(high_watermark=2**62, is_leader=True, is_sole=True)


class KeyIndexMachine(RuleBasedStateMachine):
    @initialize(
        segment_bytes=st.sampled_from([300, 1500, 6000, 200_000]),
        is_compacted=st.booleans(),
    )
    def open_first(self, segment_bytes: int, is_compacted: bool) -> None:
        self.disk = MemoryDisk()
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_keys=True,
            min_cleanable_dirty_ratio=0.0,
            cleanup_policy=frozenset({CleanupPolicy.COMPACT if is_compacted else CleanupPolicy.DELETE}),
        )  # fmt: skip
        self.recovery_point = self.compacted_to = 0
        self.open()

    def open(self, *, clean: bool = False) -> None:
        self.log = SegmentedLog.open(
            FOLDER,
            PARTITION,
            self.config,
            disk=self.disk,
            clock=ManualClock(),
            recovery_point=self.recovery_point,
            clean_shutdown=clean,
        )
        # As the log manager does.
        self.log.first_dirty_offset = self.compacted_to
        self.log.proof.gaps_end = max(self.log.proof.gaps_end, self.compacted_to)
        self.work: Iterator[None] = iter(())

    @rule(
        keys=st.lists(st.sampled_from((None, *KEYS)), min_size=1, max_size=40),
        tags=st.sampled_from((None, b"", b"x", b"x, tag", b"y,x,,y")),
        compression=st.sampled_from((Compression.NONE, Compression.LZ4)),
        times=st.integers(1, 20),
    )
    def append(
        self, keys: list[bytes | None], tags: bytes | None, compression: Compression, times: int
    ) -> None:
        if self.config.is_compacted:
            keys = [key or b"" for key in keys]
        for _ in range(times):
            append_keys(self.log, *keys, tags=tags, compression=compression)

    @rule(steps=st.integers(1, 200))
    def index(self, steps: int) -> None:
        for _ in range(steps):
            try:
                next(self.work)
            except StopIteration:
                self.work = indexing(self.log)

    @rule()
    def leave_and_lead_again(self) -> None:
        self.log.key_indexes.close()
        self.work = iter(())

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        # What was compacted is committed: no replica truncates there.
        first = max(self.log.log_start_offset, self.compacted_to)
        self.log.truncate_to(data.draw(st.integers(first, self.log.log_end_offset)))
        self.recovery_point = min(self.recovery_point, self.log.log_end_offset)

    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.log_start_offset, self.log.log_end_offset))
        self.log.delete_records_before(offset)
        apply_retention(self.log, 0, SOLE)

    @rule()
    def checkpoint(self) -> None:
        flush(self.log, checkpoint=True)
        self.recovery_point = self.log.recovery_point

    @rule()
    def compact(self) -> None:
        self.checkpoint()
        ticket = begin_compaction(self.log, 2**60, self.log.log_end_offset)
        if ticket is not None:
            ticket.run()
            finish_compaction(self.log, ticket)
            assert ticket.error is None
            self.compacted_to = self.log.first_dirty_offset

    @rule()
    def restart(self) -> None:
        self.log.key_indexes.close()
        self.log.close()
        self.recovery_point = self.log.recovery_point
        self.open(clean=True)

    @rule(seed=st.integers(0, 2**32))
    def crash(self, seed: int) -> None:
        """The process dies: the index files are torn anywhere."""
        draw = random.Random(seed)
        for path in self.index_files():
            content = self.disk.files[path].content
            del content[draw.randint(0, len(content)) :]
        self.open()

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=40))
    def lose_the_end_of_the_log(self, keys: list[bytes]) -> None:
        """The machine dies: the index has records that the log has lost, and others take their place."""
        self.checkpoint()
        segment = self.log.segments.active
        path, size = segment.paths[0], segment.size
        append_keys(self.log, *keys)
        self.index(200)
        if self.log.segments.active is segment:
            self.log.key_indexes.close()
            del self.disk.files[path].content[size:]
            self.open()
            append_keys(self.log, *reversed(keys))

    def index_files(self) -> list[str]:
        return sorted(path for path in self.disk.files if ".keyindex" in path)

    @rule(seed=st.integers(0, 2**32))
    def damage(self, seed: int) -> None:
        draw = random.Random(seed)
        if files := self.index_files():
            content = self.disk.files[draw.choice(files)].content
            if content:
                content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)

    @rule()
    def lose_a_file(self) -> None:
        for path in sorted(path for path in self.disk.files if path.endswith(".keyindex"))[:1]:
            self.log.key_indexes.close()
            self.log.close()
            self.recovery_point = self.log.recovery_point
            self.disk.unlink(path)
            self.open(clean=True)

    @rule(tag=st.sampled_from(TAGS), key=st.sampled_from((*KEYS, b"unknown")))
    def look_up(self, tag: bytes, key: bytes) -> None:
        check_lookup(self.log, tag=tag)
        check_lookup(self.log, key=key)

    @rule()
    def index_completely(self) -> None:
        for _ in range(3):  # Damage is found by looking up, and repaired by indexing.
            for _ in self.work:
                pass
            for _ in indexing(self.log):
                pass
            for key in KEYS:
                check_lookup(self.log, key=key)
        indexes, start = self.log.key_indexes, self.log.log_start_offset
        assert indexes.next_offset(start) >= self.log.log_end_offset

    @invariant()
    def finds_every_message_that_it_covers(self) -> None:
        if hasattr(self, "log"):
            check_lookup(self.log, key=b"a")


KeyIndexMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestKeyIndexModel = KeyIndexMachine.TestCase
