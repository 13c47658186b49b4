"""When a table that rows are enriched from is read again, and which version a micro-batch has."""

from zhumq.pipelines.refreshing import RETRY_SECONDS_MAX, Freshness, Versions


def test_a_table_is_read_when_it_is_as_old_as_the_file_allows() -> None:
    freshness = Freshness(refresh_seconds=60.0)
    assert freshness.is_due(1000.0)
    # The age counts from the beginning of the reading, which may have taken long.
    freshness.note_read(1000.0)
    assert not freshness.is_due(1059.9)
    assert freshness.is_due(1060.0)


def test_without_a_time_every_micro_batch_reads_the_table() -> None:
    freshness = Freshness(refresh_seconds=0.0)
    freshness.note_read(5.0)
    assert freshness.is_due(5.0)


def test_a_table_that_cannot_be_read_is_left_alone_for_longer_each_time() -> None:
    freshness = Freshness(refresh_seconds=10.0)
    freshness.note_read(0.0)
    now, waits = 10.0, []
    for _ in range(8):
        assert freshness.is_due(now)
        waits.append(freshness.note_failure(now))
        assert not freshness.is_due(now + waits[-1] - 0.1)
        now += waits[-1]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, RETRY_SECONDS_MAX, RETRY_SECONDS_MAX]
    freshness.note_read(now)
    assert not freshness.is_due(now + 9.9)
    assert freshness.is_due(now + 10.0)
    assert freshness.note_failure(now + 10.0) == 1.0


def test_a_table_that_was_never_read_is_always_due() -> None:
    freshness = Freshness(refresh_seconds=10.0)
    freshness.note_failure(0.0)
    assert freshness.is_due(0.1)


def test_a_micro_batch_keeps_its_version_and_the_next_one_has_the_newest() -> None:
    versions = Versions()
    assert versions.following == 0
    versions.add()
    assert versions.of("a", "7") is None
    assert versions.choose("a", "7") == 0
    versions.add()
    assert versions.of("a", "7") == 0
    assert versions.of("a", "8") is None
    assert versions.of("b", "7") is None
    assert versions.choose("a", "8") == 1
    assert versions.of("a", "7") is None


def test_a_version_is_removed_when_no_micro_batch_reads_it() -> None:
    versions = Versions()
    for _ in range(3):
        versions.add()
    assert versions.take_unused() == [0, 1]
    versions.choose("a", "1")
    versions.choose("b", "1")
    versions.add()
    assert versions.take_unused() == []
    versions.choose("a", "2")
    assert versions.take_unused() == []
    versions.choose("b", "2")
    assert versions.take_unused() == [2]
    assert versions.take_unused() == []
