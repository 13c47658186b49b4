"""Producers of the simulation of transactions: they write some records, then commit or abort, and crash."""

import contextlib
import copy
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from simulation.transaction_history import Attempt, Instance, Pair
from simulation.transaction_partition import DATA, GROUP, Batch
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.transactions.requests import AddPartitions, Answer, EndTransaction, InitProducer
from zhumq.transactions.transaction import TransactionState

if TYPE_CHECKING:
    from simulation.transactions import World

TIMEOUT_MS: Final = 30_000
CRASH_PROBABILITY: Final = 0.02
COMMIT_PROBABILITY: Final = 0.6


class Lost(Exception):
    """A request or its answer was lost. The sender does not know which."""


class Producer:
    """A transactional producer and its restarts, each with a transaction version of its own."""

    is_two_phase = False

    def __init__(self, world: "World", transactional_id: str, versions: tuple[int, ...]) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self._versions = versions
        self.is_zombie = False
        self.restart()

    def restart(self) -> None:
        """A new instance, which knows nothing. A zombie is not started again."""
        if self.is_zombie:
            self.world.zombies.remove(self)
            return
        self.instance = Instance(self.transactional_id, self.world.next_number())
        self.version = self.world.random.choice(self._versions)
        self.bumped = Answer()  # the id and epoch to go on with after an error
        self._forget()

    def _forget(self) -> None:
        self.known: Answer | None = None
        self._begin_attempt()
        self._sequences: dict[TopicPartition, int] = defaultdict(int)

    def _begin_attempt(self) -> None:
        self.attempt: Attempt | None = None
        self.pending: TopicPartition | None = None  # a batch that is not acknowledged
        self.is_commit: bool | None = None

    def crash(self) -> None:
        """Another instance is started. This one is dead, or only cut off for a while."""
        if not self.is_zombie and self.known is not None and self.world.is_unlucky(0.4):
            zombie = copy.copy(self)
            zombie.is_zombie = True
            zombie._sequences = self._sequences.copy()
            self.world.zombies.append(zombie)
        self.restart()

    def step(self) -> None:
        """The next request, or the last one again."""
        if self.world.is_unlucky(CRASH_PROBABILITY):
            self.crash()
            return
        with contextlib.suppress(Lost):
            if self.known is None:
                self._init()
            elif self.attempt is None:
                self.attempt = Attempt(self.transactional_id, self.world.next_number())
            elif self.is_commit is not None:
                self._end(self.known, self.attempt, is_commit=self.is_commit)
            elif self.pending is None and self.world.random.random() < 0.3:
                self._decide(self.known, self.attempt)
            elif self.pending is not None and self.world.random.random() < 0.2:
                self.is_commit = False  # It gives the batch up, which may still be on its way.
            else:
                self._write(self.known, self.attempt)

    def _decide(self, _producer: Answer, _attempt: Attempt) -> None:
        self.is_commit = self.world.random.random() < COMMIT_PROBABILITY

    # InitProducerId

    def _init(self) -> None:
        answer = self.world.ask_with_id(
            InitProducer(
                transactional_id=self.transactional_id,
                timeout_ms=TIMEOUT_MS,
                producer_id=self.bumped.producer_id,
                producer_epoch=self.bumped.producer_epoch,
                enable_two_phase_commit=self.is_two_phase,
                keep_prepared=self.is_two_phase,
            )
        )
        if answer.code == ErrorCode.NONE:
            self._begin(answer)
        elif answer.code != ErrorCode.CONCURRENT_TRANSACTIONS:
            self.restart()

    def _begin(self, answer: Answer) -> None:
        self.world.history.give(_pair(answer), self.instance)
        self._forget()
        self.bumped = Answer()
        self.known = answer

    # Produce, TxnOffsetCommit

    def _write(self, producer: Answer, attempt: Attempt) -> None:
        at = self.pending or self.world.random.choice((*DATA, GROUP))
        if self.version == 1 and not self._is_added(producer, at):
            return
        self.pending = at
        sequence = self._sequences[at]
        batch = Batch(producer, self.version, at, sequence, attempt)
        if batch.can_be_late and self.world.is_unlucky():
            # It is delayed on its way to the leader of the partition.
            self.world.deliver_late(lambda: _ignore(lambda: self._serve(batch)))
            raise Lost
        try:
            is_done = self._serve(batch)
        except BrokerError:
            self.is_commit = False
            return
        if self.world.is_unlucky():
            raise Lost
        if is_done:
            self._sequences[at] += 1
            self.pending = None
            self.world.history.written[attempt][at] += 1

    def _serve(self, batch: Batch) -> bool:
        """What the leader of the partition does (KIP-890). False if the producer has to ask again."""
        partition = self.world.partitions[batch.at]
        verification = partition.state.verification(batch.producer.producer_id)
        answer = self._add(
            batch.producer, batch.at, version=batch.version, verify_only=batch.version == 1
        )
        if answer.code == ErrorCode.CONCURRENT_TRANSACTIONS:
            return False
        if answer.code != ErrorCode.NONE or answer.missing:
            raise BrokerError("the coordinator refused the partition")

        def append() -> None:
            partition.append(batch, verification)

        if batch.can_be_late and self.world.is_unlucky():
            # The leader is slow: it writes the batch when much else has happened.
            self.world.deliver_late(lambda: _ignore(append))
            raise Lost
        append()
        return True

    def _is_added(self, producer: Answer, at: TopicPartition) -> bool:
        answer = self._add(producer, at, version=self.version, verify_only=False)
        if answer.code not in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS):
            self.is_commit = False
        return answer.code == ErrorCode.NONE

    def _add(
        self, producer: Answer, at: TopicPartition, *, version: int, verify_only: bool
    ) -> Answer:
        return self.world.ask(
            AddPartitions(
                transactional_id=self.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                partitions=frozenset({at}),
                client_version=version,
                verify_only=verify_only,
            )
        )

    # EndTxn

    def _end(self, producer: Answer, attempt: Attempt, *, is_commit: bool) -> None:
        history = self.world.history
        if is_commit:
            history.commits_requested.add(attempt)
        answer = self.world.ask_with_id(
            EndTransaction(
                transactional_id=self.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                is_commit=is_commit,
                client_version=self.version,
            )
        )
        if answer.code == ErrorCode.CONCURRENT_TRANSACTIONS:
            return
        if answer.code == ErrorCode.NONE:
            (history.committed if is_commit else history.aborted).add(attempt)
            if self.version == 2:
                self._begin(answer)
                return
            if self.pending is None:
                self._begin_attempt()
                return
        if answer.code in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE):
            self._forget()
            self.bumped = producer  # KIP-360
        else:
            self.restart()


