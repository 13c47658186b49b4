"""Two-phase commit (KIP-939): transactions that do not time out, and that another instance ends."""

import pytest
from transactions_support import LAST_EPOCH, P0, P1, TIMEOUT_MS, DrivenShard

from zhumq.model.errors import ErrorCode
from zhumq.transactions.requests import Answer, ListTransactions
from zhumq.transactions.transaction import EPOCH_MAX, NO_TIMEOUT_MS, TransactionState

State = TransactionState
NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING


def two_phase_shard() -> DrivenShard:
    return DrivenShard(allow_two_phase_commit=True)


def pairs(answer: Answer) -> tuple[tuple[int, int], tuple[int, int]]:
    """The producer's id and epoch, and those of the transaction that was left open."""
    assert answer.code == NONE
    return (answer.producer_id, answer.producer_epoch), (
        answer.ongoing_producer_id,
        answer.ongoing_producer_epoch,
    )


def test_two_phase_commit_has_to_be_enabled() -> None:
    shard = DrivenShard()
    refused = shard.init(two_phase=True)
    assert refused.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert shard.log == []


def test_the_transaction_of_a_two_phase_producer_does_not_time_out() -> None:
    shard = two_phase_shard()
    producer = shard.init(two_phase=True, timeout_ms=NO_TIMEOUT_MS)  # More than the maximum.
    shard.add(producer, P0, version=2)
    shard.pass_time(100 * NO_TIMEOUT_MS)
    assert shard.state.state is State.ONGOING
    shard.restart()
    shard.pass_time(100 * NO_TIMEOUT_MS)
    assert shard.state.state is State.ONGOING
    # It is listed with its age.
    (listed,) = shard.ask(ListTransactions(running_ms_min=NO_TIMEOUT_MS)).transactions
    assert shard.now_ms - listed.start_ms == 200 * NO_TIMEOUT_MS
    assert shard.end(producer, version=2).code == NONE


def test_an_idle_two_phase_id_expires_and_an_open_one_does_not() -> None:
    shard = DrivenShard(allow_two_phase_commit=True, id_expiration_ms=1_000)
    producer = shard.init(two_phase=True)
    shard.add(producer, P0, version=2)
    shard.pass_time(10_000)
    assert shard.state.state is State.ONGOING
    shard.end(producer, version=2)
    shard.write_markers()
    shard.pass_time(1_000)
    assert shard.shard.transactions == {}


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_new_instance_ends_the_transaction_that_the_old_one_prepared(
    is_commit: bool, restarts: bool
) -> None:
    shard = two_phase_shard()
    old = shard.init(two_phase=True)
    shard.add(old, P0, P1, version=2)
    new = shard.init(two_phase=True, keep=True)
    prepared = (old.producer_id, old.producer_epoch)
    assert pairs(new) == ((old.producer_id, 1), prepared)
    if restarts:
        shard.restart()
    # The old instance is fenced, and the new one can only end the transaction.
    assert shard.add(old, P0, version=2).code == FENCED
    assert shard.add(old, P0, verify=True).code == FENCED
    assert shard.end(old, version=2).code == FENCED
    assert shard.init(old.producer_id, old.producer_epoch).code == FENCED
    assert shard.add(new, P0, version=2).code == INVALID_STATE
    assert shard.add(new, P0, verify=True).code == INVALID_STATE
    assert (shard.state.state, shard.state.partitions) == (State.ONGOING, {P0, P1})
    ended = shard.end(new, is_commit=is_commit, version=2)
    assert pairs(ended) == ((old.producer_id, 2), (-1, -1))
    assert shard.end(new, is_commit=is_commit, version=2).code == CONCURRENT
    (decided,) = shard.write_markers()
    # The markers end the batches of the old instance.
    assert (decided.producer_id, decided.producer_epoch) == (old.producer_id, 1)
    assert decided.partitions == {P0, P1}
    assert shard.end(new, is_commit=is_commit, version=2) == ended  # repeated
    assert shard.end(new, is_commit=not is_commit, version=2).code == INVALID_STATE
    assert shard.add(ended, P0, version=2).code == NONE
    assert shard.end(old, version=2).code == FENCED


def test_instances_that_crash_again_and_again_keep_the_transaction() -> None:
    shard = two_phase_shard()
    old = shard.init(two_phase=True)
    shard.add(old, P0, version=2)
    prepared = (old.producer_id, old.producer_epoch)
    for epoch in range(1, 4):
        last = shard.init(two_phase=True, keep=True)
        assert pairs(last) == ((old.producer_id, epoch), prepared)
        shard.restart()
    assert shard.end(last, version=2).producer_epoch == 4
    assert shard.write_markers()[0].producer_epoch == 1
    # There is nothing left to end.
    assert pairs(shard.init(two_phase=True, keep=True)) == ((old.producer_id, 5), (-1, -1))


