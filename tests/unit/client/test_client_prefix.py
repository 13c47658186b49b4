"""The contiguous prefix never passes an unfinished offset, in any order of processing."""

from hypothesis import given
from hypothesis import strategies as st

from zhumq.client.dead_letters import Story, original_headers, read_story
from zhumq.client.prefix import Prefix


@given(st.permutations(range(12)))
def test_only_what_is_done_from_the_first_on_is_committed(order: list[int]) -> None:
    prefix = Prefix()
    for offset in range(12):
        prefix.begin(offset)
    done: set[int] = set()
    committed = 0
    for offset in order:
        done.add(offset)
        next_offset = prefix.done(offset)
        expected = next(each for each in range(13) if each not in done)
        if next_offset is not None:
            assert next_offset > committed
            committed = next_offset
        assert committed == expected
    assert (committed, prefix.unfinished) == (12, 0)


def test_offsets_may_have_gaps() -> None:
    prefix = Prefix()
    for offset in (3, 7, 20):
        prefix.begin(offset)
    assert prefix.done(7) is None
    assert prefix.done(3) == 8
    assert prefix.done(20) == 21


def test_an_abandoned_offset_ends_the_prefix_and_what_was_begun_before_it_still_counts() -> None:
    prefix = Prefix()
    for offset in range(4):
        prefix.begin(offset)
    prefix.abandon(2)
    assert prefix.done(3) is None
    assert not prefix.is_idle
    assert prefix.done(0) == 1
    assert prefix.done(1) == 2
    assert prefix.is_idle


def test_a_dead_letters_story_is_read_back_from_its_headers() -> None:
    story = Story(
        group="g", reason="why é", deliveries=3, topic="t", partition=1, offset=9, time_ms=5
    )
    headers = [("own", b"x"), *story.headers()]
    assert read_story(headers) == story
    assert original_headers(headers) == [("own", b"x")]
    assert read_story([("own", b"x")]) is None
    assert read_story([*story.headers(), ("zhumq.offset", b"not a number")]) is None
