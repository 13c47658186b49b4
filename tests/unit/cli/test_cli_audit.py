"""`zhumq audit tail`: the newest lines for people and programs, and new ones as they come."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from zhumq.cli.main import run

LINE = {
    "time": "2026-01-02T03:04:05.678Z",
    "principal": "User:alice",
    "host": "127.0.0.1",
    "listener": "SASL_SSL",
    "action": "CreateTopics",
    "operation": "CREATE",
    "resource": "topic:orders",
    "allowed": True,
    "count": 1,
}


def write(path: Path, *events: dict[str, object]) -> None:
    with path.open("a") as file:
        file.write("".join(json.dumps(event) + "\n" for event in events))


def test_the_newest_lines_are_printed_one_event_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.log"
    denied = LINE | {"allowed": False, "count": 3, "resource": "topic:\x1b[2Jsecret\n"}
    write(path, LINE, denied, {"time": "t", "dropped": 9})
    with path.open("a") as file:
        file.write('{"half a line')
    assert run(["audit", "tail", "--data-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2026-01-02T03:04:05.678Z  allowed  User:alice  127.0.0.1  CreateTopics  CREATE topic:orders",
        "2026-01-02T03:04:05.678Z  DENIED   User:alice  127.0.0.1  CreateTopics  CREATE topic:\\u001b[2Jsecret\\n  x3",
        "t  9 more events",
    ]
    assert run(["audit", "tail", "--file", str(path), "--denied", "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [denied]
    assert run(["audit", "tail", "--file", str(path), "-n", "1"]) == 0
    assert capsys.readouterr().out == "t  9 more events\n"


def test_a_missing_log_is_one_line_that_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["audit", "tail", "--data-dir", str(tmp_path)]) == 1
    assert "--data-dir" in capsys.readouterr().err


def test_new_lines_are_followed_across_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    write(path, LINE)
    command = [sys.executable, "-m", "zhumq", "audit", "tail", "--file", str(path), "-f", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline()) == LINE
        write(path, LINE | {"count": 2})
        assert json.loads(tail.stdout.readline())["count"] == 2
        path.rename(tmp_path / "audit.log.1")
        write(path, LINE | {"count": 3})
        assert json.loads(tail.stdout.readline())["count"] == 3
        tail.kill()
