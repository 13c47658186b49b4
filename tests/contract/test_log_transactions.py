"""The contract of a log on transactions: every layout on disk passes it, and so does the log in memory."""

import random
from pathlib import Path

import pytest
from tests.contract.log_layouts import LAYOUTS, SEGMENT_BYTES, Layout
from tests.contract.memory_log import MemoryLog
from tests.unit.storage.storage_support import NOW_MS, PARTITION, append, make_batch, read_batches

from zhumq.model.authorization_errors import TransactionalIdAuthorizationFailed
from zhumq.model.errors import (
    BrokerError,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
)
from zhumq.model.transaction_errors import TransactionCoordinatorFenced
from zhumq.records.batch import TimestampType
from zhumq.records.control import EndMarker, MarkerType, build_marker_batch, decode_end_marker
from zhumq.storage.log import Log
from zhumq.storage.log_config import LogConfig
from zhumq.storage.validator import AppendOrigin

CONFIG = LogConfig(segment_bytes=SEGMENT_BYTES)
ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT
SEED = 20_261_118
RANDOM_STEPS = 400


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest, tmp_path: Path) -> Layout:
    return LAYOUTS[request.param](tmp_path)


@pytest.fixture
def log(layout: Layout) -> Log:
    return layout.open(CONFIG)


def inside(producer: int, sequence: int, *, epoch: int = 0) -> bytes:
    """A batch of a transaction."""
    return make_batch(
        b"value",
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def write(log: Log, producer: int, sequence: int, *, epoch: int = 0) -> int:
    log.producer_state.allow_transaction(producer, epoch, log.producer_state.verification(producer))
    data = inside(producer, sequence, epoch=epoch)
    return log.append(data, leader_epoch=0, now_ms=NOW_MS).base_offset


def end(
    log: Log,
    producer: int,
    marker_type: MarkerType = COMMIT,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 1,
    version: int = 0,
) -> int:
    return log.append_marker(
        EndMarker(marker_type=marker_type, coordinator_epoch=coordinator_epoch),
        producer_id=producer,
        producer_epoch=epoch,
        transaction_version=version,
        leader_epoch=0,
        now_ms=NOW_MS,
    ).base_offset


def test_a_transaction_is_open_from_its_first_batch_to_its_marker(log: Log) -> None:
    state = log.producer_state
    append(log, b"before")
    assert write(log, 1, 0) == 1
    assert write(log, 2, 0) == 2
    assert write(log, 1, 1) == 3
    assert state.first_undecided_offset == 1
    assert end(log, 1) == 4
    assert state.first_undecided_offset == 2
    assert end(log, 2, ABORT) == 5
    assert state.first_undecided_offset is None
    marker = read_batches(log)[-1]
    assert (marker.header.is_control, marker.header.is_transactional) == (True, True)
    (record,) = marker.records()
    assert decode_end_marker(record) == EndMarker(marker_type=ABORT, coordinator_epoch=1)


@pytest.mark.parametrize("marker_type", [COMMIT, ABORT])
def test_a_sequence_of_an_ended_transaction_is_no_repeat_in_the_next_one(
    log: Log, marker_type: MarkerType
) -> None:
    assert write(log, 1, 0) == 0
    assert write(log, 1, 0) == 0  # a repeat
    end(log, 1, marker_type)
    with pytest.raises(InvalidTxnState, match="in a transaction that has ended"):
        write(log, 1, 0)
    assert write(log, 1, 1) == 2
    with pytest.raises(InvalidTxnState, match="in a transaction that has ended"):
        write(log, 1, 0)
    assert write(log, 1, 1) == 2
    assert log.log_end_offset == 3


def test_a_transaction_is_unstable_until_its_marker_is_below_the_high_watermark(log: Log) -> None:
    write(log, 1, 0)
    write(log, 2, 0)
    end(log, 2)
    end(log, 1)
    state = log.producer_state
    assert [state.first_unstable_offset(high_watermark) for high_watermark in (0, 2, 3, 4)] == [
        0,
        0,
        0,
        None,
    ]


def test_the_log_gives_the_aborted_transactions_of_a_range(log: Log) -> None:
    for number in range(20):
        write(log, 1, number)  # 4n
        write(log, 2, number)  # 4n + 1
        end(log, 1, ABORT)  # 4n + 2
        end(log, 2, ABORT if number % 2 else COMMIT)  # 4n + 3

    def found(offset: int, next_offset: int) -> list[tuple[int, int]]:
        aborted = log.aborted_transactions(offset, next_offset)
        return [(each.producer_id, each.first_offset) for each in aborted]

    assert found(0, 1) == [(1, 0)]
    assert found(1, 2) == [(1, 0)]
    assert found(3, 4) == []
    assert found(2, 5) == [(1, 0), (1, 4)]
    assert found(5, 6) == [(1, 4), (2, 5)]
    assert found(7, 8) == [(2, 5)]
    assert len(found(0, 80)) == 30
    assert found(80, 80) == []


def test_a_marker_without_a_transaction_is_written_and_aborts_none(log: Log) -> None:
    append(log, b"a")
    assert end(log, 5, ABORT, epoch=3) == 1
    assert log.aborted_transactions(0, 2) == []
    assert log.producer_state.producers[5].epoch == 3


def test_a_producer_cannot_begin_a_transaction_that_the_coordinator_does_not_know(log: Log) -> None:
    with pytest.raises(InvalidTxnState):
        log.append(inside(1, 0), leader_epoch=0, now_ms=NOW_MS)
    write(log, 1, 0)
    # Within the transaction nothing has to be confirmed.
    log.append(inside(1, 1), leader_epoch=0, now_ms=NOW_MS)
    log.append(inside(1, 2), leader_epoch=0, now_ms=NOW_MS)
    end(log, 1)
    # A batch that was delayed past the end of its transaction.
    with pytest.raises(InvalidTxnState):
        log.append(inside(1, 3), leader_epoch=0, now_ms=NOW_MS)
    with pytest.raises(InvalidTxnState):
        log.append(inside(1, 3) + inside(1, 4), leader_epoch=0, now_ms=NOW_MS)
    # A verification that began before the marker confirms nothing.
    verification = log.producer_state.verification(1)
    end(log, 1)
    log.producer_state.allow_transaction(1, 0, verification)
    with pytest.raises(InvalidTxnState):
        log.append(inside(1, 3), leader_epoch=0, now_ms=NOW_MS)
    # A confirmation from before the marker no longer counts, nor one of another epoch.
    log.producer_state.allow_transaction(1, 0, log.producer_state.verification(1))
    end(log, 1)
    log.producer_state.allow_transaction(1, 7, log.producer_state.verification(1))
    with pytest.raises(InvalidTxnState):
        log.append(inside(1, 3), leader_epoch=0, now_ms=NOW_MS)
    # Nor is a batch of the ended transaction acknowledged once more.
    with pytest.raises(InvalidTxnState):
        log.append(inside(1, 2), leader_epoch=0, now_ms=NOW_MS)


def test_a_batch_of_a_transaction_is_refused_in_a_request_without_a_transactional_id(
    log: Log,
) -> None:
    write(log, 1, 0)
    with pytest.raises(TransactionalIdAuthorizationFailed):
        log.append(inside(1, 1), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.PLAIN_CLIENT)
    run = log.append_each([memoryview(inside(1, 1))], leader_epoch=0, now_ms=NOW_MS)
    assert isinstance(run.last, TransactionalIdAuthorizationFailed)
    assert log.log_end_offset == 1


def test_an_unknown_producer_of_version_2_begins_with_its_first_sequence(log: Log) -> None:
    state = log.producer_state
    state.allow_transaction(1, 0, state.verification(1), begins_at_zero=True)
    with pytest.raises(OutOfOrderSequenceNumber):
        log.append(inside(1, 3), leader_epoch=0, now_ms=NOW_MS)
    log.append(inside(1, 0), leader_epoch=0, now_ms=NOW_MS)
    log.append(inside(1, 1), leader_epoch=0, now_ms=NOW_MS)
    # Of version 1 any sequence may be the first: retention may have deleted those before it.
    state.allow_transaction(2, 0, state.verification(2))
    log.append(inside(2, 3), leader_epoch=0, now_ms=NOW_MS)
    # An end of version 1 does not begin the sequences again.
    end(log, 1)
    state.allow_transaction(1, 0, state.verification(1), begins_at_zero=True)
    log.append(inside(1, 2), leader_epoch=0, now_ms=NOW_MS)


def test_a_producer_cannot_write_outside_of_its_open_transaction(log: Log) -> None:
    write(log, 1, 0)
    outside = make_batch(b"x", producer_id=1, producer_epoch=0, base_sequence=1)
    with pytest.raises(InvalidTxnState):
        log.append(outside, leader_epoch=0, now_ms=NOW_MS)
    run = log.append_each([memoryview(outside)], leader_epoch=0, now_ms=NOW_MS)
    assert isinstance(run.last, InvalidTxnState)
    log.producer_state.allow_transaction(2, 0, log.producer_state.verification(2))
    outside = make_batch(b"x", producer_id=2, producer_epoch=0, base_sequence=1)
    with pytest.raises(InvalidTxnState):
        log.append(inside(2, 0) + outside, leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == 1


def test_markers_of_older_producers_and_older_coordinators_are_refused(log: Log) -> None:
    write(log, 1, 0, epoch=4)
    end(log, 1, epoch=4, coordinator_epoch=8)
    with pytest.raises(InvalidProducerEpoch):
        end(log, 1, epoch=3, coordinator_epoch=8)
    with pytest.raises(TransactionCoordinatorFenced):
        end(log, 1, epoch=4, coordinator_epoch=7)
    # Version 1: the marker of a transaction has the epoch of its batches, and may be repeated.
    assert end(log, 1, epoch=4, coordinator_epoch=8) == 2
    assert log.log_end_offset == 3


def test_a_marker_of_version_2_ends_only_transactions_of_an_earlier_epoch(log: Log) -> None:
    write(log, 1, 0, epoch=4)
    with pytest.raises(InvalidProducerEpoch):
        end(log, 1, ABORT, epoch=4, version=2)
    assert end(log, 1, ABORT, epoch=5, version=2) == 1
    # The epoch is bumped: sequences begin again, and a repeated marker changes nothing.
    assert end(log, 1, ABORT, epoch=5, version=2) == 2
    write(log, 1, 0, epoch=5)
    # Delayed past the start of the next transaction, it would end that one.
    with pytest.raises(InvalidProducerEpoch):
        end(log, 1, ABORT, epoch=5, version=2)
    with pytest.raises(InvalidProducerEpoch):
        log.append(inside(1, 1, epoch=4), leader_epoch=0, now_ms=NOW_MS)
    assert log.producer_state.first_undecided_offset == 3
    # The last epoch cannot be bumped.
    write(log, 2, 0, epoch=2**15 - 1)
    assert end(log, 2, epoch=2**15 - 1, version=2) == 5


def test_markers_are_refused_as_ordinary_batches(log: Log) -> None:
    data = build_marker_batch(
        EndMarker(marker_type=ABORT, coordinator_epoch=1),
        producer_id=1,
        producer_epoch=0,
        timestamp=NOW_MS,
    )
    for origin in AppendOrigin:
        with pytest.raises(InvalidRecord):
            log.append(data, leader_epoch=0, now_ms=NOW_MS, origin=origin)
    run = log.append_each([memoryview(data)], leader_epoch=0, now_ms=NOW_MS)
    assert isinstance(run.last, InvalidRecord)


def test_batches_of_a_coordinator_have_an_epoch_and_no_sequence(log: Log) -> None:
    def commit_offsets(epoch: int, *, is_transactional: bool = True) -> None:
        data = make_batch(
            b"offset", producer_id=1, producer_epoch=epoch, is_transactional=is_transactional
        )
        log.append(data, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)

    def allow(epoch: int) -> None:
        log.producer_state.allow_transaction(1, epoch, log.producer_state.verification(1))

    with pytest.raises(InvalidTxnState):
        commit_offsets(3)
    allow(3)
    commit_offsets(3)
    commit_offsets(3)
    assert log.producer_state.first_undecided_offset == 0
    with pytest.raises(InvalidProducerEpoch):
        commit_offsets(2)
    with pytest.raises(InvalidTxnState):
        commit_offsets(3, is_transactional=False)
    end(log, 1, epoch=3)
    with pytest.raises(InvalidTxnState):
        commit_offsets(3)
    allow(4)
    commit_offsets(4)
    assert log.producer_state.first_undecided_offset == 3


def test_a_topic_that_stamps_its_own_time_stamps_markers(layout: Layout) -> None:
    log = layout.open(LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    append(log, b"a", timestamp=5)
    end(log, 1)
    marker = read_batches(log)[-1]
    assert marker.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in marker.records()] == [NOW_MS]


def test_a_follower_has_the_leaders_transactions(log: Log) -> None:
    leader = MemoryLog(PARTITION, CONFIG)
    for number in range(10):
        write(leader, 1, number)
        write(leader, 2, number)
        end(leader, 1, ABORT)
        if number < 9:
            end(leader, 2, COMMIT)
    for batch in read_batches(leader):
        log.append_fetched(batch.data, epoch_max=0, gaps_allowed=False)
    assert log.producer_state == leader.producer_state
    assert log.aborted_transactions(0, 40) == leader.aborted_transactions(0, 40)
    assert log.producer_state.first_undecided_offset == 37


def test_a_closed_log_refuses_markers(log: Log) -> None:
    log.close()
    with pytest.raises(BrokerError):
        end(log, 1)


def test_a_random_history_of_transactions_is_the_same_in_every_layout(layout: Layout) -> None:
    draw = random.Random(SEED)
    log, model = layout.open(CONFIG), MemoryLog(PARTITION, CONFIG)
    refused = 0
    for _ in range(RANDOM_STEPS):
        kind = draw.choices(
            ["write", "end", "outside", "truncate", "flush", "crash", "restart"],
            [40, 30, 10, 3, 8, 2, 1],
        )[0]
        producer, epoch = draw.randint(1, 4), draw.choice([0, 0, 0, 1])
        known = model.producer_state.producers.get(producer)
        is_same = known is not None and known.epoch == epoch
        sequence = known.next_sequence if known is not None and is_same else 0
        version, coordinator = draw.choice([0, 2]), draw.choice([1, 1, 1, 2])
        marker_type = draw.choice([ABORT, ABORT, COMMIT])
        offset = draw.randint(model.log_start_offset, model.log_end_offset)
        if kind == "crash":
            flush(log)
            flush(model)
            log, model = layout.crash(), model.reopened()
        for each in (model, log):
            try:
                if kind == "write":
                    write(each, producer, sequence, epoch=epoch)
                elif kind == "end":
                    end(
                        each,
                        producer,
                        marker_type,
                        epoch=epoch,
                        coordinator_epoch=coordinator,
                        version=version,
                    )
                elif kind == "outside":
                    append(each, b"outside")
                elif kind == "truncate":
                    each.truncate_to(offset)
                elif kind == "restart":
                    each.truncate_fully_and_start_at(model.log_end_offset)
                elif kind == "flush":
                    flush(each)
            except BrokerError:
                refused += 1
        assert log.log_end_offset == model.log_end_offset
        assert log.producer_state.producers == model.producer_state.producers, kind
        first, last = sorted(
            draw.randint(model.log_start_offset, model.log_end_offset) for _ in range(2)
        )
        assert log.aborted_transactions(first, last) == model.aborted_transactions(first, last)
        undecided = model.producer_state.first_undecided_offset
        assert log.producer_state.first_undecided_offset == undecided
    assert refused % 2 == 0


def flush(log: Log) -> None:
    ticket = log.begin_flush()
    if ticket is not None:
        ticket.run()
        log.finish_flush(ticket)
