"""The transaction coordinator's decisions, with Kafka's codes."""

import tracemalloc

import pytest
from transactions_support import ID, LAST_EPOCH, NOW_MS, P0, P1, TIMEOUT_MS, DrivenShard

from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.transactions.persisted import transaction_record
from zhumq.transactions.requests import (
    AddPartitions,
    Answer,
    AwaitMarkers,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    PreparedTransactions,
)
from zhumq.transactions.transaction import Transaction, TransactionState, begin_again

State = TransactionState
NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_transaction_goes_from_empty_to_committed() -> None:
    shard = DrivenShard()
    producer = shard.init()
    assert (producer.code, producer.producer_epoch) == (NONE, 0)
    assert shard.state.state is State.EMPTY
    assert shard.add(producer, P0).code == NONE
    assert shard.add(producer, P0, P1).code == NONE
    records = len(shard.log)
    assert shard.add(producer, P1).code == NONE
    assert len(shard.log) == records  # It is in the transaction already.
    assert shard.state.state is State.ONGOING
    assert shard.state.partitions == {P0, P1}
    ended = shard.end(producer)
    assert (ended.code, ended.producer_epoch) == (NONE, 0)
    assert shard.state.state is State.PREPARE_COMMIT
    assert shard.add(producer, P0).code == CONCURRENT
    (prepared,) = shard.write_markers()
    assert (prepared.partitions, prepared.producer_epoch) == ({P0, P1}, 0)
    assert shard.state.state is State.COMPLETE_COMMIT
    assert shard.add(producer, P0).code == NONE
    assert shard.state.partitions == {P0}


def test_version_2_raises_the_epoch_with_each_end() -> None:
    shard = DrivenShard()
    producer = shard.init()
    for number, is_commit in enumerate((True, False, True)):
        assert shard.add(producer, P0, version=2).code == NONE
        ended = shard.end(producer, is_commit=is_commit, version=2)
        assert (ended.producer_id, ended.producer_epoch) == (producer.producer_id, number + 1)
        (prepared,) = shard.write_markers()
        assert (prepared.producer_epoch, prepared.client_version) == (number + 1, 2)
        assert shard.add(producer, P0, version=2).code == FENCED
        producer = ended


def test_a_repeated_end_of_version_2_is_answered_with_the_new_epoch() -> None:
    shard = DrivenShard()
    producer = shard.init()
    shard.add(producer, P0, version=2)
    ended = shard.end(producer, version=2)
    assert shard.end(producer, version=2).code == CONCURRENT
    assert shard.end(producer, is_commit=False, version=2).code == CONCURRENT
    assert shard.end(ended, version=2).code == CONCURRENT  # the end of the next transaction
    shard.write_markers()
    assert shard.end(producer, version=2) == ended
    assert shard.end(producer, is_commit=False, version=2).code == INVALID_STATE
    assert shard.end(ended, version=2).code == INVALID_STATE  # nothing to commit


def test_version_2_aborts_a_transaction_without_partitions() -> None:
    shard = DrivenShard()
    producer = shard.init()
    assert shard.end(producer, version=2).code == INVALID_STATE
    for epoch in (1, 2):
        producer = shard.end(producer, is_commit=False, version=2)
        assert (producer.code, producer.producer_epoch) == (NONE, epoch)
        assert shard.state.state is State.COMPLETE_ABORT
    assert shard.write_markers() == []
    shard.add(producer, P0, version=2)
    producer = shard.end(producer, version=2)
    shard.write_markers()
    assert shard.state.state is State.COMPLETE_COMMIT
    assert shard.end(producer, is_commit=False, version=2).producer_epoch == 4


