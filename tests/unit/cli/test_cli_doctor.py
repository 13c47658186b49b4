"""`zhumq doctor`: every finding has a state, and every problem has advice."""

import json
import socket

import pytest

from zhumq.cli import doctor
from zhumq.cli.doctor import Finding, State, examine
from zhumq.cli.main import run


def test_what_is_missing_comes_with_advice() -> None:
    findings = list(examine())
    assert len({each.what for each in findings}) == len(findings)
    assert {"python", "java", "pyspark", "open files", "kafka port", "kcat"} <= {
        each.what for each in findings
    }
    assert all(each.advice for each in findings if each.state is not State.OK)


def test_programs_can_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"what", "state", "found", "advice"} == set(rows[0])


def test_a_port_in_use_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(doctor, "DEFAULT_BOOTSTRAP", address)
        ports = {each.what: each for each in examine()}
    assert ports["kafka port"].found == f"{address} is in use"


def test_a_problem_makes_the_exit_code_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = Finding(what="python", state=State.PROBLEM, found="3.8", advice="use a newer one")
    monkeypatch.setattr(doctor, "examine", lambda: iter([bad]))
    assert run(["doctor"]) == 1
    assert capsys.readouterr().err == "zhumq: python: 3.8; use a newer one\n"
