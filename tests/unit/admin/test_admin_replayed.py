"""The replayed dead letters of a partition, and their form in an offset commit."""

from zhumq.admin.replayed import METADATA_CHARACTERS_MAX, Replayed


def test_metadata_is_read_back() -> None:
    replayed = Replayed(3)
    for offset in (9, 5, 6, 7, 12):
        replayed.add(offset)
    assert (replayed.position, replayed.metadata) == (3, "5-7,9,12")
    again = Replayed.read(replayed.position, replayed.metadata)
    assert [offset for offset in range(15) if offset in again] == [0, 1, 2, 5, 6, 7, 9, 12]


def test_a_closed_gap_moves_the_position() -> None:
    replayed = Replayed(3)
    replayed.add(4)
    replayed.add(3)
    assert (replayed.position, replayed.metadata) == (5, "")
    replayed.add(8)
    replayed.advance(9)
    assert (replayed.position, replayed.metadata) == (9, "")


def test_only_what_is_still_there_is_counted() -> None:
    replayed = Replayed.read(5, "7-8,20")
    assert replayed.count(0, 10) == 7
    assert replayed.count(6, 10) == 2
    assert replayed.count(30, 40) == 0
    assert Replayed.read(-1001, "").count(0, 10) == 0


def test_metadata_of_another_program_is_skipped() -> None:
    replayed = Replayed.read(2, "hello,4-x,-,9,7-,99999999999999999999-1")
    assert [offset for offset in range(12) if offset in replayed] == [0, 1, 7, 9]
    huge = Replayed.read(0, "1-99999999999")
    assert 1_000_000 in huge
    assert 2_000_000 not in huge


def test_the_metadata_fits_into_a_commit() -> None:
    replayed = Replayed(0)
    for offset in range(1, 10_000, 2):
        replayed.add(offset)
    assert len(replayed.metadata) <= METADATA_CHARACTERS_MAX
    assert 1 in Replayed.read(0, replayed.metadata)
