"""`python -m chaos` that is interrupted leaves no process behind."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.interruption import EXIT_INTERRUPTED

REPOSITORY = Path(__file__).parents[2]
SECONDS_MAX = 90.0
# As a shell starts what is in the background.
IN_THE_BACKGROUND = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.argv = ["chaos", "--zookeeper-nodes", "1"]
runpy.run_module("chaos", run_name="__main__")
"""
WAITING = """
import signal
from chaos.interruption import can_be_interrupted
with can_be_interrupted():
    try:
        print("waiting", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print("interrupted")
"""


@contextlib.contextmanager
def chaos(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-c", IN_THE_BACKGROUND],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def processes_with(folder: Path) -> list[str]:
    """The command lines of the processes whose data is in the folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(each.read_text().replace("\0", " "))
    return [each for each in found if str(folder) in each]


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_run_that_is_interrupted_leaves_no_process() -> None:
    # Not the folder of the test: its name is not in what runs beside this test.
    with tempfile.TemporaryDirectory(prefix="zhumq-interrupted-") as name:
        folder = Path(name)
        with chaos(folder) as process:
            assert process.stdout is not None
            assert "brokers at" in process.stdout.readline()
            assert len(processes_with(folder)) == 4  # ZooKeeper and three brokers
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=SECONDS_MAX)
        assert processes_with(folder) == []
    assert process.returncode == EXIT_INTERRUPTED
    assert rest.splitlines()[-1] == "interrupted: the brokers are killed, their data stays"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_both_signals_interrupt(sent: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITING], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(sent)
        assert process.communicate(timeout=SECONDS_MAX)[0] == "interrupted\n"


def test_children_without_an_owner_are_ended() -> None:
    program = """
import os, subprocess, sys, threading
from chaos.interruption import end_children
sleepers = []
begin = lambda: sleepers.append(os.posix_spawn("/bin/sleep", ["sleep", "600"], os.environ))
begin()
other = threading.Thread(target=begin)
other.start()
other.join()
end_children()
for each in sleepers:
    try:
        os.kill(each, 0)
    except ProcessLookupError:
        print("gone")
"""
    printed = subprocess.check_output(
        [sys.executable, "-c", program], cwd=REPOSITORY, text=True, timeout=SECONDS_MAX
    )
    assert printed.split() == ["gone", "gone"]
