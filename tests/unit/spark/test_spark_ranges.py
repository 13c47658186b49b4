"""Offset ranges are split into tasks and limited for triggers."""

from hypothesis import given
from hypothesis import strategies as st

from zhumq.model.ids import TopicPartition
from zhumq.spark.ranges import (
    OffsetRange,
    from_json,
    limit_offsets,
    recreated_topics,
    split_ranges,
    to_json,
    topic_ids_from_json,
)

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


def one(place: TopicPartition, first: int, until: int) -> OffsetRange:
    return OffsetRange(place=place, first_offset=first, until_offset=until)


def test_without_options_each_partition_is_one_task_and_empty_ones_none() -> None:
    ranges = [one(A, 0, 10), one(B, 5, 5)]
    assert split_ranges(ranges, partitions_min=None, rows_max=None) == [one(A, 0, 10)]


def test_larger_ranges_are_cut_into_more_parts() -> None:
    parts = split_ranges([one(A, 0, 300), one(B, 0, 100)], partitions_min=4, rows_max=None)
    assert parts == [one(A, 0, 100), one(A, 100, 200), one(A, 200, 300), one(B, 0, 100)]


def test_no_part_has_more_rows_than_allowed() -> None:
    parts = split_ranges([one(A, 10, 110)], partitions_min=None, rows_max=30)
    assert [each.size for each in parts] == [25, 25, 25, 25]


@given(
    sizes=st.lists(st.integers(0, 10_000), max_size=8),
    partitions_min=st.one_of(st.none(), st.integers(1, 50)),
    rows_max=st.one_of(st.none(), st.integers(1, 5000)),
)
def test_the_parts_cover_every_offset_once(
    sizes: list[int], partitions_min: int | None, rows_max: int | None
) -> None:
    whole = [one(TopicPartition("t", index), 7, 7 + size) for index, size in enumerate(sizes)]
    parts = split_ranges(whole, partitions_min=partitions_min, rows_max=rows_max)
    assert all(each.size > 0 for each in parts)
    if rows_max is not None:
        assert all(each.size <= rows_max for each in parts)
    for each in whole:
        mine = [part for part in parts if part.place == each.place]
        bounds = [(part.first_offset, part.until_offset) for part in mine]
        position = 7
        for first, until in bounds:
            assert first == position
            position = until
        assert position == each.until_offset


def test_a_trigger_takes_of_each_partition_its_share() -> None:
    assert limit_offsets({A: 0, B: 100}, {A: 300, B: 200}, 40) == {A: 30, B: 110}


def test_a_small_backlog_beside_a_large_one_still_moves() -> None:
    assert limit_offsets({A: 0, B: 0}, {A: 1_000_000, B: 1}, 10) == {A: 9, B: 1}


def test_a_limit_above_the_backlog_changes_nothing() -> None:
    assert limit_offsets({A: 0}, {A: 5}, 10) == {A: 5}


@given(st.dictionaries(st.builds(TopicPartition, st.text(), st.integers(0, 99)), st.integers(0)))
def test_offsets_survive_the_checkpoint(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(to_json(offsets)) == offsets


def test_a_checkpoint_holds_topic_ids_beside_the_offsets() -> None:
    document = to_json({A: 5, B: 7}, {"a": "id-1", "other": "id-2"})
    assert document == {"a": {"0": 5, "topicId": "id-1"}, "b": {"1": 7}}
    assert from_json(document) == {A: 5, B: 7}
    assert topic_ids_from_json(document) == {"a": "id-1"}


def test_a_topic_is_recreated_if_both_ids_are_known_and_differ() -> None:
    before = {"same": "1", "recreated": "2", "gone": "3"}
    assert recreated_topics(before, {"same": "1", "recreated": "9", "new": "4"}) == ["recreated"]
