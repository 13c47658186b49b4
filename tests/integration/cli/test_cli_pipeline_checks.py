"""`zhumq pipeline test`, `preview` and `graph` as commands: what they print, and their exit codes."""

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from cli_support import command, environment

from zhumq.cli.main import run

FILE = """\
name: orders
sources:
  records: {topic: orders}
steps:
  - {name: parsed, parse: records, format: json, schema: id INT}
sinks:
  all: {console: 5}
dead_letters: {topic: bad}
"""
TESTS = """\
tests:
  - name: one order
    given: {records: [{value: {id: 1}}, {value: "{"}]}
    expect: {parsed: [{id: 1}]}
    counts: {parsed.broken: 1}
  - name: another order
    given: {records: [{value: {id: 1}}]}
    expect: {parsed: [{id: 2}]}
"""


def test_a_graph_is_printed_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "orders.yml"
    file.write_text(FILE)
    assert run(["pipeline", "graph", str(file)]) == 0
    drawing = capsys.readouterr().out
    assert drawing.startswith("<svg ")
    target = tmp_path / "orders.svg"
    assert run(["pipeline", "graph", str(file), "--output", str(target)]) == 0
    assert target.read_text() == drawing
    assert run(["pipeline", "graph", str(file), "--output", str(tmp_path / "no" / "a.svg")]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_a_wrong_file_ends_every_command_with_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "orders.yml"
    file.write_text(FILE.replace("id INT", "id ITN"))
    for name in ("test", "preview", "graph", "run"):
        assert run(["pipeline", name, str(file)]) == 2
        expected = f"zhumq: {file}:5: steps[0].schema: there is no type 'ITN' (did you mean INT?)\n"
        assert capsys.readouterr().err == expected
    file.write_text(FILE)
    assert run(["pipeline", "test", str(file)]) == 2
    assert f"{file}: has no tests: add the field `tests`" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_test_that_fails_is_exit_code_1_and_needs_no_broker(tmp_path: Path) -> None:
    file = tmp_path / "orders.yml"
    file.write_text(FILE)
    (tmp_path / "orders.tests.yml").write_text(TESTS)
    ended = subprocess.run(
        command("pipeline", "test", str(file)),
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        cwd=tmp_path,
        env={**environment("127.0.0.1:1"), "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
    )
    tests = tmp_path / "orders.tests.yml"
    assert ended.stdout.splitlines() == [
        "ok      one order",
        f"FAILED  another order ({tests}:6)",
        f"  parsed: 1 row, expected 1 row ({tests}:8)",
        "    missing     id=2",
        "    unexpected  id=1",
        "2 tests, 1 failed",
    ]
    assert (ended.returncode, ended.stderr) == (1, "")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["orders.tests.yml", "orders.yml"]
