"""Rings of samples: what is written is read, what is torn is skipped, and the clock may go anywhere."""

import math

from hypothesis import given
from hypothesis import strategies as st

from zhumq.history.fields import FIELDS, Sample, Subject, Values
from zhumq.history.ring import (
    COARSE,
    FINE,
    GROUPS_MAX,
    NAME_BYTES_MAX,
    SLOT_BYTES,
    TOPICS_MAX,
    Ring,
    decode_slot,
    encode_slot,
)

FIGURE = st.floats(min_value=0, max_value=1e15) | st.just(math.nan)
SMALL = Ring(step_ms=10, slots=7)


def values_of(subject: Subject) -> st.SearchStrategy[Values]:
    count = len(FIELDS[subject])
    return st.tuples(*[FIGURE] * count)


def named(subject: Subject, count_max: int) -> st.SearchStrategy[dict[str, Values]]:
    names = st.text(min_size=1, max_size=80)
    return st.dictionaries(names, values_of(subject), max_size=count_max)


def samples(count_max: int = 60) -> st.SearchStrategy[Sample]:
    return st.builds(
        Sample,
        time_ms=st.integers(0, 2**45),
        broker=values_of(Subject.BROKER),
        topics=named(Subject.TOPIC, count_max),
        groups=named(Subject.GROUP, count_max),
    )


def same(one: Sample | None, other: Sample | None) -> bool:
    """Not a number is equal to itself here."""
    return repr(one) == repr(other)


@given(samples())
def test_a_slot_has_the_first_topics_and_groups_that_fit(sample: Sample) -> None:
    data = encode_slot(sample)
    assert len(data) <= SLOT_BYTES
    found = decode_slot(data)
    assert found is not None
    assert same(found._replace(topics={}, groups={}), sample._replace(topics={}, groups={}))
    for kept, given_, count_max in (
        (found.topics, sample.topics, TOPICS_MAX),
        (found.groups, sample.groups, GROUPS_MAX),
    ):
        short = [
            name for name in given_ if len(name.encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX
        ]
        assert list(kept) == short[: len(kept)]
        assert len(kept) <= count_max
        assert all(repr(kept[name]) == repr(given_[name]) for name in kept)


@given(samples(count_max=5))
def test_a_slot_with_few_names_has_them_all(sample: Sample) -> None:
    assert same(decode_slot(encode_slot(sample)), sample)


def test_twenty_topics_and_groups_with_the_longest_names_fit() -> None:
    topics = {f"{number:0249}": (1.0,) * 5 for number in range(TOPICS_MAX)}
    groups = {f"{number:0249}": (1.0,) * 2 for number in range(GROUPS_MAX)}
    found = decode_slot(encode_slot(Sample(0, (0.0,) * 11, topics, groups)))
    assert found is not None
    assert len(found.topics) >= 15
    assert len(found.groups) >= 10


@given(samples(count_max=3), st.data())
def test_a_torn_slot_is_none(sample: Sample, data: st.DataObject) -> None:
    """The first bytes are of the new sample, the rest is of an older one."""
    older = encode_slot(data.draw(samples(count_max=3)))
    newer = encode_slot(sample)
    cut = data.draw(st.integers(0, len(newer)))
    torn = newer[:cut] + older[cut:]
    found = decode_slot(torn)
    assert found is None or same(found, sample) or same(found, decode_slot(older))


@given(samples(count_max=3), st.data())
def test_a_changed_byte_is_found(sample: Sample, data: st.DataObject) -> None:
    slot = bytearray(encode_slot(sample))
    place = data.draw(st.integers(0, len(slot) - 1))
    slot[place] ^= data.draw(st.integers(1, 255))
    assert decode_slot(bytes(slot)) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    decode_slot(data)
    decode_slot(data + bytes(SLOT_BYTES))


@given(st.lists(st.integers(0, 400), min_size=1, max_size=60))
def test_a_ring_has_the_last_sample_of_each_step_whatever_the_clock_did(times: list[int]) -> None:
    """Against a list of everything that was written; the last time is now."""
    slots: dict[int, bytes] = {}
    for number, time_ms in enumerate(times):
        values = (float(number),) * len(FIELDS[Subject.BROKER])
        slots[SMALL.slot_of(time_ms)] = encode_slot(Sample(time_ms, values, {}, {}))
    now_ms = times[-1]
    read = [SMALL.read(slot, data, now_ms) for slot, data in slots.items()]
    found = {each.time_ms: each.broker[0] for each in read if each is not None}
    last_in_slot = {SMALL.slot_of(time_ms): number for number, time_ms in enumerate(times)}
    expected = {
        times[number]: float(number)
        for number in last_in_slot.values()
        if now_ms - SMALL.span_ms < times[number] <= now_ms
    }
    assert found == expected
    assert now_ms in found, "what was written last is read"


def test_a_sample_in_the_slot_of_another_time_is_none() -> None:
    sample = Sample(25, (0.0,) * len(FIELDS[Subject.BROKER]), {}, {})
    data = encode_slot(sample)
    assert SMALL.read(2, data, 30) is not None
    assert SMALL.read(3, data, 30) is None


def test_a_file_of_another_ring_or_version_is_not_taken_for_this_one() -> None:
    assert FINE.begins(FINE.header() + b"rest")
    assert not FINE.begins(COARSE.header())
    assert not FINE.begins(b"")
    damaged = bytearray(FINE.header())
    damaged[9] ^= 1
    assert not FINE.begins(bytes(damaged))


def test_both_rings_are_below_sixteen_megabytes() -> None:
    assert FINE.file_bytes + COARSE.file_bytes < 16 << 20
    assert (FINE.span_ms, COARSE.span_ms) == (3_600_000, 24 * 3_600_000)
