"""Bugs planted into the core of transactions and into the rules for markers. The simulation has to find each.

A mutant is a function that patches one rule away. `seed` is the first seed that finds it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from zhumq.groups.pending_offsets import PendingOffsets
from zhumq.model.errors import ErrorCode
from zhumq.storage.producer_state import ProducerEntry, ProducerState
from zhumq.transactions import shard, transaction
from zhumq.transactions.persisted import transaction_record
from zhumq.transactions.requests import Answer
from zhumq.transactions.shard import TransactionShard
from zhumq.transactions.transaction import Transaction, TransactionState

Patch = Callable[[object, str, Any], None]
State = TransactionState
PREPARED = transaction.PREPARED


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMutant:
    """A planted bug, and a seed that finds it."""

    name: str
    plant: Callable[[Patch], None]
    seed: int


TRANSACTION_MUTANTS: list[TransactionMutant] = []


def planted(seed: int) -> Callable[[Callable[[Patch], None]], None]:
    def register(plant: Callable[[Patch], None]) -> None:
        TRANSACTION_MUTANTS.append(TransactionMutant(name=plant.__name__, plant=plant, seed=seed))

    return register


# Partitions: who may begin a transaction, which markers count


@planted(17)
def allow_after_a_marker(patch: Patch) -> None:
    """A verification counts although a marker came since."""
    allow = ProducerState.allow_transaction
    patch(
        ProducerState,
        "allow_transaction",
        lambda self, producer_id, epoch, _, **more: allow(
            self, producer_id, epoch, self.verification(producer_id), **more
        ),
    )


@planted(17)
def begin_without_permission(patch: Patch) -> None:
    """A batch begins a transaction that no coordinator has confirmed since the last marker."""
    patch(ProducerState, "_check_begins", lambda *_: None)


@planted(265)
def accept_markers_of_the_same_epoch(patch: Patch) -> None:
    """A late marker of version 2 ends the next transaction."""
    check = ProducerState.check_marker
    patch(
        ProducerState,
        "check_marker",
        lambda self, header, marker, _: check(self, header, marker, 1),
    )


@planted(0)
def accept_markers_of_an_older_epoch(patch: Patch) -> None:
    """A marker that is late by several transactions ends the open one."""
    patch(ProducerState, "check_marker", lambda *_: None)


@planted(0)
def accept_markers_of_an_older_coordinator(patch: Patch) -> None:
    """A coordinator that was replaced ends transactions."""
    check = ProducerState.check_marker
    patch(
        ProducerState,
        "check_marker",
        lambda self, header, marker, version: check(
            self, header, replace(marker, coordinator_epoch=2**31 - 1), version
        ),
    )


@planted(24)
def a_marker_does_not_fence(patch: Patch) -> None:
    """A partition does not take over the epoch of a marker."""
    end = ProducerState.end_transaction

    def mutant(self: ProducerState, header: Any, marker: Any, offset: int) -> Any:
        epoch = self.producers.get(header.producer_id, ProducerEntry()).epoch
        ended = end(self, header, marker, offset)
        self.producers[header.producer_id].epoch = epoch
        return ended

    patch(ProducerState, "end_transaction", mutant)


# InitProducerId


@planted(0)
def a_new_instance_has_the_old_epoch(patch: Patch) -> None:
    """InitProducerId does not raise the epoch."""
    begin = transaction.begin_again
    patch(
        shard,
        "begin_again",
        lambda before, **facts: begin(
            before, **{**facts, "epoch": min(facts["epoch"], before.producer_epoch)}
        ),
    )


@planted(17)
def a_new_instance_does_not_abort(patch: Patch) -> None:
    """An instance without two-phase commit takes the open transaction over."""
    init = TransactionShard._init
    patch(
        TransactionShard,
        "_init",
        lambda self, request, turn: init(self, replace(request, keep_prepared=True), turn),
    )


@planted(0)
def a_new_instance_does_not_wait_for_the_markers(patch: Patch) -> None:
    """InitProducerId takes a decided transaction for one that has ended."""
    init = TransactionShard._init

    def mutant(self: TransactionShard, request: Any, turn: Any) -> Answer:
        current = self.transactions.get(request.transactional_id)
        if current is not None and current.state in PREPARED:
            self.transactions[request.transactional_id] = transaction.complete(current, turn.now_ms)
        return init(self, request, turn)

    patch(TransactionShard, "_init", mutant)


@planted(35)
def a_replaced_producer_is_taken_for_a_repeated_one(patch: Patch) -> None:
    """A new instance leaves the last epoch, so the old one goes on with the epoch of the new one (KIP-360)."""
    begin = transaction.begin_again
    patch(
        shard,
        "begin_again",
        lambda before, **facts: begin(before, **{**facts, "last_epoch": before.producer_epoch}),
    )


@planted(0)
def fence_without_a_new_epoch(patch: Patch) -> None:
    """The abort of a replaced or dead producer has the producer's own epoch."""
    fence = transaction.fence
    patch(
        shard,
        "fence",
        lambda before, now_ms, **more: fence(before, now_ms, **more)._replace(
            producer_epoch=before.producer_epoch, next_producer_epoch=before.next_producer_epoch
        ),
    )