def test_a_repeated_end_of_version_1_is_answered_by_the_outcome() -> None:
    shard = DrivenShard()
    producer = shard.init()
    assert shard.end(producer).code == INVALID_STATE
    assert shard.end(producer, is_commit=False).code == INVALID_STATE
    for is_commit in (True, False):
        shard.add(producer, P0)
        assert shard.end(producer, is_commit=is_commit).code == NONE
        assert shard.end(producer, is_commit=is_commit).code == CONCURRENT
        assert shard.end(producer, is_commit=not is_commit).code == CONCURRENT
        shard.write_markers()
        records = len(shard.log)
        assert shard.end(producer, is_commit=is_commit).code == NONE
        # A broker that does not lead any more cannot make it durable, and confirms nothing.
        assert len(shard.log) == records + 1
        assert shard.end(producer, is_commit=not is_commit).code == INVALID_STATE


def test_a_new_instance_replaces_the_old_one_and_aborts_its_transaction() -> None:
    shard = DrivenShard()
    old = shard.init()
    shard.add(old, P0)
    assert shard.init().code == CONCURRENT
    assert shard.init().code == CONCURRENT  # The markers are not written.
    (prepared,) = shard.write_markers()
    assert (prepared.state, prepared.producer_epoch) == (State.PREPARE_ABORT, 1)
    new = shard.init()
    assert (new.code, new.producer_id, new.producer_epoch) == (NONE, old.producer_id, 2)
    for refused in (
        shard.add(old, P0),
        shard.end(old),
        shard.end(old, version=2),
        shard.init(old.producer_id, old.producer_epoch),
    ):
        assert refused.code == FENCED


def test_a_replaced_producer_cannot_go_on_while_the_new_one_waits() -> None:
    shard = DrivenShard()
    old = shard.init()
    shard.add(old, P0)
    assert shard.init().code == CONCURRENT
    shard.write_markers()
    assert shard.init(old.producer_id, old.producer_epoch).code == FENCED


def test_a_producer_goes_on_after_an_error_with_the_next_epoch() -> None:
    shard = DrivenShard()
    producer = shard.init()
    bumped = shard.init(producer.producer_id, 0)
    assert (bumped.code, bumped.producer_epoch) == (NONE, 1)
    # Repeated, because the answer was lost; also after the coordinator has moved.
    assert shard.init(producer.producer_id, 0) == bumped
    shard.restart()
    assert shard.init(producer.producer_id, 0) == bumped
    assert shard.init(producer.producer_id, 5).code == FENCED
    assert shard.init(producer.producer_id + 1, 1).code == FENCED
    shard.init()
    assert shard.init(producer.producer_id, 0).code == FENCED
    assert shard.init(producer.producer_id, 1).code == FENCED


def test_a_replaced_producer_cannot_abort_the_transaction_of_the_new_one() -> None:
    shard = DrivenShard()
    old = shard.init()
    new = shard.init()
    shard.add(new, P0)
    assert shard.init(old.producer_id, old.producer_epoch).code == FENCED
    assert shard.state.state is State.ONGOING
    assert shard.init(new.producer_id, new.producer_epoch).code == CONCURRENT
    assert shard.state.state is State.PREPARE_ABORT


def test_a_repeated_bump_does_not_abort_the_transaction_that_came_after_it() -> None:
    shard = DrivenShard()
    old = shard.init()
    bumped = shard.init(old.producer_id, old.producer_epoch)
    shard.add(bumped, P0)
    assert shard.init(old.producer_id, old.producer_epoch).code == FENCED
    assert shard.state.state is State.ONGOING


def test_a_producer_whose_id_expired_gets_a_new_one() -> None:
    shard = DrivenShard()
    answer = shard.init(producer_id=5, producer_epoch=3)
    assert (answer.code, answer.producer_id, answer.producer_epoch) == (NONE, 1001, 0)


def test_exhausted_epochs_give_a_new_producer_id() -> None:
    shard = DrivenShard()
    old = shard.init_with_epoch(LAST_EPOCH)
    new = shard.init(old.producer_id, LAST_EPOCH)
    assert (new.code, new.producer_epoch) == (NONE, 0)
    assert new.producer_id != old.producer_id
    assert shard.init(old.producer_id, LAST_EPOCH) == new  # repeated
    assert shard.add(old, P0).code == MAPPING


