"""`zhumq demo` (`make run`): every stage works, once or until Ctrl-C."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cli_support import SECONDS_MAX, WITH_SIGINT, Cli, begin, command, environment

SPARK_SECONDS_MAX = 280.0  # the machine may be busy


def stages(lines: list[str]) -> list[str]:
    return [line.split()[1] for line in lines if line.startswith("ok ")]


@pytest.mark.thorough
def test_the_demo_works_more_than_once_on_one_folder(tmp_path: Path) -> None:
    arguments = ("demo", "--once", "--no-spark", "--listen", "127.0.0.1:0")
    for words in ("20,000 log lines to shop-logs in", "shop-logs has its 20,000 log lines already"):
        done = Cli("").must(*arguments, "--data-dir", str(tmp_path / "data"))
        assert stages(done.lines) == ["broker", "sent", "read"]
        assert any(words in line for line in done.lines)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_runs_its_pipelines_and_checks_what_they_found(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    data = tmp_path / "data"
    done = subprocess.run(
        command("demo", "--once", "--listen", "127.0.0.1:0", "--data-dir", str(data)),
        capture_output=True,
        env=environment(""),
        timeout=SPARK_SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b""), done
    lines = done.stdout.decode().splitlines()
    assert stages(lines) == ["broker", "sent", "read", "archive", "inspect", "dlq", "alerts"]
    assert any(line.startswith("burst: payments had 270 errors in 3 minutes") for line in lines)
    made = data.with_name("data-pipelines")
    assert (made / "inspected.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((made / "audit.json").read_text()) == []


ANYWHERE = ("--no-spark", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0")


class Demo:
    """A demo that serves."""

    def __init__(self, process: "subprocess.Popen[bytes]", lines: list[str]) -> None:
        self.process = process
        self.lines = lines

    @property
    def console(self) -> str:
        return next(line.split()[0] for line in self.lines if line.startswith("  http://"))

    def end(self, number: signal.Signals) -> tuple[int, bytes]:
        """End it with a signal. Returns its exit code and what it has written to stderr."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=SECONDS_MAX)
        return self.process.returncode, err


@contextlib.contextmanager
def open_shop(folder: Path) -> Iterator[Demo]:
    arguments = ("demo", *ANYWHERE, "--data-dir", str(folder / "data"))
    with begin("", *arguments) as process:
        try:
            assert process.stdout is not None
            lines: list[str] = []
            while not lines or lines[-1] != "Serving until Ctrl-C.":
                line = process.stdout.readline()
                assert line, lines
                lines.append(line.decode().rstrip("\n"))
            yield Demo(process, lines)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)


def wait_for(what: str, fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not fact():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)  # between two looks


