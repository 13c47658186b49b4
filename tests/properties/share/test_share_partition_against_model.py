"""The share partition does with ranges exactly what a simple model does offset by offset."""

from random import Random

from delivery_log import made_up_log, slice_from
from hypothesis import given, settings
from hypothesis import strategies as st
from share_partition_model import ModelSharePartition

from zhumq.share.acknowledgement import AckKind, Acknowledgement
from zhumq.share.partition_state import (
    ARCHIVING_STATES,
    DONE_STATES,
    RecordState,
    SharePartitionState,
)
from zhumq.share.redelivery import RedeliveryPolicy
from zhumq.share.share_partition import InvalidRecordState, SharePartition, SharePartitionLimits

MEMBERS = ("ann", "bob", "cid")
STEPS = 120


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), is_ordered=st.booleans())
def test_ranges_have_the_same_states_as_single_offsets(seed: int, is_ordered: bool) -> None:
    draw = Random(seed)
    log = made_up_log(draw, offsets=draw.choice((5, 40, 120)))
    limits = SharePartitionLimits(
        in_flight_max=draw.choice((3, 10, 50)),
        lock_ms=100,
        redelivery=RedeliveryPolicy(
            max_deliveries=draw.choice((1, 2, 5)), backoff_ms=draw.choice((0, 30))
        ),
        is_ordered=is_ordered,
    )
    share_partition = SharePartition(SharePartitionState(start_offset=0), limits)
    model = ModelSharePartition(
        max_deliveries=limits.redelivery.max_deliveries,
        in_flight_max=limits.in_flight_max,
        lock_ms=limits.lock_ms,
        backoff_ms=limits.redelivery.backoff_ms,
        is_ordered=is_ordered,
    )
    members = MEMBERS[:1] if is_ordered else MEMBERS
    now_ms = 1_000
    for _ in range(STEPS):
        now_ms += draw.choice((0, 1, 20, 60))
        share_partition.expire(now_ms)
        model.expire(now_ms)
        model._drop_done()
        member = draw.choice(members)
        match draw.randrange(6):
            case 0 | 1:
                _acquire_both(draw, share_partition, model, log, member, now_ms)
            case 2 | 3 | 4:
                _acknowledge_both(draw, share_partition, model, member, now_ms)
            case 5:
                counts = draw.random() < 0.5
                share_partition.release_member(member, "gone", now_ms, counts=counts)
                model.release_member(member, now_ms, counts=counts)
        _reject_both(draw, share_partition, model)
        _compare(share_partition, model)


def _acquire_both(draw, share_partition, model, log, member, now_ms) -> None:
    left = draw.choice((1, 3, 10, 100))
    from_offset = 0
    # In several reads, as SharePartitionDelivery does, each after the previous one.
    while left:
        offset = share_partition.next_fetch_offset(now_ms, from_offset)
        assert offset == model.next_fetch_offset(now_ms, from_offset)
        spans = [] if offset is None else slice_from(draw, log, offset)
        if not spans:
            return
        ranges = share_partition.acquire(
            member, spans, from_offset=offset, records_max=left, now_ms=now_ms
        )
        offsets = [
            offset for each in ranges for offset in range(each.first_offset, each.last_offset + 1)
        ]
        assert offsets == model.acquire(member, spans, offset, left, now_ms)
        assert len(offsets) <= left
        for each in ranges:
            assert model.entries[each.first_offset].count == each.delivery_count
        left -= len(offsets)
        from_offset = spans[-1].last_offset + 1


def _acknowledge_both(draw, share_partition, model, member, now_ms) -> None:
    held = model.held(member)
    if held and draw.random() < 0.9:
        first = draw.choice(held)
        last = first + draw.choice((0, 0, 1, 3, 20))
    else:
        first = draw.randrange(model.end + 3)
        last = first + draw.randrange(-1, 3)
    kind = draw.choice(list(AckKind))
    granted = model.acknowledge(member, range(first, last + 1), kind, now_ms)
    try:
        share_partition.acknowledge(
            member, Acknowledgement(first_offset=first, last_offset=last, kind=kind), now_ms
        )
    except InvalidRecordState:
        assert not granted
    else:
        assert granted


def _reject_both(draw, share_partition, model) -> None:
    if share_partition.dead_lettering() is None:
        dead_letter = share_partition.next_dead_letter()
        if dead_letter is None or draw.random() < 0.5:
            return
        last = draw.randint(dead_letter.first_offset, dead_letter.last_offset)
        share_partition.begin_dead_lettering(dead_letter.first_offset, last)
        for offset in range(dead_letter.first_offset, last + 1):
            assert model.entries[offset].state is RecordState.ARCHIVING
            model.entries[offset].state = RecordState.DEAD_LETTERING
    elif draw.random() < 0.5:
        share_partition.end_dead_lettering(1)
        for entry in model.entries.values():
            if entry.state is RecordState.DEAD_LETTERING:
                entry.state = RecordState.ARCHIVED
        model._drop_done()


def _compare(share_partition: SharePartition, model: ModelSharePartition) -> None:
    assert (share_partition.start_offset, share_partition.end_offset) == (model.start, model.end)
    expected = share_partition.start_offset
    sizes = dict.fromkeys(RecordState, 0)
    for run in share_partition.runs():
        assert run.first_offset == expected, (
            "runs cover the share partition without hole or overlap"
        )
        expected = run.last_offset + 1
        for offset in range(run.first_offset, run.last_offset + 1):
            entry = model.entries[offset]
            assert run.state is entry.state
            if run.state not in DONE_STATES | ARCHIVING_STATES:
                assert run.delivery_count == entry.count
            sizes[run.state] += 1
    assert share_partition.acquired_count == sizes[RecordState.ACQUIRED]
    assert share_partition.done_count == sum(sizes[state] for state in DONE_STATES)
    assert share_partition.archiving_count == sum(sizes[state] for state in ARCHIVING_STATES)
    for member in MEMBERS:
        assert share_partition.held_by(member) == len(model.held(member))
