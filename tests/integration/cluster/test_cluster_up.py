"""`zhumq cluster up`: ZooKeeper and brokers in one command, which keep running when one is killed."""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from cluster_support import output_of, zhumq

from zhumq.testing.cluster import wait_for

pytestmark = pytest.mark.slow

SECONDS_MAX = 60.0


def children_of(pid: int) -> set[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(each) for each in found}


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.thorough
def test_a_cluster_runs_until_it_is_stopped_and_survives_a_kill(tmp_path: Path) -> None:
    words = ("cluster", "up", "--nodes", "3", "--data-dir", str(tmp_path / "data"))
    with zhumq(*words, "--port", "0", "--http-port", "0") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline().startswith("zookeeper ready 127.0.0.1:")
            addresses: dict[int, str] = {}
            for _ in range(3):
                line = process.stdout.readline()
                ready = re.match(r"zhumq ready kafka=(\S+) .* broker=(\d+) ", line)
                assert ready is not None, line
                addresses[int(ready[2])] = ready[1]
            assert sorted(addresses) == [1, 2, 3]
            children = children_of(process.pid)
            assert len(children) == 4
            bootstrap = addresses[1]
            output_of("topic", "create", "tried", "--mode", "fetch", "--bootstrap", bootstrap)
            described = json.loads(
                output_of("topic", "describe", "tried", "--json", "--bootstrap", bootstrap)
            )
            assert described["settings"]["replication.mode"] == "fetch"
            (partition,) = described["partitions"]
            assert sorted(partition["replicas"]) == sorted(partition["in_sync"]) == [1, 2, 3]
            killed = _pid_of(children, "--broker-id 3")
            os.kill(killed, signal.SIGKILL)
            line = process.stderr.readline()
            assert line.startswith("broker 3 ended with code -9; to start it again: zhumq start")

            def alive() -> bool | None:
                status = json.loads(
                    output_of("cluster", "status", "--json", "--bootstrap", bootstrap)
                )
                return [each["broker"] for each in status["brokers"]] == [1, 2] or None

            wait_for(alive, "two brokers left")
            status_text = output_of("cluster", "status", "--bootstrap", bootstrap)
            assert "IN SYNC" in status_text
            assert "underreplicated  1\n" in status_text
        finally:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0
    assert not any(is_running(each) for each in children)


def test_a_broker_that_does_not_start_is_one_clear_line(tmp_path: Path) -> None:
    words = ("cluster", "up", "--nodes", "1", "--data-dir", str(tmp_path / "data"))
    with zhumq(*words, "--port", "0", "--http-port", "0", "--set", "no.such=1") as process:
        out, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 1
    assert out.count("\n") == 1
    assert err.startswith("zhumq: broker 1 does not serve: ")
    assert "no.such" in err
    assert err.count("\n") == 1


def _pid_of(children: set[int], words: str) -> int:
    for pid in children:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        if words in command:
            return pid
    raise AssertionError(f"no child runs with {words}")
