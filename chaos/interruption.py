"""What happens to a run's processes at Ctrl-C and at SIGTERM: none of them is left."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

EXIT_INTERRUPTED: Final = 130
# The children of each thread; only Linux has it.
_THREADS: Final = Path("/proc/self/task")


@contextlib.contextmanager
def can_be_interrupted() -> Iterator[None]:
    """SIGINT and SIGTERM raise KeyboardInterrupt in the block, and no child process outlives it."""
    # Also where a shell has started this in the background, with SIGINT ignored.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    try:
        yield
    finally:
        # The run has ended what it knows. An interrupted start has left a process without an owner, and a second
        # Ctrl-C those that were not ended yet.
        end_children()


def interruptible(main: Callable[[], int], words: str) -> int:
    """The exit code of a program; one that is interrupted says these words."""
    with can_be_interrupted():
        try:
            return main()
        except KeyboardInterrupt:
            sys.stdout.write(f"interrupted: {words}\n")
            sys.stdout.flush()
            return EXIT_INTERRUPTED


def end_children() -> None:
    """Kill every child process of this process."""
    for process_id in _children():
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(process_id, signal.SIGKILL)
            os.waitpid(process_id, 0)


def _children() -> list[int]:
    found: list[int] = []
    for each in _THREADS.glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, each.read_text().split())
    return found