@planted(0)
def a_client_gets_the_last_epoch(patch: Patch) -> None:
    """No epoch is left for fencing."""
    patch(transaction, "is_exhausted", lambda epoch: epoch >= transaction.EPOCH_MAX)


@planted(450)
def go_on_with_the_epoch_of_a_fence(patch: Patch) -> None:
    """A producer whose last transaction timed out gets the last epoch, which is kept for fencing."""
    next_epoch = shard.next_epoch

    def mutant(request: Any, current: Transaction) -> Any:
        bump = next_epoch(request, current)
        is_new = request.producer_id < 0
        if bump is None or is_new or request.producer_epoch != current.last_producer_epoch:
            return bump
        return bump._replace(epoch=current.client_producer_epoch, is_exhausted=False)

    patch(shard, "next_epoch", mutant)


@planted(0)
def a_new_id_keeps_the_old_one(patch: Patch) -> None:
    """Exhausted epochs begin at 0 again, with the same producer id."""
    begin = transaction.begin_again
    patch(
        shard,
        "begin_again",
        lambda before, **facts: begin(before, **{**facts, "producer_id": before.producer_id}),
    )


# AddPartitionsToTxn


@planted(0)
def write_to_a_decided_transaction(patch: Patch) -> None:
    """Partitions join a transaction whose markers are being written."""
    add = TransactionShard._add

    def mutant(self: TransactionShard, request: Any, turn: Any) -> Answer:
        answer = add(self, request, turn)
        return Answer() if answer.code == ErrorCode.CONCURRENT_TRANSACTIONS else answer

    patch(TransactionShard, "_add", mutant)


@planted(3)
def add_for_a_fenced_producer(patch: Patch) -> None:
    """AddPartitionsToTxn does not look at the epoch."""
    _with_the_current_epoch(patch, "_add")


@planted(55)
def confirm_every_partition(patch: Patch) -> None:
    """A verification does not look at the partitions."""
    add = TransactionShard._add
    patch(
        TransactionShard,
        "_add",
        lambda self, request, turn: replace(add(self, request, turn), missing=frozenset()),
    )


@planted(0)
def forget_the_first_partitions(patch: Patch) -> None:
    """Partitions replace those that are in the transaction already."""
    add = transaction.add_partitions
    patch(
        shard,
        "add_partitions",
        lambda before, partitions, *facts: add(before, partitions, *facts)._replace(
            partitions=partitions
        ),
    )


@planted(0)
def keep_the_partitions(patch: Patch) -> None:
    """The next transaction has the partitions of the last one, and is not begun on them."""
    complete = transaction.complete
    patch(
        shard,
        "complete",
        lambda before, now_ms: complete(before, now_ms)._replace(partitions=before.partitions),
    )


@planted(15)
def a_kept_transaction_takes_partitions(patch: Patch) -> None:
    """An instance that is to end a prepared transaction writes to it."""
    add = TransactionShard._add

    def mutant(self: TransactionShard, request: Any, turn: Any) -> Answer:
        answer = add(self, request, turn)
        return Answer() if answer.code == ErrorCode.INVALID_TXN_STATE else answer

    patch(TransactionShard, "_add", mutant)


# EndTxn


@planted(0)
def keep_the_epoch(patch: Patch) -> None:
    """The end of a transaction of version 2 does not raise the epoch."""
    prepare = transaction.prepare_end
    patch(
        shard,
        "prepare_end",
        lambda before, **facts: prepare(before, **facts)._replace(
            producer_epoch=before.producer_epoch
        ),
    )


@planted(2)
def decide_twice(patch: Patch) -> None:
    """An end with the other outcome replaces a decision whose markers are being written."""
    end = TransactionShard._end

    def mutant(self: TransactionShard, request: Any, turn: Any) -> Answer:
        current = self.transactions.get(request.transactional_id)
        if current is not None and current.state is State.PREPARE_COMMIT and not request.is_commit:
            turn.write(current._replace(state=State.PREPARE_ABORT))
            return Answer(producer_id=current.producer_id, producer_epoch=current.producer_epoch)
        return end(self, request, turn)

    patch(TransactionShard, "_end", mutant)


