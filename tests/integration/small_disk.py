"""A small file system for a broker, and what the broker reports of it."""

import contextlib
import os
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from zhumq.testing.process import BrokerProcess

SECONDS_MAX = 60.0
Fact = TypeVar("Fact")


@contextlib.contextmanager
def small_file_system(folder: Path, size: int) -> Iterator[Path]:
    """A file system of its own with little room, in this folder."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def wait_for(look: Callable[[], Fact | None], what: str) -> Fact:
    deadline = time.monotonic() + SECONDS_MAX
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"no {what}"
        threading.Event().wait(0.05)
    return found


def page(process: BrokerProcess, path: str) -> str:
    with urllib.request.urlopen(f"http://{process.http}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def figure(process: BrokerProcess, name: str) -> float:
    (line,) = (
        each for each in page(process, "/metrics").splitlines() if each.startswith(name + " ")
    )
    return float(line.split()[1])
