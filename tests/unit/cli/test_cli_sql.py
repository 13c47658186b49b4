"""`zhumq sql` without Spark: options, charts, and the prompt."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("prompt_toolkit")

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from zhumq.cli.main import run
from zhumq.cli.sql_chart import NoChart, chart
from zhumq.cli.sql_prompt import HISTORY_BYTES_MAX, SqlCompleter, prompt
from zhumq.sql.statements import SqlFailed


class FakeTables:
    """Two topics, of which one has a column with a name of its own."""

    def tables(self) -> Mapping[str, None]:
        return self.known()

    def known(self) -> Mapping[str, None]:
        return {"orders": None, "shop.orders": None}

    def frame(self, topic: str) -> SimpleNamespace:
        if topic != "orders":
            raise SqlFailed("it cannot be read")
        return SimpleNamespace(columns=["amount"])


class FakeShell:
    def __init__(self) -> None:
        self.tables = FakeTables()
        self.done: list[str] = []

    def execute(self, statement: str) -> None:
        if statement == "fails":
            raise SqlFailed("it fails\nso")
        self.done.append(statement)

    def use_format(self, name: str) -> None:
        self.done.append(f"format {name}")


def typed(shell: FakeShell, text: str, history: Path) -> None:
    with create_pipe_input() as keys:
        keys.send_text(text)
        prompt(shell, history=history, input_=keys, output=DummyOutput())  # type: ignore[arg-type]


def test_the_prompt_runs_statements_of_several_lines_and_keeps_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell, history = FakeShell(), tmp_path / "state" / "history"
    typed(shell, "select 1,\n2;\n\\f chart\nfails;\n\\h\nexit\n", history)
    assert shell.done == ["select 1,\n2", "format chart"]
    printed = capsys.readouterr()
    assert "zhumq: it fails so\n" in printed.err
    assert "SHOW TABLES;" in printed.out
    typed(shell, "\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\n\x04", history)  # five times up
    assert shell.done[-1] == "select 1,\n2"


def test_a_long_history_loses_its_older_half(tmp_path: Path) -> None:
    history = tmp_path / "history"
    history.write_text("\n# then\n+select 1;\n" * (HISTORY_BYTES_MAX // 10))
    typed(FakeShell(), "\x04", history)
    text = history.read_text()
    assert text.startswith("\n# then\n+")
    assert len(text) <= HISTORY_BYTES_MAX


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("sel", {"SELECT"}),
        ("select * from ord", {"orders", "ORDER BY"}),
        ("select * from sh", {"`shop.orders`", "SHOW TABLES"}),
        ("select * from orders where am", {"amount"}),
        ("select * from shop.orders where am", set()),
        ("", set()),
    ],
)
def test_tab_completes(text: str, found: set[str]) -> None:
    document = Document(text, len(text))
    completions = SqlCompleter(FakeTables()).get_completions(document, CompleteEvent())  # type: ignore[arg-type]
    names = {each.text for each in completions}
    assert names == found


def test_a_chart_has_bars_or_columns() -> None:
    bars = chart(["name", "count"], [{"name": "a", "count": 4}, {"name": None, "count": 2}])
    assert bars.splitlines() == [f"a  {'█' * 50} 4", f"-  {'█' * 25} 2"]
    rows = [{"t": f"{number:02}", "n": number} for number in range(60)]
    lines = chart(["t", "n"], rows).splitlines()
    assert len(lines) == 9
    assert lines[0].startswith("59 ")
    assert lines[-1].endswith("00 … 59")
    assert chart(["t", "n"], []) == "no rows"


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (["n"], [{"n": 1}]),
        (["t", "n"], [{"t": 1, "n": "many"}]),
        (["t", "n"], [{"t": 1, "n": True}]),
        (["t", "n"], [{"t": 1, "n": -1}]),
        (["t", "n"], [{"t": 1, "n": 1}] * 101),
    ],
)
def test_what_is_no_chart_says_why(columns: list[str], rows: list[dict[str, object]]) -> None:
    with pytest.raises(NoChart):
        chart(columns, rows)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--format", "parquet"], "--output FOLDER"),
        (["--output", "x"], "--output is for json, csv and parquet"),
        (["--archive", "orders"], "--archive takes TOPIC=TABLE"),
        (["--bootstrap", "127.0.0.1:1"], "127.0.0.1:1"),
    ],
)
def test_a_mistake_in_the_options_is_one_line(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["sql", "-e", "select 1", "--bootstrap", "127.0.0.1:1", *options]
    assert run(arguments) != 0
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
