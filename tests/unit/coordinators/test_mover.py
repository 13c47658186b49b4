"""The mover: records and their marks in one transaction, whatever the coordinator and the partitions answer."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from zhumq.coordinators.mover import BATCH_BYTES_MAX, MoveFailed, Mover, is_refused
from zhumq.model.errors import (
    BrokerError,
    ErrorCode,
    MessageTooLarge,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Producer
from zhumq.net.channel import PeerRefused
from zhumq.records.batch import Record, batches

ID = "staging-0"
STAGING = TopicPartition("staging", 0)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NONE = ErrorCode.NONE
Verify = Callable[[], Awaitable[ErrorCode]]


class FakeTransactions:
    """A coordinator and partitions that answer as they were set to, once for each entry, and then well."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.epoch = 0
        self.init_answers: list[ErrorCode | BrokerError] = []
        self.end_answers: list[ErrorCode | BrokerError] = []
        self.refusals: dict[TopicPartition, BrokerError] = {}
        self.appended: dict[TopicPartition, bytes] = {}

    async def init(self, transactional_id: str, timeout_ms: int) -> tuple[ErrorCode, Producer]:
        assert (transactional_id, timeout_ms) == (ID, 1_000)
        self.calls.append("init")
        return self._answer(self.init_answers)

    async def append(
        self, transactional_id: str, producer: Producer, partition: TopicPartition, batches: bytes
    ) -> None:
        assert (transactional_id, producer) == (ID, Producer(5, self.epoch))
        self.calls.append(f"append {partition}")
        await asyncio.sleep(0)
        if partition in self.refusals:
            raise self.refusals[partition]
        self.appended[partition] = batches

    async def join(
        self, transactional_id: str, producer: Producer, partition: TopicPartition
    ) -> ErrorCode:
        assert (transactional_id, producer, partition) == (ID, Producer(5, self.epoch), STAGING)
        self.calls.append("join")
        return NONE

    async def end(
        self, transactional_id: str, producer: Producer, *, is_commit: bool
    ) -> tuple[ErrorCode, Producer]:
        assert (transactional_id, producer) == (ID, Producer(5, self.epoch))
        self.calls.append("commit" if is_commit else "abort")
        return self._answer(self.end_answers)

    def _answer(self, answers: list[ErrorCode | BrokerError]) -> tuple[ErrorCode, Producer]:
        answer = answers.pop(0) if answers else NONE
        if isinstance(answer, BrokerError):
            raise answer
        if answer is NONE:
            self.epoch += 1
        return answer, Producer(5, self.epoch)


class Marks:
    """Marks records, or refuses to."""

    def __init__(self, transactions: FakeTransactions, answer: ErrorCode = NONE) -> None:
        self._transactions = transactions
        self._answer = answer

    async def __call__(self, _producer: Producer, verify: Verify) -> ErrorCode:
        assert await verify() is NONE
        self._transactions.calls.append("mark")
        return self._answer


def mover_of(transactions: FakeTransactions) -> Mover:
    return Mover(transactions, transactional_id=ID, staging=STAGING, timeout_ms=1_000)


