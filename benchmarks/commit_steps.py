"""What a commit waits for: the appends and syncs of one producer's transactions, seen from outside the broker by strace.

    python -m benchmarks.commit_steps --transactions 300 --messages 100

Prints medians for each of the four steps that follow each other: how long the broker takes from the append to the end
of its sync, and what passes until the next append (the answer, the client, its next request).
"""

import argparse
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.cases import topic_on
from benchmarks.loaders import build_loaders, transact
from benchmarks.server import Server
from benchmarks.zhumq_server import prepare_zhumq
from zhumq.model.ids import TRANSACTION_STATE_TOPIC

MESSAGE_BYTES: Final = 100  # more than a marker has
# In the order of one transaction of a client with version 1, as librdkafka.
STEPS: Final = ("the partition joins", "the messages", "the decision", "the marker")
MESSAGES, MARKER = STEPS.index("the messages"), STEPS.index("the marker")
# 4711 1763500000.123456 pwritev2(31</data/t-0/00000000000000000000.log>, ...) = 120 <0.000031>
CALL: Final = re.compile(
    r"(?P<thread>\d+) +(?P<begun>\d+\.\d+) (?:<\.\.\. )?(?P<name>pwritev2?|fdatasync)"
    r"(?P<resumed> resumed>)?(?:\(\d+<(?P<path>[^>]+)>)?.*?(?P<unfinished><unfinished \.\.\.>)?"
    r"(?:= (?P<result>\d+) <(?P<took>\d+\.\d+)>)?$"
)
STRACE: Final = [
    "strace",
    "-f",
    "-ttt",
    "-T",
    "-y",
    "-s",
    "0",
    "-e",
    "signal=none",
    "-e",
    "trace=pwritev,pwritev2,fdatasync",
]
DETACH_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An append to a log, or a sync of it."""

    is_sync: bool
    path: str
    size: int
    begun: float
    ended: float

    def may_be(self, place: int) -> bool:
        """Whether it may be this one of the appends and syncs of a transaction."""
        step = place // 2 % len(STEPS)
        is_of_states = TRANSACTION_STATE_TOPIC in self.path
        if self.is_sync != bool(place % 2) or is_of_states == (step in (MESSAGES, MARKER)):
            return False
        return self.is_sync or is_of_states or (self.size < MESSAGE_BYTES) == (step == MARKER)


def calls_in(lines: Iterable[str]) -> list[Call]:
    """The calls that strace has written, in the order of their beginnings."""
    found = []
    open_calls: dict[str, tuple[str, float]] = {}  # of each thread: the file, and when it began
    for line in lines:
        match = CALL.match(line)
        if match is None:
            continue
        begun, path = float(match["begun"]), match["path"] or ""
        if match["unfinished"]:
            open_calls[match["thread"]] = path, begun
            continue
        if match["resumed"]:
            ended = begun
            path, begun = open_calls.pop(match["thread"], ("", begun))
        else:
            ended = begun + float(match["took"] or 0)
        if path.endswith(".log"):
            is_sync = match["name"] == "fdatasync"
            size = int(match["result"] or 0)
            found.append(Call(is_sync=is_sync, path=path, size=size, begun=begun, ended=ended))
    return sorted(found, key=lambda call: call.begun)


def transactions_in(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    """Each transaction: four appends, each with its sync, and the append with which the next one begins."""
    place = 0
    size = 2 * len(STEPS)
    while place + size < len(calls):
        window = calls[place : place + size + 1]
        if all(call.may_be(number) for number, call in enumerate(window)):
            yield window
            place += size
        else:
            place += 1


def traced(server: Server, output: Path, transactions: int, messages: int) -> None:
    """Run the load with one producer while strace writes down the broker's appends and syncs."""
    with (
        topic_on(server, 1) as topic,
        subprocess.Popen(
            [*STRACE, "-o", str(output), "-p", str(server.pid)],
            stderr=subprocess.PIPE,
            text=True,
        ) as tracer,
    ):
        assert tracer.stderr is not None
        try:
            tracer.stderr.readline()  # It says that it is attached.
            transact(
                server,
                topic,
                producers=1,
                transactions=transactions,
                messages=messages,
                size=MESSAGE_BYTES,
            )
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=DETACH_SECONDS_MAX)


def print_steps(found: Sequence[Sequence[Call]]) -> None:
    def milliseconds(values: Iterable[float]) -> str:
        return f"{median(values) * 1000:.2f} ms"

    print(f"{'step':<22}{'append to synced':>18}{'the sync alone':>18}{'to the next append':>20}")
    for number, name in enumerate(STEPS):
        append, sync = 2 * number, 2 * number + 1
        waited = milliseconds(each[sync].ended - each[append].begun for each in found)
        synced = milliseconds(each[sync].ended - each[sync].begun for each in found)
        after = milliseconds(each[sync + 1].begun - each[sync].ended for each in found)
        print(f"{name:<22}{waited:>18}{synced:>18}{after:>20}")
    print(f"a transaction: {milliseconds(each[-1].begun - each[0].begun for each in found)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transactions", type=int, default=300)
    parser.add_argument("--messages", type=int, default=100)
    given = parser.parse_args()
    build_loaders()
    with tempfile.TemporaryDirectory(prefix="zhumq-commit-") as folder:
        output = Path(folder) / "calls"
        with prepare_zhumq(Path(folder)).start() as server:
            traced(server, output, given.transactions, given.messages)
        found = list(transactions_in(calls_in(output.read_text().splitlines())))
    print(f"{len(found)} transactions of {given.messages} messages, those of the warm-up included")
    if found:
        print_steps(found)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
