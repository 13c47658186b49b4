"""A program on Spark as a process that can be killed: its Python, its JVM, or all that it has started."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from zhumq.testing.cluster import wait_for

DRIVER_GONE_SECONDS_MAX: Final = 180.0
# A driver that is soon killed gains nothing from the second compiler.
SHORT_LIVED_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PIPELINE_RUN: Final = ("-m", "zhumq", "pipeline", "run")


class Driver:
    """`zhumq pipeline run` or another program as a process, with all that it starts: a JVM, Python workers."""

    def __init__(
        self,
        words: list[str],
        log: Path,
        *,
        program: Sequence[str] = PIPELINE_RUN,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                [sys.executable, *program, *words],
                env={
                    **os.environ,
                    "JAVA_TOOL_OPTIONS": SHORT_LIVED_JAVA,
                    **(environment or {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask_to_stop(self) -> None:
        """Send SIGTERM: `zhumq pipeline run` finishes its batch."""
        self._process.terminate()

    def wait(self, seconds: float) -> int:
        return self._process.wait(seconds)

    def kill(self, what: str) -> None:
        """Send SIGKILL to the Python driver, to its JVM, or to all; the other processes must end too."""
        for pid in self.processes() if what == "all" else [self._one(what)]:
            _kill(pid)
        # A JVM ends when its driver does, and the other way round.
        self.wait_until_gone()

    def end(self) -> None:
        for pid in self.processes():
            _kill(pid)
        self.wait_until_gone()

    def wait_until_gone(self) -> None:
        wait_for(
            lambda: (self._process.poll() is not None and not self.processes()) or None,
            "end of the driver and of all its processes",
            seconds=DRIVER_GONE_SECONDS_MAX,
        )

    def processes(self) -> list[int]:
        """All processes in the driver's session, without zombies."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[3]) == self._process.pid and fields[0] != "Z":
                    found.append(int(folder.name))
        return found

    def _one(self, what: str) -> int:
        if what == "jvm":
            for pid in self.processes():
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if words[0].endswith(b"java") and b"org.apache.spark.deploy.SparkSubmit" in words:
                    return pid
        return self._process.pid  # Also if the JVM does not run yet.


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
