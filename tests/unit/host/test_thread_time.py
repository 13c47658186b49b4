"""The time that a thread ran, or waited for a processor."""

import time
from pathlib import Path

import pytest

from zhumq.host import thread_time
from zhumq.host.thread_time import demand_seconds


def work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_work_counts() -> None:
    before = demand_seconds()
    work(0.05)
    assert demand_seconds() - before >= 0.04


@pytest.mark.parametrize("content", [None, "", "1 2", "none at all"])
def test_a_system_that_does_not_tell_has_the_time_that_it_ran(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "schedstat"
    if content is not None:
        file.write_text(content)
    monkeypatch.setattr(thread_time, "_SCHEDSTAT", file)
    before = time.thread_time()
    assert before <= demand_seconds() <= time.thread_time()
