"""The allocator settings: freed memory is reused without page faults, and returned after a burst."""

import platform
import subprocess
import sys

import pytest

# In a process of its own: the setting cannot be taken back.
PROGRAM = """
import resource
from zhumq.host.memory import keep_freed_memory

assert keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def allocate():
    return [bytes(250_000) for _ in range(8)]

allocate()
before = faults()
for _ in range(50):
    allocate()
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    # 50 rounds of 2 MB are 24,000 pages; without the setting nearly every one is faulted in.
    assert int(done.stdout) < 2_000


SPARE_PROGRAM = """
from zhumq.host.memory import SpareMemory, keep_freed_memory, resident_bytes

keep_freed_memory()
spare = SpareMemory()
spare.look()
before = resident_bytes()
held = [b"x" * 200_000 for _ in range(1_000)]
kept = held[::20]  # what lies between these is not at the end of the heap
while spare.look():
    pass
used = resident_bytes()
del held
given_back = max(spare.look() for _ in range(20))
print((used - before) // 1_000_000, given_back // 1_000_000, (resident_bytes() - before) // 1_000_000)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc keeps what is not at the end")
def test_memory_of_a_burst_is_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPARE_PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    used, given_back, left = map(int, done.stdout.split())
    assert used >= 190
    assert given_back >= 150
    assert left <= 60