@planted(0)
def end_for_a_fenced_producer(patch: Patch) -> None:
    """EndTxn does not look at the epoch."""
    _with_the_current_epoch(patch, "_end")


@planted(17)
def confirm_the_other_outcome(patch: Patch) -> None:
    """A repeated end is confirmed, whatever was decided."""
    answer_ended = shard._answer_ended

    def mutant(current: Transaction, request: Any, *, is_done: bool) -> Answer | None:
        found = answer_ended(current, request, is_done=is_done)
        if found is not None and found.code and current.state is not State.EMPTY:
            return Answer(producer_id=current.producer_id, producer_epoch=current.producer_epoch)
        return found

    patch(shard, "_answer_ended", mutant)


@planted(20)
def commit_nothing(patch: Patch) -> None:
    """The end of a transaction that was never begun, or is forgotten, is confirmed."""
    end = TransactionShard._end

    def mutant(self: TransactionShard, request: Any, turn: Any) -> Answer:
        answer = end(self, request, turn)
        if answer.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return Answer(producer_id=request.producer_id, producer_epoch=request.producer_epoch)
        return answer

    patch(TransactionShard, "_end", mutant)


@planted(3600)
def confirm_without_a_record(patch: Patch) -> None:
    """A coordinator that was replaced takes a commit of version 1 for that of an earlier transaction."""
    end = TransactionShard._end

    def mutant(self: TransactionShard, request: Any, turn: Any) -> Answer:
        answer = end(self, request, turn)
        current = self.transactions.get(request.transactional_id)
        if turn.states and turn.states[0][1] is current:
            turn.records.clear()
            turn.states.clear()
        return answer

    patch(TransactionShard, "_end", mutant)


# Markers


@planted(0)
def forget_the_decisions(patch: Patch) -> None:
    """After a restart the decided transactions are not handed out again."""
    replay = TransactionShard.replay

    def mutant(self: TransactionShard, record: Any, now_ms: int) -> None:
        replay(self, record, now_ms)
        if self._waiter is None:
            self._prepared.clear()

    patch(TransactionShard, "replay", mutant)


@planted(0)
def hand_out_an_id_once(patch: Patch) -> None:
    """The second transaction of an id is not handed out."""
    change = TransactionShard._change

    def mutant(self: TransactionShard, transaction: Any) -> None:
        handed_out = set(self._handed_out)
        change(self, transaction)
        self._handed_out |= handed_out

    patch(TransactionShard, "_change", mutant)


@planted(200)
def complete_by_an_older_report(patch: Patch) -> None:
    """A late report about the markers of an earlier transaction completes this one."""
    complete = TransactionShard._complete

    def mutant(self: TransactionShard, request: Any, turn: Any) -> Answer:
        current = self.transactions.get(request.transactional_id)
        if current is not None:
            request = replace(
                request,
                producer_id=current.producer_id,
                producer_epoch=current.producer_epoch,
            )
        return complete(self, request, turn)

    patch(TransactionShard, "_complete", mutant)


@planted(0)
def complete_at_once(patch: Patch) -> None:
    """A decision counts as ended before the markers are written."""
    outcome = shard._Turn.outcome

    def mutant(self: Any) -> Any:
        for each in self.prepared:
            self.records.append(transaction_record(transaction.complete(each, self.now_ms)))
        return outcome(self)

    patch(shard._Turn, "outcome", mutant)


# Timeouts, expiry


@planted(4)
def never_time_out(patch: Patch) -> None:
    """The transaction of a dead producer stays open."""
    set_deadline = TransactionShard._set_deadline

    def mutant(self: TransactionShard, changed: Transaction) -> None:
        set_deadline(self, changed)
        if changed.state is State.ONGOING:
            self._deadlines.cancel(changed.transactional_id)

    patch(TransactionShard, "_set_deadline", mutant)


@planted(3)
def no_timeout_after_a_restart(patch: Patch) -> None:
    """A coordinator times out only what it has begun itself."""
    set_deadline = TransactionShard._set_deadline

    def mutant(self: TransactionShard, changed: Transaction) -> None:
        if self._waiter is not None or changed.state is not State.ONGOING:
            set_deadline(self, changed)

    patch(TransactionShard, "_set_deadline", mutant)


@planted(0)
def commit_at_the_timeout(patch: Patch) -> None:
    """A transaction whose time is up is committed."""
    fence = transaction.fence
    patch(
        shard,
        "fence",
        lambda *facts, **more: fence(*facts, **more)._replace(state=State.PREPARE_COMMIT),
    )


