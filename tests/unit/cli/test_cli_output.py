"""Tables for people, in a pipe."""

import json

import pytest

from zhumq.cli.output import print_facts, print_json, print_table

HEADINGS = {"name": "NAME", "size": "SIZE", "on": "ON", "ids": "IDS"}
ROWS = [
    {"name": "a", "size": 1, "on": True, "ids": [1, 2]},
    {"name": "long name", "size": 1000, "on": False, "ids": []},
    {"name": None, "size": None, "on": None, "ids": None},
]


def test_columns_line_up_and_numbers_stand_to_the_right(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table([{**row, "on": str(row["on"])} for row in ROWS], HEADINGS, empty="")
    assert capsys.readouterr().out.splitlines() == [
        "NAME       SIZE  ON     IDS",
        "a             1  True   1,2",
        "long name  1000  False  -",
        "-             -  None   -",
    ]


def test_a_wide_table_is_not_cut_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"name": "x" * 500}], {"name": "NAME"}, empty="")
    assert "x" * 500 in capsys.readouterr().out


def test_text_that_looks_like_markup_is_printed_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table([{"name": "[bold]x[/bold]"}], {"name": "NAME"}, empty="")
    assert "[bold]x[/bold]" in capsys.readouterr().out


def test_an_empty_table_leaves_stdout_empty(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([], HEADINGS, empty="nothing")
    assert capsys.readouterr().out == ""


def test_facts_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts({"a": 1, "long": None, "flag": True})
    assert capsys.readouterr().out == "a     1\nlong  -\nflag  yes\n\n"


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(ROWS)
    assert json.loads(capsys.readouterr().out) == ROWS
