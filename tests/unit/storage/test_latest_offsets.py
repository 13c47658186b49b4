"""The last offset of each key against a dictionary, and the memory that it takes."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from zhumq.storage.latest_offsets import SLOTS_MIN, LatestOffsets


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 1 << 60)), max_size=300))
def test_it_is_a_dictionary(written: list[tuple[bytes, int]]) -> None:
    latest = LatestOffsets()
    model: dict[bytes, int] = {}
    for key, offset in written:
        latest.put(key, offset)
        model[key] = offset
    assert len(latest) == len(model)
    for key, offset in model.items():
        assert latest.get(key) == offset
        assert latest.get(key + b"\0") == model.get(key + b"\0", -1)


def test_it_grows_and_takes_little_memory() -> None:
    count = SLOTS_MIN * 50
    tracemalloc.start()
    try:
        latest = LatestOffsets()
        for number in range(count):
            latest.put(b"key-%d" % number, number)
            latest.put(b"key-%d" % (number // 2), number)
        size, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(latest) == count
    assert size < 65 * count
    assert peak < 100 * count  # while it grows
    assert latest.get(b"key-0") == 1
    assert latest.get(b"key-%d" % (count // 2 - 1)) == count - 1
    assert latest.get(b"key-%d" % (count - 1)) == count - 1
    assert latest.get(b"key-%d" % count) == -1