@planted(1)
def expire_an_open_id(patch: Patch) -> None:
    """An id whose transaction is decided is removed."""
    change = TransactionShard._change

    def mutant(self: TransactionShard, changed: Transaction) -> None:
        change(self, changed)
        if changed.state in PREPARED:
            self._idle[changed.transactional_id] = None

    patch(TransactionShard, "_change", mutant)


@planted(0)
def expire_an_id_in_use(patch: Patch) -> None:
    """The expiration is counted from the start of the last transaction."""
    expiry_ms = TransactionShard._expiry_ms
    patch(
        TransactionShard,
        "_expiry_ms",
        lambda self, idle: expiry_ms(
            self, idle._replace(update_ms=idle.update_ms if idle.start_ms < 0 else idle.start_ms)
        ),
    )


# Offsets of groups


@planted(0)
def an_abort_commits_offsets(patch: Patch) -> None:
    """The marker of a commit and that of an abort do the same."""
    end = PendingOffsets.end
    patch(
        PendingOffsets,
        "end",
        lambda self, producer_id, *, is_commit: end(self, producer_id, is_commit=True),
    )


@planted(0)
def aborted_offsets_stay_pending(patch: Patch) -> None:
    """The next commit of the producer commits them."""
    end = PendingOffsets.end
    patch(
        PendingOffsets,
        "end",
        lambda self, producer_id, *, is_commit: (
            end(self, producer_id, is_commit=True) if is_commit else []
        ),
    )


# Two-phase commit (KIP-939)


@planted(1)
def two_phase_transactions_time_out(patch: Patch) -> None:
    """A prepared transaction is aborted after a while."""
    set_deadline = TransactionShard._set_deadline
    patch(
        TransactionShard,
        "_set_deadline",
        lambda self, changed: set_deadline(
            self, changed._replace(timeout_ms=min(changed.timeout_ms, 60_000))
        ),
    )


@planted(51)
def a_kept_transaction_times_out(patch: Patch) -> None:
    """The timeout of a new instance counts for the prepared transaction that it found."""
    keep = transaction.keep_open
    patch(
        shard,
        "keep_open",
        lambda before, **facts: keep(before, **facts)._replace(timeout_ms=facts["timeout_ms"]),
    )


@planted(1)
def abort_what_is_to_be_kept(patch: Patch) -> None:
    """InitProducerId aborts a prepared transaction."""
    init = TransactionShard._init
    patch(
        TransactionShard,
        "_init",
        lambda self, request, turn: init(self, replace(request, keep_prepared=False), turn),
    )


@planted(0)
def keep_without_fencing(patch: Patch) -> None:
    """The instance that is to end a transaction has the epoch of the one that wrote it."""
    keep = transaction.keep_open
    patch(
        shard,
        "keep_open",
        lambda before, **facts: keep(before, **{**facts, "epoch": before.client_producer_epoch}),
    )


@planted(0)
def forget_whose_batches_they_are(patch: Patch) -> None:
    """The pair of the new instance replaces that of the open transaction."""
    keep = transaction.keep_open
    patch(
        shard,
        "keep_open",
        lambda before, **facts: keep(before, **facts)._replace(
            producer_id=facts["producer_id"],
            producer_epoch=facts["epoch"],
            next_producer_id=-1,
            next_producer_epoch=-1,
        ),
    )


@planted(3)
def mark_with_the_new_pair(patch: Patch) -> None:
    """The markers of a kept transaction have the id and epoch of the instance that ends it."""
    prepare = transaction.prepare_end
    patch(
        shard,
        "prepare_end",
        lambda before, **facts: (ended := prepare(before, **facts))._replace(
            producer_id=ended.client_producer_id, producer_epoch=ended.client_producer_epoch
        ),
    )


@planted(0)
def begin_at_zero_after_a_kept_transaction(patch: Patch) -> None:
    """The end of a kept transaction forgets how far the epochs of the new instance were."""
    complete = transaction.complete
    patch(
        shard,
        "complete",
        lambda before, now_ms: (
            complete(before, now_ms)._replace(producer_epoch=0)
            if before.is_kept
            else complete(before, now_ms)
        ),
    )


def _with_the_current_epoch(patch: Patch, name: str) -> None:
    """Patch a handler to take the epoch of each request for the current one."""
    handle: Callable[..., Answer] = getattr(TransactionShard, name)

    def mutant(self: TransactionShard, request: Any, turn: Any) -> Answer:
        current = self.transactions.get(request.transactional_id)
        if current is not None and current.state not in PREPARED:
            request = replace(request, producer_epoch=current.client_producer_epoch)
        return handle(self, request, turn)

    patch(TransactionShard, name, mutant)