def test_version_2_changes_the_producer_id_at_the_end_of_a_transaction() -> None:
    shard = DrivenShard()
    old = shard.init_with_epoch(LAST_EPOCH)
    shard.add(old, P0, version=2)
    assert shard.end(old, version=2).needs_producer_id
    ended = shard.end(old, version=2, new_producer_id=77)
    assert (ended.producer_id, ended.producer_epoch) == (77, 0)
    assert shard.end(old, version=2, new_producer_id=78).code == CONCURRENT
    # The producer goes on with the new id before the coordinator has it (KIP-890).
    assert shard.add(ended, P0, version=2).code == CONCURRENT
    assert shard.end(ended, version=2).code == CONCURRENT
    assert shard.init(ended.producer_id, 0).code == CONCURRENT
    (prepared,) = shard.write_markers()
    assert (prepared.producer_id, prepared.producer_epoch) == (old.producer_id, LAST_EPOCH + 1)
    assert shard.end(old, version=2) == ended
    assert shard.add(ended, P0, version=2).code == NONE


def test_fencing_uses_the_last_epoch_and_the_next_producer_gets_another_id() -> None:
    shard = DrivenShard()
    old = shard.init_with_epoch(LAST_EPOCH)
    shard.add(old, P0, version=2)
    assert shard.init().code == CONCURRENT
    (prepared,) = shard.write_markers()
    assert prepared.producer_epoch == LAST_EPOCH + 1
    new = shard.init()
    assert new.producer_id != old.producer_id
    assert new.producer_epoch == 0


def test_a_transaction_times_out() -> None:
    shard = DrivenShard()
    producer = shard.init()
    shard.pass_time(TIMEOUT_MS * 2)
    shard.add(producer, P0, version=2)
    shard.pass_time(TIMEOUT_MS - 1)
    shard.add(producer, P1, version=2)  # Only the beginning of the transaction counts.
    assert shard.state.state is State.ONGOING
    shard.pass_time(1)
    assert shard.state.state is State.PREPARE_ABORT
    assert shard.end(producer, version=2).code == CONCURRENT
    (prepared,) = shard.write_markers()
    assert shard.end(producer, version=2).code == INVALID_STATE
    assert (prepared.producer_epoch, prepared.partitions) == (1, {P0, P1})
    # Version 2: the producer may abort, and go on with the new epoch.
    assert shard.end(producer, is_commit=False, version=2).producer_epoch == 1


@pytest.mark.parametrize("version", [1, 2])
def test_a_producer_with_the_last_epoch_gets_another_id_after_a_timeout(version: int) -> None:
    shard = DrivenShard()
    producer = shard.init_with_epoch(LAST_EPOCH)
    shard.add(producer, P0, version=version)
    shard.pass_time(TIMEOUT_MS)
    shard.write_markers()
    if version == 1:
        again = shard.init(producer.producer_id, LAST_EPOCH)
        repeated = shard.init(producer.producer_id, LAST_EPOCH)
    else:
        assert shard.end(producer, is_commit=False, version=2).needs_producer_id
        again = shard.end(producer, is_commit=False, version=2, new_producer_id=77)
        repeated = shard.end(producer, is_commit=False, version=2)
    assert (again.code, again.producer_epoch) == (NONE, 0)
    assert again.producer_id != producer.producer_id
    assert repeated == again


def test_a_producer_of_version_1_goes_on_after_a_timeout_with_a_new_epoch() -> None:
    shard = DrivenShard()
    producer = shard.init()
    shard.add(producer, P0)
    shard.pass_time(TIMEOUT_MS)
    shard.write_markers()
    assert shard.end(producer).code == FENCED
    again = shard.init(producer.producer_id, producer.producer_epoch)
    assert (again.code, again.producer_epoch) == (NONE, 1)


def test_decided_transactions_do_not_time_out() -> None:
    shard = DrivenShard()
    producer = shard.init()
    shard.add(producer, P0)
    shard.end(producer)
    shard.pass_time(10 * TIMEOUT_MS)
    assert shard.state.state is State.PREPARE_COMMIT


