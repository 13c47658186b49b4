"""The state of a transactional producer: epochs, sequences, what may follow what."""

import pytest

from zhumq.client.errors import ProducerFenced, TransactionAborted, TransactionMisuse
from zhumq.client.group_metadata import GroupMetadata
from zhumq.client.transaction_core import (
    NEVER_MS,
    Phase,
    PreparedState,
    TransactionCore,
    Verdict,
    verdict_of,
    worst,
)
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.protocol.messages.producers import InitProducerIdResponse
from zhumq.protocol.messages.transactions import EndTxnResponse

A = TopicPartition("a", 0)
B = TopicPartition("b", 1)


def core(*, version: int = 2, two_phase: bool = False) -> TransactionCore:
    made = TransactionCore("id", timeout_ms=1_000, two_phase=two_phase)
    made.version = version
    return made


def ready(*, version: int = 2, two_phase: bool = False) -> TransactionCore:
    made = core(version=version, two_phase=two_phase)
    made.on_init(InitProducerIdResponse(producer_id=7, producer_epoch=3))
    return made


def opened(*, version: int = 2, two_phase: bool = False) -> TransactionCore:
    made = ready(version=version, two_phase=two_phase)
    made.begin()
    return made


def test_a_new_producer_asks_for_an_id_and_then_for_the_next_epoch() -> None:
    producer = core()
    request = producer.init_request()
    assert (request.producer_id, request.producer_epoch) == (-1, -1)
    assert request.transaction_timeout_ms == 1_000
    producer.on_init(InitProducerIdResponse(producer_id=7, producer_epoch=3))
    assert producer.phase is Phase.READY
    again = producer.init_request()
    assert (again.producer_id, again.producer_epoch) == (7, 3)


def test_a_two_phase_producer_asks_for_transactions_that_do_not_time_out() -> None:
    request = core(two_phase=True).init_request(keep_prepared=True)
    assert (request.enable2_pc, request.keep_prepared_txn) == (True, True)
    assert request.transaction_timeout_ms == NEVER_MS


def test_an_empty_transaction_asks_the_coordinator_nothing() -> None:
    producer = opened()
    assert producer.end_request(is_commit=True) is None
    producer.on_end(None)
    assert producer.phase is Phase.READY
    assert producer.producer_epoch == 3


def test_with_version_2_the_end_raises_the_epoch_and_sequences_begin_again() -> None:
    producer = opened()
    assert [producer.take_sequence(A, 5), producer.take_sequence(A, 1)] == [0, 5]
    assert producer.take_sequence(B, 2) == 0
    assert producer.add_request([A, B]) is None
    request = producer.end_request(is_commit=True)
    assert request is not None
    assert (request.producer_id, request.producer_epoch, request.committed) == (7, 3, True)
    producer.on_end(EndTxnResponse(producer_id=7, producer_epoch=4))
    assert producer.phase is Phase.READY
    producer.begin()
    assert producer.take_sequence(A, 1) == 0
    assert producer.producer_epoch == 4


def test_with_version_1_partitions_are_added_once_and_sequences_go_on() -> None:
    producer = opened(version=1)
    assert producer.take_sequence(A, 5) == 0
    request = producer.add_request([A, B])
    assert request is not None
    assert {(topic.name, *topic.partitions) for topic in request.v3_and_below_topics} == {
        ("a", 0),
        ("b", 1),
    }
    producer.on_added([A, B])
    assert producer.add_request([A]) is None
    producer.on_end(EndTxnResponse(producer_id=-1, producer_epoch=-1))
    producer.begin()
    assert producer.take_sequence(A, 1) == 5
    assert producer.add_request([A]) is not None


def test_with_version_1_an_abort_of_given_up_batches_needs_the_next_epoch() -> None:
    producer = opened(version=1)
    producer.add_request([A])
    producer.fail("a batch was given up", is_sequence_unsure=True)
    producer.on_end(EndTxnResponse(producer_id=-1, producer_epoch=-1))
    assert producer.phase is Phase.NEW
    producer.on_init(InitProducerIdResponse(producer_id=7, producer_epoch=4))
    producer.begin()
    assert producer.take_sequence(A, 1) == 0


def test_groups_are_added_once_and_only_with_version_1() -> None:
    assert opened().add_offsets_request("g") is None
    producer = opened(version=1)
    assert producer.add_offsets_request("g") is not None
    producer.on_group_added("g")
    assert producer.add_offsets_request("g") is None
    assert producer.add_offsets_request("h") is not None