def test_without_keep_the_transaction_is_aborted() -> None:
    shard = two_phase_shard()
    old = shard.init(two_phase=True)
    shard.add(old, P0, version=2)
    kept = shard.init(two_phase=True, keep=True)
    # What an operator does, too: Kafka's forceTerminateTransaction is an InitProducerId.
    assert shard.init().code == CONCURRENT
    (decided,) = shard.write_markers()
    assert (decided.state, decided.producer_epoch) == (State.PREPARE_ABORT, 1)
    new = shard.init()
    assert (new.producer_id, new.producer_epoch) == (old.producer_id, 3)
    assert shard.end(kept, version=2).code == FENCED
    assert shard.state.timeout_ms == TIMEOUT_MS


def test_a_producer_that_keeps_a_decided_transaction_waits_for_its_markers() -> None:
    shard = two_phase_shard()
    old = shard.init(two_phase=True)
    shard.add(old, P0, version=2)
    shard.end(old, version=2)
    assert shard.init(two_phase=True, keep=True).code == CONCURRENT
    shard.write_markers()
    assert pairs(shard.init(two_phase=True, keep=True)) == ((old.producer_id, 2), (-1, -1))


def test_exhausted_epochs_give_the_new_instance_another_id() -> None:
    shard = two_phase_shard()
    old = shard.init_with_epoch(LAST_EPOCH)
    shard.add(old, P0, version=2)
    prepared = (old.producer_id, LAST_EPOCH)
    first = shard.init(two_phase=True, keep=True)
    assert first.producer_id != old.producer_id
    assert pairs(first) == ((first.producer_id, 0), prepared)
    shard.restart()
    second = shard.init(two_phase=True, keep=True)
    assert pairs(second) == ((first.producer_id, 1), prepared)
    assert shard.end(old, version=2).code == MAPPING
    assert shard.end(first, version=2).code == FENCED
    ended = shard.end(second, version=2)
    assert pairs(ended) == ((first.producer_id, 2), (-1, -1))
    (decided,) = shard.write_markers()
    assert (decided.producer_id, decided.producer_epoch) == (old.producer_id, EPOCH_MAX)
    assert shard.end(second, version=2) == ended
    assert shard.end(old, version=2).code == MAPPING


def test_the_end_of_a_kept_transaction_changes_the_id_if_the_epochs_of_the_new_one_are_exhausted() -> (
    None
):
    shard = two_phase_shard()
    old = shard.init_with_epoch(LAST_EPOCH - 1)
    shard.add(old, P0, version=2)
    new = shard.init(two_phase=True, keep=True)
    assert new.producer_epoch == LAST_EPOCH
    assert shard.end(new, version=2).needs_producer_id
    ended = shard.end(new, version=2, new_producer_id=77)
    assert pairs(ended) == ((77, 0), (-1, -1))
    assert shard.end(new, version=2, new_producer_id=78).code == CONCURRENT
    assert shard.add(ended, P0, version=2).code == CONCURRENT
    shard.restart()
    (decided,) = shard.write_markers()
    assert (decided.producer_id, decided.producer_epoch) == (old.producer_id, LAST_EPOCH)
    assert shard.end(new, version=2) == ended
    assert shard.add(ended, P0, version=2).code == NONE


def test_a_kept_transaction_of_another_producer_times_out() -> None:
    shard = two_phase_shard()
    old = shard.init()
    shard.add(old, P0, version=2)
    kept = shard.init(keep=True, timeout_ms=TIMEOUT_MS // 2)  # Its time is not cut.
    shard.pass_time(TIMEOUT_MS - 1)
    assert shard.state.state is State.ONGOING
    shard.pass_time(1)
    (decided,) = shard.write_markers()
    assert (decided.state, decided.producer_epoch) == (State.PREPARE_ABORT, 1)
    assert shard.end(kept, version=2).code == INVALID_STATE
    assert shard.end(kept, is_commit=False, version=2).producer_epoch == 2  # KIP-588


def test_a_prepared_transaction_does_not_time_out_when_its_new_instance_is_not_two_phase() -> None:
    shard = two_phase_shard()
    old = shard.init(two_phase=True)
    shard.add(old, P0, version=2)
    new = shard.init(keep=True)
    shard.pass_time(10 * TIMEOUT_MS)
    assert shard.end(new, version=2).code == NONE


def test_a_client_of_version_1_ends_a_kept_transaction() -> None:
    shard = two_phase_shard()
    old = shard.init(two_phase=True)
    shard.add(old, P0)
    new = shard.init(two_phase=True, keep=True)
    assert pairs(shard.end(new)) == ((old.producer_id, 1), (-1, -1))
    (decided,) = shard.write_markers()
    assert (decided.producer_epoch, decided.client_version) == (0, 0)
    assert shard.end(new).code == NONE  # repeated
    assert shard.add(new, P0).code == NONE


@pytest.mark.parametrize("epoch", [3, LAST_EPOCH])
def test_a_repeated_request_to_keep_gets_the_same_answer(epoch: int) -> None:
    shard = two_phase_shard()
    old = shard.init_with_epoch(epoch)
    shard.add(old, P0, version=2)
    kept = shard.init(old.producer_id, epoch, two_phase=True, keep=True)
    shard.restart()
    assert shard.init(old.producer_id, epoch, two_phase=True, keep=True) == kept
    other = shard.init(two_phase=True, keep=True)  # another instance
    assert other.producer_epoch == kept.producer_epoch + 1
    assert shard.init(old.producer_id, epoch, two_phase=True, keep=True).code == FENCED