def test_an_idle_transactional_id_expires() -> None:
    shard = DrivenShard(id_expiration_ms=1_000_000)
    producer = shard.init()
    shard.add(producer, P0)
    shard.pass_time(10)
    shard.end(producer)
    shard.write_markers()
    shard.pass_time(999_999)
    assert shard.state.state is State.COMPLETE_COMMIT
    shard.pass_time(1)
    assert shard.shard.transactions == {}
    assert shard.log[-1].value is None
    assert shard.add(producer, P0).code == MAPPING
    shard.restart()
    assert shard.shard.transactions == {}
    assert shard.shard.next_deadline_ms is None


def test_many_ids_that_expire_at_once_are_removed_in_parts() -> None:
    shard = DrivenShard(id_expiration_ms=1_000)
    for number in range(2_500):
        shard.ask(
            InitProducer(transactional_id=f"id-{number}", timeout_ms=1, new_producer_id=number)
        )
    outcome = shard.shard.expire(NOW_MS + 1_000)
    assert len(outcome.records) == 1_000
    for record in outcome.records:
        shard.shard.replay(record, NOW_MS)
    shard.pass_time(1_000)
    assert shard.shard.transactions == {}


def test_ids_expire_in_the_order_of_their_last_changes() -> None:
    shard = DrivenShard(id_expiration_ms=1_000)
    for name in ("a", "b", "c"):
        shard.ask(InitProducer(transactional_id=name, timeout_ms=1, new_producer_id=1))
        shard.pass_time(100)
    shard.ask(InitProducer(transactional_id="a", timeout_ms=1))
    shard.restart()
    shard.pass_time(850)  # 1,150 after the first changes
    assert list(shard.shard.transactions) == ["a", "c"]
    shard.pass_time(100)
    assert list(shard.shard.transactions) == ["a"]
    shard.pass_time(100)
    assert shard.shard.transactions == {}


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT])
def test_an_idle_id_takes_little_memory(state: State) -> None:
    records = [
        transaction_record(
            Transaction(
                transactional_id=f"payments-{number}",
                producer_id=10**9 + number,
                producer_epoch=300,
                timeout_ms=TIMEOUT_MS,
                state=state,
                start_ms=NOW_MS,
                update_ms=NOW_MS,
            )
        )
        for number in range(2_000)
    ]
    shard = DrivenShard().shard
    tracemalloc.start()
    try:
        for record in records * 2:
            shard.replay(record, NOW_MS)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(shard.transactions) == 2_000
    assert size / 2_000 < 700


def test_verification_says_which_partitions_are_not_in_the_transaction() -> None:
    shard = DrivenShard()
    producer = shard.init()
    assert shard.add(producer, P0, verify=True).missing == {P0}
    shard.add(producer, P0)
    records = len(shard.log)
    assert shard.add(producer, P0, P1, verify=True).missing == {P1}
    assert shard.add(producer, P0, verify=True) == Answer()
    assert len(shard.log) == records
    shard.end(producer)
    assert shard.add(producer, P0, verify=True).code == CONCURRENT
    other = Answer(producer_id=producer.producer_id, producer_epoch=9)
    assert shard.add(other, P0, verify=True).code == FENCED


def test_markers_are_handed_out_once_until_a_restart() -> None:
    shard = DrivenShard()
    waiting = shard.send(AwaitMarkers())
    assert waiting not in shard.answers
    producer = shard.init()
    shard.add(producer, P0)
    shard.end(producer)
    found = shard.answers.pop(waiting)
    assert isinstance(found, PreparedTransactions)
    assert [each.transactional_id for each in found.transactions] == [ID]
    again = shard.send(AwaitMarkers())
    assert again not in shard.answers
    # One broker writes the markers: a second request ends the first one.
    shard.send(AwaitMarkers())
    assert shard.answers.pop(again) == PreparedTransactions(transactions=())
    shard.restart()
    (prepared,) = shard.write_markers()
    assert shard.state.state is State.COMPLETE_COMMIT
    late = MarkersWritten(
        transactional_id=ID,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
    )
    assert shard.ask(late).code == INVALID_STATE


