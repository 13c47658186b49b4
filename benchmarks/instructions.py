"""Instructions that a broker executes for a request, counted by valgrind: compares two checkouts where clock times vary too much."""

import argparse
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.cases import topic_on
from benchmarks.loaders import build_loaders, one_record_requests, produce, transact
from benchmarks.server import REPOSITORY, Server
from benchmarks.zhumq_server import prepare_zhumq

READY_SECONDS_MAX: Final = 300.0  # Valgrind is fifty times slower than the processor.
TOTAL: Final = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)
KILOBYTE: Final = 1_000
IDLE_SECONDS: Final = 10.0
TRANSACTION_PRODUCERS: Final = 16  # each with a partition of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A case. It is run once with `warm`, so that caches are filled, and counted with `count`."""

    name: str
    warm: int
    count: int
    run: Callable[[Server, str, int], object]
    partitions: int = 1


def requests(connections: int, in_flight: int, acks: int) -> Callable[[Server, str, int], object]:
    return lambda server, topic, count: one_record_requests(
        server, topic, connections=connections, in_flight=in_flight, count=count, acks=acks
    )


def produced(size: int) -> Callable[[Server, str, int], object]:
    return lambda server, topic, count: produce(
        server, topic, partitions=1, count=count, size=size, acks=1
    )


def transactions(messages: int, producers: int) -> Callable[[Server, str, int], object]:
    return lambda server, topic, count: transact(
        server, topic, producers=producers, transactions=count, messages=messages, size=100
    )


# Not messages that are consumed: 200,000 of 1 KB are 50 requests, fewer instructions than those of the timers meanwhile.
CASES: Final = (
    Counted(name="one-record request, 1 x 1", warm=500, count=3_000, run=requests(1, 1, 1)),
    Counted(name="one-record request, 64 x 1", warm=1_000, count=6_000, run=requests(64, 1, 1)),
    Counted(name="one-record request, 64 x 16", warm=4_000, count=20_000, run=requests(64, 16, 1)),
    Counted(name="message of 100 B produced", warm=20_000, count=400_000, run=produced(100)),
    Counted(name="message of 1 KB produced", warm=20_000, count=200_000, run=produced(KILOBYTE)),
    # Of one commit; five more of each producer are counted and not divided by. Those of the consumer at read_committed are in it.
    Counted(
        name="transaction of 1 message",
        partitions=TRANSACTION_PRODUCERS,
        warm=TRANSACTION_PRODUCERS,
        count=40 * TRANSACTION_PRODUCERS,
        run=transactions(1, TRANSACTION_PRODUCERS),
    ),
    Counted(
        name="transaction of 100 messages",
        partitions=TRANSACTION_PRODUCERS,
        warm=TRANSACTION_PRODUCERS,
        count=40 * TRANSACTION_PRODUCERS,
        run=transactions(100, TRANSACTION_PRODUCERS),
    ),
)


class CountedBroker:
    """A broker of a checkout under valgrind."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._folder = folder

    def instructions(self, case: Counted) -> float:
        """Of one request or message, start and stop of the client's connections included.

        What the broker does when it has nothing to do is subtracted: valgrind makes a case take fifty times longer, so
        the timers of that time would count fifty times.
        """
        with topic_on(self._server, case.partitions) as topic:
            case.run(self._server, topic, case.warm)
            idle, seconds = self._count(lambda: time.sleep(IDLE_SECONDS))
            each_second = idle / seconds
        with topic_on(self._server, case.partitions) as topic:
            counted, seconds = self._count(lambda: case.run(self._server, topic, case.count))
        return (counted - each_second * seconds) / case.count

    def _count(self, work: Callable[[], object]) -> tuple[int, float]:
        """The instructions of the broker meanwhile, and how long it took."""
        self._control("--zero")
        began = time.monotonic()
        work()
        seconds = time.monotonic() - began
        return self._dump(), seconds

    def _dump(self) -> int:
        self._control("--dump")
        newest = max(self._folder.glob("counts.*"), key=lambda each: each.stat().st_mtime_ns)
        return max(map(int, TOTAL.findall(newest.read_text())))

    def _control(self, what: str) -> None:
        command = ["callgrind_control", what, str(self._server.pid)]
        subprocess.run(command, check=True, capture_output=True)


@contextmanager
def counted_broker(tree: Path, folder: Path, settings: dict[str, str]) -> Iterator[CountedBroker]:
    folder.mkdir()
    prepared = prepare_zhumq(folder, tree=tree, settings=settings)
    valgrind = (
        "valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/counts",
        str(tree / ".venv" / "bin" / "python"),
    )  # fmt: skip
    os.environ["PYTHONHASHSEED"] = "0"  # of the broker: dictionaries are the same in each run
    prepared = replace(prepared, command=(*valgrind, *prepared.command))
    with prepared.start(READY_SECONDS_MAX) as server:
        yield CountedBroker(server, folder)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="another checkout, with its .venv")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE for this checkout")
    parser.add_argument("--only", default="", help="a part of a case's name")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    build_loaders()
    chosen = [each for each in CASES if arguments.only in each.name]
    settings = dict(each.split("=", 1) for each in arguments.set)
    before: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="zhumq-instructions-") as name:
        if arguments.before is not None:
            with counted_broker(arguments.before, Path(name, "before"), {}) as broker:
                before = {each.name: broker.instructions(each) for each in chosen}
        with counted_broker(REPOSITORY, Path(name, "now"), settings) as broker:
            for case in chosen:
                now = broker.instructions(case)
                line = f"{case.name}: {now:,.0f} instructions"
                if case.name in before:
                    line += (
                        f", before {before[case.name]:,.0f}, ratio {now / before[case.name]:.3f}"
                    )
                print(line, flush=True)


if __name__ == "__main__":
    main()
