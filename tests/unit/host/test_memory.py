"""Memory that was freed is used again without asking the system for it."""

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
