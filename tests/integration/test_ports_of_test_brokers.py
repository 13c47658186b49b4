"""A broker of a test that is stopped or killed gets its ports back, whatever other tests do meanwhile."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from zhumq.host.ports import FIRST, PARTS, PORTS_OF_A_PART
from zhumq.testing.broker import broker
from zhumq.testing.process import broker_process

OTHERS = 3
# A process of other tests: it listens on each port that it finds, on 190 until its input ends.
LISTEN = """
import socket, sys
from zhumq.host.ports import HOST, free_ports
servers = [socket.create_server((HOST, port)) for port in free_ports(190)]
print(len(servers), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def other_tests() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", LISTEN],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(OTHERS)
        ]
        for each in processes:
            assert each.stdout is not None
            assert each.stdout.readline() == "190\n"
        yield


def is_kept_from_outgoing(address: str) -> bool:
    return FIRST <= int(address.rpartition(":")[2]) < FIRST + PARTS * PORTS_OF_A_PART


def test_a_killed_process_starts_again_on_its_ports(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data") as process:
        before = (process.bootstrap, process.push, process.http)
        assert all(map(is_kept_from_outgoing, before))
        process.kill()
        with other_tests():
            process.start()
            assert (process.bootstrap, process.push, process.http) == before


def test_a_broker_in_the_test_s_process_starts_again_on_its_ports(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path / "data") as first:
        before = (first.bootstrap, first.push, first.http)
        assert all(map(is_kept_from_outgoing, before))
    with other_tests(), broker(data_dir=tmp_path / "data") as second:
        assert (second.bootstrap, second.push, second.http) == before