def test_bad_requests_get_kafkas_codes() -> None:
    shard = DrivenShard(timeout_ms_max=1_000)
    unknown = Answer(producer_id=1, producer_epoch=0)
    assert shard.add(unknown, P0).code == MAPPING
    assert shard.end(unknown).code == MAPPING
    for timeout_ms in (0, -1, 1_001):
        assert shard.init(timeout_ms=timeout_ms).code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    empty = {"transactional_id": "", "producer_id": 1, "producer_epoch": 0}
    for request in (
        InitProducer(transactional_id="", timeout_ms=1),
        InitProducer(transactional_id=ID, timeout_ms=1, producer_id=1),
        InitProducer(transactional_id=ID, timeout_ms=1, producer_epoch=1),
        AddPartitions(**empty, partitions=frozenset({P0})),
        EndTransaction(**empty, is_commit=True),
        DescribeTransaction(transactional_id=""),
    ):
        assert shard.ask(request).code == ErrorCode.INVALID_REQUEST
    producer = shard.init(timeout_ms=1_000)
    other = Answer(producer_id=producer.producer_id + 1, producer_epoch=0)
    assert shard.add(other, P0).code == MAPPING
    assert shard.end(other).code == MAPPING
    assert shard.add(producer).code == NONE  # no partitions: nothing begins
    assert shard.state.state is State.EMPTY


def test_a_transaction_of_ten_thousand_partitions() -> None:
    shard = DrivenShard()
    producer = shard.init()
    many = [TopicPartition("t", number) for number in range(10_000)]
    assert shard.add(producer, *many).code == NONE
    shard.restart()
    assert shard.state.partitions == set(many)
    shard.end(producer)
    assert len(shard.write_markers()[0].partitions) == 10_000


def test_transactions_are_described_and_listed() -> None:
    shard = DrivenShard()
    producer = shard.init()
    shard.add(producer, P0)
    shard.ask(InitProducer(transactional_id="other", timeout_ms=1, new_producer_id=5))
    assert shard.ask(DescribeTransaction(transactional_id=ID)).transaction == shard.state
    unknown = shard.ask(DescribeTransaction(transactional_id="x"))
    assert unknown.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    shard.now_ms += 100

    def listed(request: ListTransactions) -> list[str]:
        return [each.transactional_id for each in shard.ask(request).transactions]

    assert listed(ListTransactions()) == [ID, "other"]
    assert listed(ListTransactions(states=frozenset({"Ongoing"}))) == [ID]
    assert listed(ListTransactions(states=frozenset({"Dead"}))) == []
    assert listed(ListTransactions(producer_ids=frozenset({5}))) == ["other"]
    assert listed(ListTransactions(running_ms_min=99)) == [ID]
    assert listed(ListTransactions(running_ms_min=100)) == []


def test_a_transition_that_the_table_does_not_have_is_a_bug() -> None:
    ongoing = Transaction(
        transactional_id=ID,
        producer_id=1,
        producer_epoch=0,
        timeout_ms=1,
        update_ms=1,
        state=State.ONGOING,
    )
    with pytest.raises(AssertionError):
        begin_again(ongoing, producer_id=1, epoch=1, last_epoch=0, timeout_ms=1, now_ms=1)


def test_records_that_cannot_be_read_change_nothing() -> None:
    shard = DrivenShard()
    shard.init()
    before = dict(shard.shard.transactions)
    record = shard.log[-1]
    for broken in (b"", b"\0\7", (record.value or b"")[:-4]):
        shard.shard.replay(type(record)(key=record.key, value=broken), NOW_MS)
        shard.shard.replay(type(record)(key=broken, value=record.value), NOW_MS)
    assert shard.shard.transactions == before
