"""A process of `zhumq web` before a broker."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

STOP_SECONDS_MAX: Final = 20.0


@contextmanager
def web_process(bootstrap: str) -> Iterator[tuple[str, int]]:
    """Its address, and its id."""
    command = [sys.executable, "-m", "zhumq", "web", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--bootstrap", bootstrap], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ready = re.match(r"zhumq web ready url=(\S+) ", process.stdout.readline())
        assert ready is not None
        yield ready.group(1), process.pid
    finally:
        process.terminate()
        process.wait(STOP_SECONDS_MAX)
