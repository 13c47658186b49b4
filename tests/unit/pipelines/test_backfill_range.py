"""Which offsets a backfill reads: what --from and --to may be, and what the topics do not have."""

import pytest

from zhumq.model.ids import TopicPartition
from zhumq.pipelines.backfill_range import (
    FROM,
    TO,
    RangeInvalid,
    SourceFacts,
    SourceRange,
    as_document,
    not_read_before,
    overlap,
    parse_side,
    ranges_of,
    still_gone,
)

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOON, EVENING = "2026-01-31T12:00:00Z", "2026-01-31T18:00:00Z"


def facts(
    *,
    first: tuple[int, int] = (10, 20),
    until: tuple[int, int] = (30, 40),
    earliest: tuple[int, int] = (0, 0),
    latest: tuple[int, int] = (100, 100),
    source: str = "records",
) -> SourceFacts:
    def each(offsets: tuple[int, int]) -> dict[TopicPartition, int]:
        return dict(zip((ONE, TWO), offsets, strict=True))

    return SourceFacts(
        source=source,
        first=each(first),
        until=each(until),
        earliest=each(earliest),
        latest=each(latest),
        topic_ids={"orders": "id"},
    )


def planned(begin: str, end: str, given: SourceFacts | None = None) -> SourceRange:
    (found,) = ranges_of([given or facts()], parse_side(begin, FROM), parse_side(end, TO))
    return found


def bounds(found: SourceRange) -> list[tuple[int, int, int]]:
    return [(each.place.partition, each.first, each.until) for each in found.partitions]


def test_a_time_is_the_offset_that_the_broker_has_for_it() -> None:
    found = planned(NOON, EVENING)
    assert bounds(found) == [(0, 10, 30), (1, 20, 40)]
    assert (found.size, found.gone, found.held) == (40, (), ())


def test_offsets_are_half_open_and_partitions_that_are_not_named_are_left_out() -> None:
    assert bounds(planned("orders:1:5", "orders:1:8")) == [(1, 5, 8)]
    assert bounds(planned("orders:0:0,orders:1:5", " orders:0:0 , orders:1:100")) == [(1, 5, 100)]
    assert bounds(planned("orders:0:7", EVENING)) == [(0, 7, 30)]
    assert bounds(planned(NOON, "orders:1:21")) == [(1, 20, 21)]


def test_a_local_time_is_no_offset() -> None:
    side = parse_side("2026-01-31T09:00:00", FROM)
    assert side.offsets is None
    assert side.position is not None
    assert parse_side("@1700000000000", TO).position is not None


@pytest.mark.parametrize(
    ("begin", "end", "words"),
    [
        ("yesterday", EVENING, "--from takes a time such as 2026-01-31T09:00:00Z, @MILLISECONDS, earliest, or"),
        (NOON, "7", "--to takes a time .*, latest, or offsets such as orders:0:1200,orders:1:900, not '7'"),
        ("orders:0", EVENING, "not 'orders:0'"),
        ("orders:0:1,orders:0:2", EVENING, "names orders-0 twice"),
        ("latest", EVENING, "--from latest: nothing is in such a range"),
        (NOON, "earliest", "--to earliest: nothing is in such a range"),
        (EVENING, NOON, "--from 2026-01-31T18:00:00Z is not before --to"),
        ("orders:0:9", "orders:0:3", "--from orders-0 is 9, behind --to, which is 3"),
        ("orders:0:9", "orders:0:101", "--to orders-0 is 101, and the partition ends at 100"),
        ("orders:0:9", "orders:1:10", "--from names orders-0 and --to does not: name it in both"),
        ("bills:0:9", EVENING, "--from names bills-0, which the pipeline does not read"),
    ],
)  # fmt: skip
def test_a_wrong_range_is_refused(begin: str, end: str, words: str) -> None:
    with pytest.raises(RangeInvalid, match=words):
        planned(begin, end)


def test_offsets_that_retention_has_deleted_are_named() -> None:
    found = planned("orders:0:5,orders:1:5", "orders:0:9,orders:1:9", facts(earliest=(8, 50)))
    assert bounds(found) == [(0, 8, 9)]
    assert [each.words() for each in found.gone] == [
        "orders-0 begins at offset 8 by now: 3 offsets of the range are deleted",
        "orders-1 begins at offset 50 by now: 4 offsets of the range are deleted",
    ]


def test_a_time_before_what_is_there_may_miss_messages() -> None:
    """Of deleted messages no time is known: it is enough that the first one that is there is in the range."""
    found = planned(NOON, EVENING, facts(first=(10, 20), earliest=(10, 3)))
    assert [each.words() for each in found.gone] == [
        "orders-0 begins at offset 10 by now: messages of the range may have been deleted before it"
    ]
    # An empty partition, all of whose messages were deleted.
    emptied = facts(first=(100, 20), until=(100, 40), earliest=(100, 3))
    assert [each.count for each in planned(NOON, EVENING, emptied).gone] == [None]
    assert planned("earliest", EVENING, facts(first=(10, 20), earliest=(10, 20))).gone == ()


def test_a_range_ends_before_an_open_transaction() -> None:
    found = planned(NOON, EVENING, facts(latest=(25, 100)))
    assert bounds(found) == [(0, 10, 25), (1, 20, 40)]
    assert [(each.place, each.first, each.until) for each in found.held] == [(ONE, 25, 30)]


def test_a_noted_range_is_the_same_and_says_what_was_deleted_since() -> None:
    found = planned(NOON, EVENING)
    noted = SourceRange.of("records", as_document([found])["records"])
    assert noted == found
    (gone,) = still_gone(noted, {ONE: 12, TWO: 0})
    assert (gone.place, gone.count) == (ONE, 2)


def test_ranges_overlap_in_the_offsets_of_the_same_topic() -> None:
    first = as_document([planned(NOON, EVENING)])
    assert overlap(first, as_document([planned("orders:0:29", "orders:0:50")])) == 1
    assert overlap(first, as_document([planned("orders:0:30", "orders:0:50")])) == 0
    assert overlap(first, as_document([planned(NOON, EVENING, facts(source="others"))])) == 0
    other = {"records": {side: {"orders": {"0": at, "topicId": "new"}} for side, at in (("from", 0), ("to", 99))}}  # fmt: skip
    assert overlap(first, other) == 0


def test_what_the_stream_has_still_to_read_is_counted() -> None:
    found = planned(NOON, EVENING)
    assert not_read_before([found], {ONE: 10, TWO: 25}) == 20 + 15
    assert not_read_before([found], {ONE: 30, TWO: 90}) == 0
    assert not_read_before([found], {ONE: 28}) == 2
