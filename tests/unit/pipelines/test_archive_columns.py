"""Which rows go with the files of a table, and which would make them unlike each other."""

import pytest

from zhumq.pipelines.archive_columns import FileColumns

FILES = FileColumns(types={"id": "bigint", "Amount": "int", "day": "date"}, partition_by=("day",))


def rows(*partition_by: str, **types: str) -> FileColumns:
    return FileColumns(types=types, partition_by=partition_by or ("day",))


@pytest.mark.parametrize(
    ("given", "by_position", "words"),
    [
        (rows(id="bigint", Amount="int", day="date"), True, None),
        (rows(id="bigint", amount="int", day="date", note="string"), False, None),
        (rows(day="date"), False, None),
        (rows(ID="int"), False, "has the column 'ID' as bigint, and would get it as int: CAST it"),
        (rows(id="bigint", amount="double"), False, "'amount' as int, and would get it as double"),
        (rows("id", "day", id="bigint"), False, "is partitioned by day, and would be by id, day"),
        (rows(day="date", id="bigint", Amount="int"), True, "has the columns id, Amount, day in its files"),
        (rows(id="bigint", Amount="int"), True, "and would get id, Amount"),
    ],
)  # fmt: skip
def test_rows_beside_files(given: FileColumns, words: str | None, *, by_position: bool) -> None:
    found = FILES.unlike_words(given, by_position=by_position)
    if words is None:
        assert found is None
    else:
        assert found is not None
        assert words in found


def test_new_columns_are_known_from_then_on() -> None:
    both = FILES.with_new(rows(id="bigint", note="string"))
    assert list(both.types) == ["id", "Amount", "day", "note"]
    assert FileColumns.of(both.document()) == both
    assert both.unlike_words(rows(note="int"), by_position=False) is not None
