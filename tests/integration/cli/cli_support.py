"""Runs the `zhumq` program in its own process, as a user does."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[3] / "src"
SECONDS_MAX = 60.0
# A shell that runs the tests in the background makes them, and so their children, ignore SIGINT.
WITH_SIGINT = """
import signal
from zhumq.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The exit code and output of a command."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def environment(bootstrap: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), "ZHUMQ_BOOTSTRAP": bootstrap}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "zhumq", *arguments]


def begin(
    bootstrap: str, *arguments: str, stdin: int | None = subprocess.DEVNULL
) -> "subprocess.Popen[bytes]":
    """Start a command in the background."""
    return subprocess.Popen(
        [sys.executable, "-c", WITH_SIGINT, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(bootstrap),
    )


class Cli:
    """Commands against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, *arguments: str, lines: Sequence[str | bytes] = ()) -> Done:
        """Run a command with these lines on stdin."""
        fed = b"".join((x.encode() if isinstance(x, str) else x) + b"\n" for x in lines)
        done = subprocess.run(
            command(*arguments),
            input=fed,
            capture_output=True,
            env=environment(self.bootstrap),
            timeout=SECONDS_MAX,
            check=False,
        )
        return Done(code=done.returncode, out=done.stdout, err=done.stderr.decode())

    def must(self, *arguments: str, lines: Sequence[str | bytes] = ()) -> Done:
        """Run a command that has to succeed with nothing on stderr."""
        done = self.run(*arguments, lines=lines)
        assert (done.code, done.err) == (0, ""), arguments
        return done

    def fails(self, *arguments: str, lines: Sequence[str | bytes] = ()) -> str:
        """Run a command that has to fail, and return its one line on stderr."""
        done = self.run(*arguments, lines=lines)
        assert done.code == 1, done
        assert done.err.startswith("zhumq: ")
        assert done.err.count("\n") == 1, done.err
        return done.err
