"""The driver's side of the exactly-once sink: records the decision about a batch, then ends its transactions."""

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, TypeVar

from zhumq.client.errors import OutcomeUnknown, ProducerFenced, TransactionAborted
from zhumq.client.transaction_core import PreparedState
from zhumq.client.transactional_producer import TransactionalProducer
from zhumq.spark.cluster_client import ClusterClient
from zhumq.spark.decisions import (
    NO_BATCH,
    Decision,
    DecisionLog,
    ensure_decisions,
    ids_of,
    log_id,
    read_decisions,
)
from zhumq.spark.options import WriteOptions
from zhumq.spark.rows import WriteFailed

TRIES_MAX: Final = 5
THREADS_MAX: Final = 8
ENDED: Final = "ended"  # the run that ends what the last run of a query has left open
WRITE_PREFIX: Final = "write-"  # of the groups of batch writes

logger = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch of a run, and the transactions of the task attempts that Spark has chosen."""

    group: str
    run: str
    number: int
    chosen: tuple[tuple[str, PreparedState], ...] = ()


class Held:
    """An open transaction that no other process can end as long as this one has not lost it.

    To hold it fences its producer and all earlier holders; it changes nothing of the transaction.
    """

    def __init__(self, options: WriteOptions, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._producer = TransactionalProducer(
            options.bootstrap,
            transactional_id=transactional_id,
            two_phase=True,
            security=options.security.security(),
        )
        try:
            self.state = self._producer.connect(keep_prepared=True)
        except BaseException:
            self._producer.close()
            raise

    def end(self, *, is_commit: bool) -> None:
        """Raises ProducerFenced if another process holds it now."""
        self._producer.complete(self.state if is_commit else None)

    def close(self) -> None:
        self._producer.close()


def settle(options: WriteOptions, batch: Batch, *, is_commit: bool) -> None:
    """Commit a batch, or roll it back if nothing is decided about it; and end what other attempts left open.

    Two rules make this safe beside a driver that was taken for dead. A decision is recorded only while the recorder
    holds all of its transactions. A transaction is rolled back only by a driver that held it before it recorded.
    """
    for tries_left in reversed(range(TRIES_MAX)):
        with DecisionLog(options, batch.group) as log, ExitStack() as stack:
            try:
                held, decision = _decide(options, batch, log, stack, is_commit=is_commit)
            except (ProducerFenced, TransactionAborted, OutcomeUnknown) as error:
                # Another driver came in between, or the outcome has to be looked up.
                logger.warning("batch %d of %s: %s", batch.number, batch.group, error)
                if not tries_left:
                    raise
                continue
            _end_all(options, held, decision)
        # An attempt may have begun between the list and the record. Later ones see the decision themselves.
        if not _open_ids(options, batch.group):
            return
    logger.warning("batch %d of %s is done; transactions of it are open", batch.number, batch.group)


def _decide(
    options: WriteOptions, batch: Batch, log: DecisionLog, stack: ExitStack, *, is_commit: bool
) -> tuple[list[Held], Decision]:
    last = log.open()
    if last is not None and (last.run != batch.run or last.batch >= batch.number):
        finish(options, last.chosen)
    is_decided = last is not None and last.batch >= batch.number
    is_new = is_commit and bool(batch.chosen) and not is_decided
    if is_new:
        decision = Decision(run=batch.run, batch=batch.number, chosen=batch.chosen)
    else:
        decision = last or Decision(run=batch.run)
    names = _open_ids(options, batch.group)
    if is_new:
        names.update(name for name, _ in batch.chosen)

    def hold(name: str) -> Held:
        held = Held(options, name)
        stack.callback(held.close)
        return held

    held = _in_threads(hold, sorted(names))
    if is_new:
        _check_whole(held, decision)
    if held:
        log.record(decision)
    return held, decision


def finish(options: WriteOptions, chosen: Sequence[tuple[str, PreparedState]]) -> None:
    """Commit decided transactions that are still open. This is safe for any process, at any time."""
    _in_threads(lambda each: _finish_one(options, *each), chosen)


def end_open(options: WriteOptions, group: str) -> None:
    """End what a query has left open that does not run again: commit what is decided, roll the rest back."""
    if _open_ids(options, group):
        # Someone may have deleted it: what it does not know of is rolled back.
        ensure_decisions(options.bootstrap, security=options.security.security())
        settle(options, Batch(group=group, run=ENDED, number=NO_BATCH), is_commit=False)


def finish_writes(options: WriteOptions) -> None:
    """Finish the batch writes whose driver died after their decision."""
    for group, decision in read_decisions(options).items():
        if group.startswith(WRITE_PREFIX):
            finish(options, decision.chosen)
            forget(options, group)


def forget(options: WriteOptions, group: str) -> None:
    """Remove the decision about a batch write that is finished."""
    try:
        with DecisionLog(options, group) as log:
            if log.open() is not None:
                log.remove()
    except (ProducerFenced, TransactionAborted, OutcomeUnknown) as error:
        logger.warning("the decision of %s is removed later: %s", group, error)


def _open_ids(options: WriteOptions, group: str) -> set[str]:
    with ClusterClient(options.bootstrap, security=options.security.security()) as client:
        return set(client.open_transactions(ids_of(group))) - {log_id(group)}


def _check_whole(held: Iterable[Held], decision: Decision) -> None:
    states = {each.transactional_id: each.state for each in held}
    for name, state in decision.chosen:
        if states[name] != state:
            raise WriteFailed(
                f"the prepared transaction {state} of {name} was ended before batch {decision.batch}"
                " was decided; nothing of the batch is visible"
            )


def _end_all(options: WriteOptions, held: Sequence[Held], decision: Decision) -> None:
    chosen = dict(decision.chosen)

    def end(each: Held) -> None:
        if each.state is None:
            return
        is_commit = chosen.get(each.transactional_id) == each.state
        try:
            each.end(is_commit=is_commit)
        except (ProducerFenced, OutcomeUnknown):
            if is_commit:
                _finish_one(options, each.transactional_id, each.state)

    # First what readers wait for.
    _in_threads(end, sorted(held, key=lambda each: each.transactional_id not in chosen))


def _finish_one(options: WriteOptions, name: str, state: PreparedState) -> None:
    for attempt in range(TRIES_MAX):
        try:
            held = Held(options, name)
            try:
                if held.state == state:
                    held.end(is_commit=True)
                return
            finally:
                held.close()
        except (ProducerFenced, OutcomeUnknown):
            if attempt == TRIES_MAX - 1:
                raise


def _in_threads(call: Callable[[T], R], each: Sequence[T]) -> list[R]:
    if len(each) <= 1:
        return [call(one) for one in each]
    with ThreadPoolExecutor(min(THREADS_MAX, len(each))) as pool:
        return list(pool.map(call, each))