class TwoPhaseProducer(Producer):
    """A producer whose transactions a database decides on. A new instance ends what the old one has prepared."""

    is_two_phase = True

    def _begin_attempt(self) -> None:
        super()._begin_attempt()
        self._recovered: bool | None = None  # whether to commit what an earlier instance prepared

    def _begin(self, answer: Answer) -> None:
        super()._begin(answer)
        if answer.ongoing_producer_id < 0:
            return
        ongoing = (answer.ongoing_producer_id, answer.ongoing_producer_epoch)
        self.attempt = self.world.attempt_of(ongoing)
        decision = self.world.history.decisions.get(self.transactional_id)
        self._recovered = decision == (self.attempt, ongoing)
        if not self.world.is_unlucky(0.2):
            self.is_commit = self._recovered  # Otherwise it tries to write first, which is refused.

    def _write(self, producer: Answer, attempt: Attempt) -> None:
        if self._recovered is None:
            self.world.attempts.setdefault(_pair(producer), attempt)
            super()._write(producer, attempt)
            return
        try:
            super()._write(producer, attempt)
        finally:
            self.is_commit = self._recovered

    def _decide(self, producer: Answer, attempt: Attempt) -> None:
        if self._recovered is not None:
            self.is_commit = self._recovered
            return
        super()._decide(producer, attempt)
        if self.is_zombie:
            self.is_commit = False  # The database has another session already.
        if self.is_commit:
            self.world.history.decide(attempt, _pair(producer))
        if self.world.is_unlucky(0.3):
            self.crash()

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to end."""
        return self.known is not None and self.attempt is None

    def finish(self) -> None:
        """Recover, and end what is open: one request."""
        if self.is_finished:
            return
        if self.known is not None and self.is_commit is None:
            self.restart()
        self.step()


class Operator:
    """Ends two-phase transactions by hand: commits what the database has decided, aborts the others, and by mistake some
    that are decided.

    An InitProducerId that aborts is not used: it may arrive late, and abort the next transaction.
    """

    def __init__(self, world: "World") -> None:
        self._world = world

    def end(self, transactional_id: str) -> None:
        """Look at a transaction, and end it. Whatever is lost is left as it is."""
        found = self._world.coordinator.shard.transactions.get(transactional_id)
        if found is None or found.state is not TransactionState.ONGOING:
            return
        pair = (found.producer_id, found.producer_epoch)
        attempt = self._world.attempt_of(pair)
        decision = self._world.history.decisions.get(transactional_id)
        is_commit = decision == (attempt, pair) and not self._world.is_unlucky(0.2)
        if not is_commit:
            self._world.history.forced.add(attempt)
        with contextlib.suppress(Lost):
            self._end(attempt, pair, is_commit=is_commit)

    def _end(self, attempt: Attempt, pair: Pair, *, is_commit: bool) -> None:
        world = self._world
        kept = world.ask_with_id(
            InitProducer(
                transactional_id=attempt.transactional_id,
                timeout_ms=TIMEOUT_MS,
                keep_prepared=True,
            )
        )
        if kept.code != ErrorCode.NONE:
            return
        world.history.give(_pair(kept), Instance("operator", world.next_number()))
        is_another = (kept.ongoing_producer_id, kept.ongoing_producer_epoch) != pair
        if is_another or world.is_unlucky(0.3):  # The operator's computer is switched off.
            return
        answer = world.ask_with_id(
            EndTransaction(
                transactional_id=attempt.transactional_id,
                producer_id=kept.producer_id,
                producer_epoch=kept.producer_epoch,
                is_commit=is_commit,
                client_version=2,
            )
        )
        if answer.code == ErrorCode.NONE:
            (world.history.committed if is_commit else world.history.aborted).add(attempt)


def _ignore(deliver: Callable[[], object]) -> None:
    """Deliver a message whose sender does not wait for the answer any more."""
    with contextlib.suppress(BrokerError, Lost):
        deliver()


def _pair(answer: Answer) -> Pair:
    return answer.producer_id, answer.producer_epoch
