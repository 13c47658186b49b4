"""Every kind of mistake in a pipeline file: `zhumq pipeline check` names its line, without Spark and a broker."""

import socket
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("yaml")
pytest.importorskip("fastavro")
pytest.importorskip("pyspark")

from mistakes import FILES, MISTAKES, Mistake

from zhumq.cli.main import run

FILE = "shop.yml"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def refuse(*_arguments: object, **_named: object) -> None:
        raise AssertionError("a check needs no broker, no Spark and no other process")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def line_of(text: str, part: str) -> int:
    """The last line of a part of a text that is in it once."""
    assert text.count(part) == 1, f"{part!r} is {text.count(part)} times in the file"
    return text.count("\n", 0, text.index(part) + len(part.rstrip("\n"))) + 1


def test_a_file_without_a_mistake(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / FILE
    assert run(["pipeline", "check", str(file)]) == 0
    printed = capsys.readouterr().out
    assert printed == f"{file}: no mistake found in 3 sources, 7 steps, 7 sinks, 0 tests\n"


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.kind)
def test_a_mistake_is_found_with_its_line(
    folder: Path, capsys: pytest.CaptureFixture[str], mistake: Mistake
) -> None:
    file = folder / FILE
    good = file.read_text()
    assert mistake.before in good
    text = good.replace(mistake.before, mistake.after, 1)
    file.write_text(text)
    assert run(["pipeline", "check", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith(f"zhumq: {file}:{line_of(text, mistake.line)}: "), error
    assert mistake.words in error
    assert "sesame" not in error


def test_the_kinds_are_as_many_as_promised_and_differ() -> None:
    kinds = {each.kind for each in MISTAKES}
    assert len(kinds) == len(MISTAKES) >= 70


def test_a_mistake_in_the_tests_of_a_file_and_several_files(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tests = folder / "shop.tests.yml"
    tests.write_text("tests:\n  - name: one\n    given: {orders: []}\n    fails: anything\n")
    assert run(["pipeline", "check", str(folder / FILE), "replay"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"zhumq: {tests}:3: tests[0].given.orders: there is no source 'orders'")
    assert "has no value: give it with --set" in second
