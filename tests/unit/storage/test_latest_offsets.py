"""The last offset of each key against a dictionary, and the memory that it takes."""

import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.storage.latest_offsets import KEYS_MAX, OFFSETS_MAX, LatestOffsets

TABLE_BYTES_MAX = 17 << 20
# In a process of its own, whose memory nothing else changes; in a thread, as compaction is.
PROGRAM = """
import threading
from zhumq.host.memory import keep_freed_memory, resident_bytes
from zhumq.storage.latest_offsets import LatestOffsets

def fill(keys):
    latest = LatestOffsets(keys)
    for offset in range(keys):
        latest.put(b"%d" % offset, offset)
    used.append(resident_bytes())

def run(keys):
    thread = threading.Thread(target=fill, args=(keys,))
    thread.start()
    thread.join()

used = []
keep_freed_memory()
run(10)
before = resident_bytes()
run(400_000)
print(used[-1] - before, resident_bytes() - before)
"""


@given(
    keys=st.lists(st.binary(max_size=3), max_size=300),
    first_offset=st.integers(0, 1 << 60),
    keys_max=st.integers(0, 300),
)
def test_it_is_a_dictionary(keys: list[bytes], first_offset: int, keys_max: int) -> None:
    latest = LatestOffsets(keys_max)
    model: dict[bytes, int] = {}
    for offset, key in enumerate(keys, first_offset):
        latest.put(key, offset)
        model[key] = offset
    assert len(latest) == len(model)
    for key, offset in model.items():
        assert latest.get(key) == offset
        assert latest.get(key + b"\0") == model.get(key + b"\0", -1)


def test_a_table_of_most_keys_takes_little_memory_and_does_not_grow() -> None:
    assert LatestOffsets(KEYS_MAX).size < TABLE_BYTES_MAX
    count = 20_000
    tracemalloc.start()
    try:
        latest = LatestOffsets(count)
        size = latest.size
        for number in range(count):
            latest.put(b"key-%d" % number, 2 * number)
            latest.put(b"key-%d" % (number // 2), 2 * number + 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(latest) == count
    assert latest.size == size <= 20 * count + 100
    assert peak < count  # The heap has nothing of it.
    assert latest.get(b"key-0") == 3
    assert latest.get(b"key-%d" % (count // 2 - 1)) == 2 * count - 1
    assert latest.get(b"key-%d" % (count - 1)) == 2 * count - 2
    assert latest.get(b"key-%d" % count) == -1


def test_the_first_batch_has_room_and_later_ones_up_to_the_limit() -> None:
    latest = LatestOffsets(3)
    assert latest.has_room(100, 1 << 60)
    latest.put(b"a", 1_000)
    assert latest.has_room(2, 1_001)
    assert not latest.has_room(3, 1_001)
    last_offset = 1_000 + OFFSETS_MAX - 1
    assert latest.has_room(1, last_offset)
    assert not latest.has_room(1, last_offset + 1)
    latest.put(b"b", last_offset)
    assert latest.get(b"b") == last_offset
    assert latest.get(b"a") == 1_000


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the resident size is Linux's")
def test_its_memory_goes_back_to_the_system_when_a_thread_has_done_with_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    used, left = map(int, done.stdout.split())
    assert used > 7_000_000
    assert left < 2_000_000
