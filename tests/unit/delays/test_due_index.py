"""The index of pending messages against a sorted list, and its bounds."""

import random
from collections.abc import Iterable

import pytest
from delay_shard_driver import MemoryRuns
from hypothesis import example, given
from hypothesis import strategies as st

from zhumq.delays.due_index import BLOCK_ENTRIES, BLOCKS_ENTRIES_MAX, DueIndex, Entry
from zhumq.model.errors import StorageFailed
from zhumq.storage.due_runs import DueRuns
from zhumq.testing.disk import MemoryDisk


def drained(index: DueIndex, now_ms: int) -> list[Entry]:
    found: list[Entry] = []
    drain_into(found, index, now_ms)
    return found


def drain_into(found: list[Entry], index: DueIndex, now_ms: int = 1_000) -> None:
    while taken := index.take(now_ms, 100):
        found += taken


def entry_of(due_ms: int, serial: int) -> Entry:
    """With a value of some length, or without one."""
    return Entry(due_ms, serial, serial, b"%d" % serial * (serial % 4))


def without_values(entries: Iterable[Entry]) -> list[tuple[int, ...]]:
    return [(each.due_ms, each.serial, each.offset) for each in entries]


def scanned(index: DueIndex, due_ms: int) -> list[tuple[int, ...]]:
    return without_values(index.scan(due_ms, 0))


@given(
    entries=st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=200),
    times=st.lists(st.integers(0, 60), max_size=10),
)
def test_the_index_is_a_sorted_list(entries: list[tuple[int, bool]], times: list[int]) -> None:
    runs = MemoryRuns()
    index = DueIndex(runs, run_entries_min=3)
    model: list[Entry] = []
    for serial, (due_ms, is_removed) in enumerate(entries):
        index.add(entry_of(due_ms, serial))
        if is_removed:
            index.remove(due_ms, serial)
        else:
            model.append(entry_of(due_ms, serial))
    model.sort()
    assert scanned(index, -1) == without_values(model)
    assert scanned(index, 25) == without_values(each for each in model if each.due_ms >= 25)
    for now_ms in sorted(times):
        assert drained(index, now_ms) == [each for each in model if each.due_ms <= now_ms]
        model = [each for each in model if each.due_ms > now_ms]
        assert scanned(index, -1) == without_values(model)
    assert drained(index, 100) == model
    assert index.count == 0
    assert runs.left == 0


@pytest.mark.thorough
def test_what_is_in_memory_does_not_grow_with_what_is_pending() -> None:
    runs = MemoryRuns()
    index = DueIndex(runs, run_entries_min=16, run_entries_max=32)
    draw = random.Random(1)
    in_memory = 0
    for serial in range(50_000):
        index.add(Entry(draw.randrange(10**9), serial, serial))
        in_memory = max(in_memory, index.in_memory) if serial % 32 == 0 else in_memory
    assert index.count == 50_000
    # Twice the longest run; nothing of the runs, because nothing was due. Without the limit it is half as much again.
    assert in_memory <= 2 * 32
    assert BLOCKS_ENTRIES_MAX // BLOCK_ENTRIES < len(runs.runs) < 50_000 // 16
    found: list[Entry] = []
    while taken := index.take(10**9, 1_000):
        found += taken
        in_memory = max(in_memory, index.in_memory)
    assert in_memory <= 2 * 32 + BLOCKS_ENTRIES_MAX
    assert found == sorted(found)
    assert len(found) == 50_000


def test_a_removal_without_its_entry_is_dropped() -> None:
    """Compaction deletes a message before its tombstone."""
    index = DueIndex(MemoryRuns(), run_entries_min=3)
    for serial in range(20):
        index.remove(5, serial)
    index.add(Entry(5, 20, 20))
    assert drained(index, 10) == [Entry(5, 20, 20)]
    assert index.count == 0


def test_entries_stay_in_memory_while_the_disk_is_full() -> None:
    runs = MemoryRuns()
    runs.is_full = True
    index = DueIndex(runs, run_entries_min=4)
    for serial in range(100):
        index.add(Entry(100 - serial, serial, serial))
    assert not runs.runs
    runs.is_full = False
    index.add(Entry(7, 100, 100))
    for serial in range(101, 120):
        index.add(Entry(serial, serial, serial))
    assert runs.runs
    assert len(drained(index, 1_000)) == 120


@given(
    dues=st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=20, max_size=200),
    readable=st.integers(0, 40),
)
@example(dues=[(serial, False) for serial in range(30)], readable=3)
def test_nothing_is_lost_when_a_run_cannot_be_read_for_a_while(
    dues: list[tuple[int, bool]], readable: int
) -> None:
    runs = MemoryRuns()
    index = DueIndex(runs, run_entries_min=3)
    for serial, (due_ms, _) in enumerate(dues):
        index.add(entry_of(due_ms, serial))
    for serial, (due_ms, is_removed) in enumerate(dues):
        if is_removed:  # when the entry is in a run, and its removal is in another
            index.remove(due_ms, serial)
    for each in runs.runs:
        each.readable = readable
    found: list[Entry] = []
    try:
        drain_into(found, index)
    except StorageFailed:
        for each in runs.runs:
            each.readable = 1 << 30
        drain_into(found, index)
    assert found == sorted(
        entry_of(due_ms, serial)
        for serial, (due_ms, is_removed) in enumerate(dues)
        if not is_removed
    )
    assert index.count == 0


def test_run_files_are_deleted_with_their_last_entry_and_by_a_restart() -> None:
    disk = MemoryDisk()
    disk.make_directory("/data")
    index = DueIndex(DueRuns(disk, "/data").new_store(), run_entries_min=4)
    for serial in range(64):
        index.add(Entry(serial, serial, serial))
    (folder,) = disk.list_directory("/data/delayed-runs")
    path = f"/data/delayed-runs/{folder.name}"
    assert disk.list_directory(path)
    assert len(drained(index, 1_000)) == 64
    assert not disk.list_directory(path)
    for serial in range(64):
        index.add(Entry(serial, serial, serial))
    DueRuns(disk, "/data")
    assert not disk.list_directory("/data/delayed-runs")
    with pytest.raises(StorageFailed):  # The shard is loaded again.
        drained(index, 1_000)