def test_offsets_carry_the_membership_of_the_consumer() -> None:
    metadata = GroupMetadata(group="g", generation=5, member="m", instance="i")
    request = opened().offsets_request(metadata, {A: 10, B: 20})
    assert (request.generation_id, request.member_id, request.group_instance_id) == (5, "m", "i")
    assert {
        (topic.name, each.partition_index, each.committed_offset)
        for topic in request.topics
        for each in topic.partitions
    } == {("a", 0, 10), ("b", 1, 20)}


def test_a_failed_transaction_takes_nothing_more() -> None:
    producer = opened()
    producer.fail("the disk is full")
    producer.fail("a second reason")
    with pytest.raises(TransactionAborted, match="the disk is full"):
        producer.check_open()
    producer.on_end(None)
    producer.begin()
    producer.check_open()


def test_calls_out_of_order_are_refused() -> None:
    producer = ready()
    with pytest.raises(TransactionMisuse, match="has no open transaction"):
        producer.check_open()
    producer.begin()
    with pytest.raises(TransactionMisuse, match="has an open transaction"):
        producer.begin()
    with pytest.raises(TransactionMisuse, match="two_phase"):
        producer.prepare()
    with pytest.raises(TransactionMisuse, match="complete"):
        producer.is_commit(None)


def test_a_fenced_producer_stays_fenced() -> None:
    producer = ready()
    assert "'id'" in str(producer.on_fenced())
    for call in (producer.begin, producer.check_open, lambda: producer.is_commit(None)):
        with pytest.raises(ProducerFenced):
            call()


def test_a_prepared_transaction_is_committed_only_by_its_own_state() -> None:
    producer = opened(two_phase=True)
    producer.add_request([A])
    state = producer.prepare()
    assert str(state) == "7:3"
    assert producer.is_commit(state)
    assert producer.is_commit(PreparedState.parse("7:3"))
    assert not producer.is_commit(PreparedState.parse("7:2"))
    assert not producer.is_commit(None)
    assert producer.end_request(is_commit=True) is not None
    with pytest.raises(TransactionMisuse, match="has a prepared transaction"):
        producer.begin()


def test_after_a_restart_the_state_that_the_coordinator_reports_decides() -> None:
    producer = core(two_phase=True)
    producer.on_init(
        InitProducerIdResponse(
            producer_id=7,
            producer_epoch=4,
            ongoing_txn_producer_id=7,
            ongoing_txn_producer_epoch=3,
        )
    )
    assert producer.phase is Phase.PREPARED
    assert producer.is_commit(PreparedState(producer_id=7, producer_epoch=3))
    assert not producer.is_commit(PreparedState(producer_id=7, producer_epoch=4))
    request = producer.end_request(is_commit=True)
    assert request is not None
    assert request.producer_epoch == 4  # its own
    producer.on_end(EndTxnResponse(producer_id=7, producer_epoch=5))
    producer.begin()


@pytest.mark.parametrize("text", ["", "7", ":", "7:", "a:1", "7:-1", "7:1:2", "٣:1"])
def test_a_text_that_is_no_prepared_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PRODUCER_ID:EPOCH"):
        PreparedState.parse(text)


def test_what_error_codes_mean() -> None:
    assert verdict_of(0) is Verdict.DONE
    assert verdict_of(ErrorCode.DUPLICATE_SEQUENCE_NUMBER) is Verdict.DONE
    assert verdict_of(ErrorCode.NOT_COORDINATOR) is Verdict.RETRY
    assert verdict_of(ErrorCode.CONCURRENT_TRANSACTIONS) is Verdict.RETRY
    assert verdict_of(ErrorCode.PRODUCER_FENCED) is Verdict.FENCED
    assert verdict_of(ErrorCode.INVALID_PRODUCER_EPOCH) is Verdict.FENCED
    assert verdict_of(ErrorCode.TRANSACTION_ABORTABLE) is Verdict.ABORT
    assert verdict_of(ErrorCode.ILLEGAL_GENERATION) is Verdict.ABORT
    assert verdict_of(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED) is Verdict.REFUSED
    assert verdict_of(12_345) is Verdict.ABORT
    assert worst([]) == 0
    assert worst([0, 16, 0]) == ErrorCode.NOT_COORDINATOR
    assert worst([16, 90, 22]) == ErrorCode.PRODUCER_FENCED