def processes_of(folder: Path) -> list[str]:
    """The command lines of processes that name the folder, or that one of those has started."""
    commands: dict[int, str] = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                commands[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
                stat = (entry / "stat").read_text()
                parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    named = {pid for pid, command in commands.items() if str(folder) in command}
    return [
        command for pid, command in commands.items() if pid in named or parents.get(pid) in named
    ]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(240)
def test_every_page_of_the_console_has_something_to_see(tmp_path: Path) -> None:
    with open_shop(tmp_path) as demo, httpx.Client(timeout=SECONDS_MAX) as client:

        def get(path: str) -> Any:
            answer = client.get(f"{demo.console}api/v1/{path}")
            return answer.json() if answer.status_code == 200 else {}

        def items(path: str) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = get(path).get("items", [])
            return found

        def lag(group: str) -> int:
            return sum(each["lag"] or 0 for each in get(f"groups/{group}").get("offsets", []))

        def messages(topic: str) -> int:
            partitions = get(f"topics/{topic}").get("partitions", [])
            return sum(each["messages"] or 0 for each in partitions)

        # Every process that has to end is seen here: the demo, its broker, the console.
        assert len(processes_of(tmp_path)) == 3
        for topic in ("orders", "payments", "deliveries"):
            wait_for(topic, lambda topic=topic: messages(topic) > 5)  # type: ignore[misc]
        wait_for("a delayed message", lambda: bool(items("topics/deliveries/scheduled")))
        wait_for(
            "a parked session",
            lambda: any(
                (each["group"], each["state"]) == ("partner", "parked")
                for each in items("push-sessions")
            ),
        )
        wait_for("a half message", lambda: bool(items("half-messages")))
        wait_for("dead letters", lambda: any(each["left"] > 0 for each in items("dead-letters")))
        kinds = {(each["topic"], each["kind"]) for each in items("producers")}
        assert {("orders", "idempotent"), ("payments", "transactional")} <= kinds
        wait_for("a refund", lambda: bool(items("topics/refunds/messages?limit=1&decode=true")))
        (refund,) = items("topics/refunds/messages?limit=1&decode=true")
        assert (refund["value"]["decoded"]["subject"], refund["value"]["decoded"]["version"]) == (
            "refunds-value",
            2,
        )
        assert [each["subject"] for each in items("schemas")] == ["refunds-value"]
        key = items("topics/orders/messages?limit=1")[0]["key"]["text"]
        assert items(f"topics/orders/lookup?key={key}")
        # The burst of the first minute: the slow group falls behind, catches up again, and the other one keeps up.
        wait_for("the lag of a slow group", lambda: lag("warehouse") > 150)
        wait_for("a group that keeps up", lambda: lag("billing") < 30)
        wait_for("a slow group that catches up", lambda: lag("warehouse") < 50)
        assert demo.end(signal.SIGINT) == (0, b"")
    assert processes_of(tmp_path) == []


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_shop_whose_topic_is_deleted_goes_on(tmp_path: Path) -> None:
    with open_shop(tmp_path) as demo, httpx.Client(timeout=SECONDS_MAX) as client:
        topic = f"{demo.console}api/v1/topics/payments"

        def id_of_topic() -> str | None:
            answer = client.get(topic)
            return str(answer.json()["topic_id"]) if answer.status_code == 200 else None

        wait_for("the topic", lambda: id_of_topic() is not None)
        before = id_of_topic()
        assert client.delete(topic).status_code in (200, 204)
        wait_for("a new topic", lambda: id_of_topic() not in (None, before))
        code, _ = demo.end(signal.SIGTERM)
        assert code == 0


@pytest.mark.thorough
@pytest.mark.timeout(240)
def test_a_demo_whose_broker_is_killed_ends_with_an_error(tmp_path: Path) -> None:
    with open_shop(tmp_path) as demo:
        children = Path(f"/proc/{demo.process.pid}/task/{demo.process.pid}/children")
        (broker,) = map(int, children.read_text().split())
        os.kill(broker, signal.SIGKILL)
        _, err = demo.process.communicate(timeout=SECONDS_MAX)
        assert demo.process.returncode == 1
        assert b"zhumq: the broker stopped with exit code -9" in err
    wait_for("the end of the console", lambda: processes_of(tmp_path) == [])


@pytest.mark.thorough
@pytest.mark.timeout(240)
def test_a_demo_without_the_console_and_without_spark_says_so_and_goes_on(tmp_path: Path) -> None:
    # As on a machine where these packages are not installed.
    without = "import sys; sys.modules.update(dict.fromkeys(('starlette', 'pyspark')))\n"
    arguments = ("demo", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"))
    with subprocess.Popen(
        [sys.executable, "-c", without + WITH_SIGINT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(""),
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.decode())
            if line == b"Serving until Ctrl-C.\n":
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, err) == (0, b"")
    assert "-- console   off: it needs starlette: pip install 'zhumq[console]'\n" in lines
    assert "-- pipelines off: they need pyspark: pip install 'zhumq[spark]'\n" in lines
    assert not any("http://" in line for line in lines)


def test_a_demo_whose_broker_cannot_start_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    arguments = ("demo", "--once", "--data-dir", str(tmp_path / "file" / "data"))
    done = Cli("").run(*arguments)
    assert done.code == 1
    assert "the broker did not start" in done.err


def test_the_program_runs_from_its_module() -> None:
    done = Cli("").must("--help")
    assert b"Usage: zhumq" in done.out
