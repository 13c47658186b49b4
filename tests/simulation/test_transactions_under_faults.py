"""Transactions under faults: the guarantees hold, and planted bugs break them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from simulation.transactions import Violation, run

from zhumq.model.errors import ErrorCode
from zhumq.storage.producer_state import ProducerState
from zhumq.transactions import shard, transaction
from zhumq.transactions.requests import Answer
from zhumq.transactions.shard import TransactionShard
from zhumq.transactions.transaction import TransactionState

STEPS = 500
SEEDS = 40
MUTANT_SEEDS = 150  # in which every planted bug has to be found


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_the_guarantees_of_transactions_hold_under_faults(first: int) -> None:
    committed = aborted = crashes = 0
    for seed in range(first, first + 10):
        world = run(seed, STEPS)
        committed += len(world.history.committed)
        aborted += len(world.history.aborted)
        crashes += world.crashes
    # The runs are worth something.
    assert committed > 50
    assert aborted > 30
    assert crashes > 10


def allow_after_a_marker(patch: pytest.MonkeyPatch) -> None:
    """A verification counts although a marker came since."""
    allow = ProducerState.allow_transaction
    patch.setattr(
        ProducerState,
        "allow_transaction",
        lambda self, producer_id, epoch, _: allow(
            self, producer_id, epoch, self.verification(producer_id)
        ),
    )


def accept_markers_of_the_same_epoch(patch: pytest.MonkeyPatch) -> None:
    """A late marker of version 2 ends the next transaction."""
    check = ProducerState.check_marker
    patch.setattr(
        ProducerState,
        "check_marker",
        lambda self, header, marker, _: check(self, header, marker, 1),
    )


def keep_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """The end of a transaction of version 2 does not raise the epoch."""
    prepare = transaction.prepare_end
    patch.setattr(
        shard,
        "prepare_end",
        lambda before, **facts: replace(
            prepare(before, **facts), producer_epoch=before.producer_epoch
        ),
    )


def decide_twice(patch: pytest.MonkeyPatch) -> None:
    """An end with the other outcome replaces a decision whose markers are being written."""
    end = TransactionShard._end

    def mutant(self: TransactionShard, request: Any, turn: Any) -> Answer:
        current = self.transactions.get(request.transactional_id)
        if current is not None and current.state is TransactionState.PREPARE_COMMIT:
            turn.write(replace(current, state=TransactionState.PREPARE_ABORT))
            return Answer(producer_id=current.producer_id, producer_epoch=current.producer_epoch)
        return end(self, request, turn)

    patch.setattr(TransactionShard, "_end", mutant)


def forget_the_decisions(patch: pytest.MonkeyPatch) -> None:
    """After a restart the decided transactions are not handed out again."""
    replay = TransactionShard.replay

    def mutant(self: TransactionShard, record: Any, now_ms: int) -> None:
        replay(self, record, now_ms)
        if self._waiter is None:
            self._prepared.clear()

    patch.setattr(TransactionShard, "replay", mutant)


def write_to_a_decided_transaction(patch: pytest.MonkeyPatch) -> None:
    """Partitions join a transaction whose markers are being written."""
    add = TransactionShard._add

    def mutant(self: TransactionShard, request: Any, turn: Any) -> Answer:
        answer = add(self, request, turn)
        if answer.code == ErrorCode.CONCURRENT_TRANSACTIONS:
            return Answer()
        return answer

    patch.setattr(TransactionShard, "_add", mutant)


def never_time_out(patch: pytest.MonkeyPatch) -> None:
    """The transaction of a dead producer stays open."""
    set_deadline = TransactionShard._set_deadline

    def mutant(self: TransactionShard, changed: Any) -> None:
        if changed.state is not TransactionState.ONGOING:
            set_deadline(self, changed)

    patch.setattr(TransactionShard, "_set_deadline", mutant)


def commit_at_the_timeout(patch: pytest.MonkeyPatch) -> None:
    """A transaction whose time is up is committed."""
    fence = transaction.fence
    patch.setattr(
        shard,
        "fence",
        lambda *facts, **more: replace(
            fence(*facts, **more), state=TransactionState.PREPARE_COMMIT
        ),
    )


@pytest.mark.parametrize(
    "plant",
    [
        allow_after_a_marker,
        accept_markers_of_the_same_epoch,
        keep_the_epoch,
        decide_twice,
        forget_the_decisions,
        write_to_a_decided_transaction,
        never_time_out,
        commit_at_the_timeout,
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(MUTANT_SEEDS):
        try:
            run(seed, STEPS)
        except (Violation, AssertionError):
            return
    pytest.fail(f"no seed finds it: {plant.__doc__}")
