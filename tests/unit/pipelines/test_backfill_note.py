"""The notes of backfills: which one an order goes on with, names of writers, what may be done once more."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("yaml")

from zhumq.pipelines.backfill_note import (
    BackfillRefused,
    Note,
    Order,
    check_unchanged,
    number_of,
    open_note,
    overlaps,
)
from zhumq.pipelines.document import parse_document
from zhumq.pipelines.spec_reader import parse_pipeline

RANGES = {"records": {"from": {"orders": {"0": 10}}, "to": {"orders": {"0": 30}}}}
ORDER = Order(begin="a", end="b", sinks=())
NOTE = Note(
    name="20260131T120000000000Z",
    pipeline="orders",
    begin="a",
    end="b",
    asked=(),
    sinks=("table", "copy"),
    ranges=RANGES,
    read_by={"table": ("records",), "copy": ("records",)},
    number=0,
    allow_missing=False,
    replace=False,
    shapes={"table": {"sink": "1"}, "copy": {"sink": "2"}},
    begun_at="2026-01-31T12:00:00+00:00",
    written={},
)
DONE = replace(NOTE, written={"table": 5, "copy": None}, done_at="2026-01-31T12:01:00+00:00")
PIPELINE = parse_pipeline(
    parse_document(b"name: orders\nsources: {r: {topic: t}}\nsinks: {s: {topic: u}}\n", "f.yml"),
    "f.yml",
    {},
)


def test_a_note_is_read_as_it_was_written() -> None:
    for note in (NOTE, DONE):
        assert Note.of(json.loads(json.dumps(note.document()))) == note


def test_an_order_goes_on_with_the_unfinished_backfill() -> None:
    begun = NOTE.with_written("table", 5)
    assert begun.left == ("copy",)
    assert open_note([DONE, begun], Order(begin=None, end=None, sinks=()), "f.yml") == begun
    assert open_note([DONE, begun], ORDER, "f.yml") == begun
    with pytest.raises(
        BackfillRefused, match=r"the backfill from a to b, begun at .* is not finished"
    ):
        open_note([begun], replace(ORDER, end="c"), "f.yml")
    with pytest.raises(BackfillRefused, match="is not finished"):
        open_note([begun], replace(ORDER, replace=True), "f.yml")
    with pytest.raises(BackfillRefused, match=r"zhumq pipeline backfill f\.yml --abandon"):
        open_note([begun], replace(ORDER, sinks=("copy",)), "f.yml")


def test_a_new_backfill_needs_both_sides() -> None:
    assert open_note([DONE], ORDER, "f.yml") is None
    with pytest.raises(BackfillRefused, match=r"no backfill of f\.yml is unfinished: give --from"):
        open_note([DONE], Order(begin=None, end=None, sinks=()), "f.yml")
    with pytest.raises(BackfillRefused, match="needs both --from and --to"):
        open_note([], Order(begin="a", end=None, sinks=()), "f.yml")


def test_the_same_offsets_have_the_same_writer_and_others_another() -> None:
    names = {
        NOTE.writer_for("table"),
        NOTE.writer_for("copy"),
        replace(NOTE, number=1).writer_for("table"),
        replace(NOTE, pipeline="others").writer_for("table"),
        replace(NOTE, ranges={"records": {**RANGES["records"], "to": {"orders": {"0": 31}}}}).writer_for("table"),
    }  # fmt: skip
    assert len(names) == 5
    later = replace(NOTE, begin="earlier words", end="for the same", begun_at="later")
    assert later.writer_for("table") == NOTE.writer_for("table")
    # Sinks know their rows by it: the name of these offsets is the same in every version.
    assert NOTE.writer_for("table") == "6f465cda-99ed-5fcf-a377-2fa860d9dc5c"


def test_what_a_backfill_has_written_is_written_again_on_demand_alone() -> None:
    of_sinks = {"table": RANGES, "copy": RANGES}
    assert number_of([], ORDER, of_sinks) == 0
    with pytest.raises(
        BackfillRefused, match=r"^table, copy: the backfill from a to b, begun at .* --again"
    ):
        number_of([DONE], ORDER, of_sinks)
    again = replace(ORDER, again=True)
    assert number_of([DONE], again, of_sinks) == 1
    assert number_of([DONE, replace(DONE, number=4)], again, {"copy": RANGES}) == 5
    assert number_of([DONE], ORDER, {"new": RANGES}) == 0


def test_what_was_given_up_is_not_mixed_with_what_comes_after_it() -> None:
    """It may have written a part of its rows, under its own name, and by another file."""
    given_up = NOTE.with_written("table", 5).ended("now", given_up=True)
    assert number_of([given_up], ORDER, {"copy": RANGES}) == 1
    with pytest.raises(BackfillRefused, match=r"^table: "):
        number_of([given_up], ORDER, {"table": RANGES, "copy": RANGES})


def test_an_overlap_with_an_earlier_backfill_is_named() -> None:
    other = {"records": {"from": {"orders": {"0": 25}}, "to": {"orders": {"0": 60}}}}
    assert overlaps([DONE], {"table": other}) == [
        "table had up to 5 of these messages by the backfill from a to b, begun at 2026-01-31T12:00:00+00:00"
    ]
    assert overlaps([NOTE], {"table": other}) == []


def test_a_file_that_has_changed_cannot_go_on() -> None:
    shapes = {"table": {"sink": "1"}, "copy": {"sink": "3"}}
    read_by = NOTE.read_by
    with pytest.raises(BackfillRefused, match=r"f\.yml has changed since .*: copy would get"):
        check_unchanged(NOTE, shapes, read_by, PIPELINE)
    begun = NOTE.with_written("copy", 2)
    check_unchanged(begun, shapes, read_by, PIPELINE)
    with pytest.raises(BackfillRefused, match=": table would get"):
        check_unchanged(begun, shapes, {"table": ("records", "others")}, PIPELINE)
    with pytest.raises(BackfillRefused, match=": table would get"):
        check_unchanged(begun, {}, {}, PIPELINE)
