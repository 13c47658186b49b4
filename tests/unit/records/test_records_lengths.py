"""The check of a batch's number of records by their length fields."""

import random

import pytest
from conformance.invalid_batches import sized
from hypothesis import given, settings
from hypothesis import strategies as st

from zhumq.model.errors import CorruptMessage
from zhumq.records.lengths import FEW, RUN, SINGLES, check_lengths, end_of, end_of_many

# Lengths that take one, two and three bytes, in runs and alone.
runs = st.lists(
    st.tuples(st.sampled_from([0, 6, 63, 64, 100, 8191, 8192, 9000]), st.integers(1, 40)),
    max_size=12,
)


def payload_of(lengths: list[int]) -> bytes:
    # Full of bytes that look like lengths themselves.
    return b"".join(sized(bytes([length & 0x7E]) * length) for length in lengths)


def is_taken(payload: bytes, count: int) -> bool:
    try:
        check_lengths(payload, count)
    except CorruptMessage:
        return False
    return True


@given(runs, st.integers(-2, 2), st.integers(-2, 2))
@settings(max_examples=200)
def test_only_the_right_number_in_exactly_the_right_bytes_is_accepted(
    runs: list[tuple[int, int]], count_error: int, size_error: int
) -> None:
    lengths = [length for length, times in runs for _ in range(times)]
    payload = payload_of(lengths)
    changed = payload[:size_error] if size_error < 0 else payload + bytes([1] * size_error)
    count = max(len(lengths) + count_error, 0)
    if not size_error:
        # An empty record is one byte: a wrong number of them is refused as well.
        assert is_taken(changed, count) == (count == len(lengths))
    elif payload:
        assert not is_taken(changed, len(lengths))


@given(runs, st.data())
@settings(max_examples=200)
def test_any_number_of_records_can_be_skipped(
    runs: list[tuple[int, int]], drawn: st.DataObject
) -> None:
    lengths = [length for length, times in runs for _ in range(times)]
    count = drawn.draw(st.integers(0, len(lengths)))
    assert end_of_many(payload_of(lengths), count) == len(payload_of(lengths[:count]))


@pytest.mark.parametrize("place", [0, 1, RUN - 1, RUN, RUN + 1, 2 * RUN, 3 * RUN - 1])
def test_one_wrong_length_in_a_long_run_is_found(place: int) -> None:
    records = [sized(b"x" * 100) for _ in range(3 * RUN)]
    check_lengths(b"".join(records), len(records))
    records[place] = sized(b"x" * 100, 101)
    assert not is_taken(b"".join(records), len(records))


def test_lengths_that_all_differ_are_checked_one_by_one() -> None:
    rng = random.Random(7)
    payload = payload_of([rng.randrange(50, 150) for _ in range(SINGLES * 5)])
    check_lengths(payload, SINGLES * 5)
    assert not is_taken(payload, SINGLES * 5 - 1)
    assert not is_taken(payload[:-1], SINGLES * 5)


def ends(payload: bytes, count: int) -> bool:
    """Whether this many records behind a head end where the bytes end."""
    batch = memoryview(b"head" + payload)
    try:
        return end_of(batch, 4, count) == len(batch)
    except (CorruptMessage, IndexError):
        return False


@pytest.mark.parametrize("length", [0, 6, 63, 64, 8191, 8192, 100_000])
def test_a_few_records_are_recognised_by_their_lengths(length: int) -> None:
    payload = sized(b"x" * length)
    assert ends(payload, 1)
    assert not ends(payload + b"\x00", 1)
    assert not ends(payload[:-1], 1)
    assert ends(payload * FEW, FEW)
    assert not ends(payload * FEW, FEW - 1)


@pytest.mark.parametrize(
    "payload", [b"", b"\x01", b"\x80", b"\xff" * 20, b"\x80\x80\x80", b"\x81\x01"]
)
def test_what_is_no_length_is_no_record(payload: bytes) -> None:
    assert not ends(payload, 1)
    assert not is_taken(payload, 1)