def records(*values: bytes) -> list[Record]:
    return [Record(timestamp=1, value=value) for value in values]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def test_records_are_appended_and_marked_before_the_commit() -> None:
    transactions = FakeTransactions()
    mover = mover_of(transactions)

    async def scenario() -> None:
        await mover.move({P0: records(b"a"), P1: records(b"b")}, Marks(transactions))
        await mover.move({P0: records(b"c")}, Marks(transactions))

    run(scenario())
    first = ["init", "append t-0", "append t-1", "join", "mark", "commit"]
    assert transactions.calls == [*first, "append t-0", "join", "mark", "commit"]
    (batch,) = batches(transactions.appended[P0])
    assert (batch.header.producer_id, batch.header.producer_epoch) == (5, 2)
    assert (batch.header.base_sequence, batch.header.is_transactional) == (0, True)


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (NotLeaderOrFollower("moved"), False),
        (MessageTooLarge("large"), True),
        (PeerRefused(ErrorCode.MESSAGE_TOO_LARGE, "large"), True),
        (PeerRefused(ErrorCode.NOT_ENOUGH_REPLICAS, "few"), False),
    ],
)
def test_a_partition_that_takes_nothing_aborts_the_move(error: BrokerError, refused: bool) -> None:
    transactions = FakeTransactions()
    transactions.refusals[P1] = error
    mover = mover_of(transactions)

    async def scenario() -> None:
        with pytest.raises(MoveFailed) as failed:
            await mover.move({P0: records(b"a"), P1: records(b"b")}, Marks(transactions))
        assert failed.value.errors == {P1: error}
        assert is_refused(error) is refused
        await mover.move({P0: records(b"a")}, Marks(transactions))

    run(scenario())
    assert transactions.calls[:4] == ["init", "append t-0", "append t-1", "abort"]
    assert transactions.calls[4:] == ["append t-0", "join", "mark", "commit"]


def test_records_that_cannot_be_marked_are_not_committed() -> None:
    transactions = FakeTransactions()
    mover = mover_of(transactions)

    async def scenario() -> None:
        assert not mover.is_unsettled
        with pytest.raises(MoveFailed, match="NOT_COORDINATOR"):
            await mover.move({P0: records(b"a")}, Marks(transactions, ErrorCode.NOT_COORDINATOR))
        # They may be marked all the same, until the markers are written: a new instance waits for those.
        assert mover.is_unsettled
        await mover.begin()
        assert not mover.is_unsettled

    run(scenario())
    assert transactions.calls[-3:] == ["mark", "abort", "init"]


def test_a_commit_without_an_answer_is_sent_again_and_never_aborted() -> None:
    transactions = FakeTransactions()
    transactions.end_answers = [
        RequestTimedOut("no answer"),
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ]
    run(mover_of(transactions).move({P0: records(b"a")}, Marks(transactions)))
    assert transactions.calls[-4:] == ["commit"] * 4


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ],
)
def test_a_producer_that_was_replaced_begins_again(code: ErrorCode) -> None:
    transactions = FakeTransactions()
    transactions.end_answers = [code]
    transactions.init_answers = [
        NONE,
        RequestTimedOut("no answer"),
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ]
    mover = mover_of(transactions)

    async def scenario() -> None:
        await mover.move({P0: records(b"a")}, Marks(transactions))
        await mover.move({P0: records(b"a")}, Marks(transactions))

    run(scenario())
    assert transactions.calls[5:] == ["init"] * 3 + ["append t-0", "join", "mark", "commit"]


def test_a_move_that_is_cancelled_is_aborted_by_the_next_instance() -> None:
    transactions = FakeTransactions()
    mover = mover_of(transactions)

    async def scenario() -> None:
        marking = asyncio.Event()

        async def never(_producer: Producer, _verify: Verify) -> ErrorCode:
            marking.set()
            await asyncio.Event().wait()
            raise AssertionError("not reached")

        moving = asyncio.create_task(mover.move({P0: records(b"a")}, never))
        await marking.wait()
        moving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await moving
        await mover.move({P0: records(b"a")}, Marks(transactions))

    run(scenario())
    assert transactions.calls[2:] == ["init", "append t-0", "join", "mark", "commit"]


def test_large_moves_are_split_into_batches_with_consecutive_sequences() -> None:
    transactions = FakeTransactions()
    value = bytes(BATCH_BYTES_MAX // 3)
    run(mover_of(transactions).move({P0: records(*[value] * 5)}, Marks(transactions)))
    headers = [each.header for each in batches(transactions.appended[P0])]
    assert [each.records_count for each in headers] == [2, 2, 1]
    assert [each.base_sequence for each in headers] == [0, 2, 4]
