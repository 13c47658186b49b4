"""Which offsets a query reads from the archive and which from the topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.sql.boundary import (
    ArchiveAhead,
    ArchiveGap,
    PartitionOffsets,
    PartitionSplit,
    split_partitions,
)


def offsets(first: int, end: int, stable: int | None = None) -> PartitionOffsets:
    return PartitionOffsets(
        first_offset=first, stable_offset=end if stable is None else stable, end_offset=end
    )


def test_rows_below_the_archived_offset_come_from_the_archive() -> None:
    splits = split_partitions("orders", {0: offsets(40, 120), 1: offsets(0, 7)}, {0: 100})
    assert splits == {
        0: PartitionSplit(archived_until=100, first_offset=100, until_offset=120),
        1: PartitionSplit(archived_until=0, first_offset=0, until_offset=7),
    }


def test_an_open_transaction_ends_what_is_read() -> None:
    splits = split_partitions("orders", {0: offsets(0, 120, stable=90)}, {})
    assert splits[0].until_offset == 90


def test_a_gap_names_the_partition_and_both_offsets() -> None:
    with pytest.raises(ArchiveGap, match=r"orders-0 has a gap: .* offset 100, .* up to 130"):
        split_partitions("orders", {0: offsets(130, 200)}, {0: 100})
    allowed = split_partitions("orders", {0: offsets(130, 200)}, {0: 100}, allows_gaps=True)
    assert allowed[0] == PartitionSplit(archived_until=100, first_offset=130, until_offset=200)


@pytest.mark.parametrize("known", [{0: offsets(0, 50)}, {}])
def test_an_archive_of_an_earlier_topic_of_the_name_is_refused(
    known: dict[int, PartitionOffsets],
) -> None:
    with pytest.raises(ArchiveAhead, match="created again"):
        split_partitions("orders", known, {0: 100})


@given(archived=st.integers(0, 50), first=st.integers(0, 50), size=st.integers(0, 50))
def test_each_offset_is_read_once_or_the_gap_is_refused(
    archived: int, first: int, size: int
) -> None:
    end = max(first, archived) + size
    try:
        split = split_partitions("t", {0: offsets(first, end)}, {0: archived} if archived else {})[
            0
        ]
    except ArchiveGap:
        assert 0 < archived < first
        return
    read = [*range(split.archived_until), *range(split.first_offset, split.until_offset)]
    assert read == list(range(end)) if archived else read == list(range(first, end))
