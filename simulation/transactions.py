"""Transactions under faults in virtual time: producers, a coordinator that crashes, partitions, late messages."""

import contextlib
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from simulation.transaction_partition import Attempt, SimulatedPartition
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Outcome, ReplyToken, StateRecord
from zhumq.transactions.requests import (
    AddPartitions,
    Answer,
    AwaitMarkers,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    PreparedTransactions,
    TransactionRequest,
    TransactionResponse,
)
from zhumq.transactions.shard import TransactionSettings, TransactionShard
from zhumq.transactions.transaction import Transaction

PARTITIONS: Final = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))
TIMEOUT_MS: Final = 60_000
FAULT_PROBABILITY: Final = 0.08
QUIET_ROUNDS_MAX: Final = 200
SETTINGS: Final = TransactionSettings()


class Lost(Exception):
    """A request or its answer was lost. The sender does not know which."""


class Violation(AssertionError):
    """A guarantee of transactions is broken."""


@dataclass(slots=True)
class MarkerJob:
    """The markers of one decided transaction, which one coordinator writes."""

    prepared: Transaction
    coordinator_epoch: int
    left: set[TopicPartition]


@dataclass(slots=True)
class History:
    """What the producers know."""

    # The attempts whose commit was requested, and those whose commit or abort was acknowledged.
    commits_requested: set[Attempt] = field(default_factory=set)
    committed: set[Attempt] = field(default_factory=set)
    aborted: set[Attempt] = field(default_factory=set)
    # How many records of an attempt were acknowledged, by partition.
    written: dict[Attempt, dict[TopicPartition, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )


class World:
    """One coordinator at a time, three partitions, several producers, and a network that loses, delays and repeats.

    With transaction version 1 only batches come late: there a late end, or a late marker, may end the next transaction
    of the same producer, which is why KIP-890 made version 2.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a simulation repeats
        self.now_ms = 1_000_000
        self.partitions = {each: SimulatedPartition() for each in PARTITIONS}
        self.history = History()
        self.version = self.random.choice((1, 2))
        self.has_faults = True
        self.crashes = 0
        self._records: list[StateRecord] = []  # the log of the shard
        self._late: list[Callable[[], None]] = []  # messages on their way
        self._producer_ids = 0
        self._token = 0
        self._coordinator_epoch = 0
        self._shard = TransactionShard(SETTINGS)
        self._waiting: int | None = None
        self.producers = [Producer(self, f"id-{number}", self.version) for number in range(3)]

    # Faults

    def is_unlucky(self, probability: float = FAULT_PROBABILITY) -> bool:
        return self.has_faults and self.random.random() < probability

    def deliver_later(self, message: Callable[[], None]) -> None:
        """The message is on its way."""
        self._late.append(message)

    def deliver_late(self, message: Callable[[], None]) -> None:
        """A message arrives when its sender does not wait for it any more."""
        if self.version == 2:
            self._late.append(message)

    def step(self) -> None:
        """One thing happens."""
        self.now_ms += self.random.choice((0, 1, 10, 500))
        kind = self.random.random()
        if kind < 0.6:
            self.random.choice(self.producers).step()
        elif kind < 0.8:
            self.pump_markers()
        elif kind < 0.985:
            if self._late:
                self._late.pop(self.random.randrange(len(self._late)))()
        elif kind < 0.993:
            self.crash()
        elif kind < 0.995:
            self.now_ms += TIMEOUT_MS // 2
        self._expire()

    def crash(self) -> None:
        """Another broker becomes the coordinator. The old one's messages are still on their way."""
        self.crashes += 1
        self._coordinator_epoch += 1
        self._waiting = None
        if self.version == 1:
            self._late.clear()
        self._shard = TransactionShard(SETTINGS)
        for record in self._records:
            self._shard.replay(record, self.now_ms)

    # The coordinator

    def ask(self, request: TransactionRequest) -> TransactionResponse:
        """Send a request. The coordinator may crash before it has written its decision, or after."""
        if self.is_unlucky():
            if self.is_unlucky(0.5):
                self.deliver_late(lambda: self._serve_late(request))
            raise Lost
        if self.is_unlucky():
            self.deliver_late(lambda: self._serve_late(request))
        response = self._serve(request)
        if response is None or self.is_unlucky():
            raise Lost
        return response

    def _serve_late(self, request: TransactionRequest) -> None:
        self._serve(request)

    def _serve(self, request: TransactionRequest) -> TransactionResponse | None:
        self._token += 1
        token = self._token
        if self.is_unlucky(0.01):
            self.crash()
            return None
        found = self._apply(self._shard.handle(request, ReplyToken(token), self.now_ms))
        if self.is_unlucky(0.01):
            self.crash()
            return None
        return found.get(token)

    def _apply(self, outcome: Outcome[TransactionResponse]) -> dict[int, TransactionResponse]:
        for record in outcome.records:
            self._records.append(record)
            self._shard.replay(record, self.now_ms)
        replies: dict[int, TransactionResponse] = {
            reply.token: reply.response for reply in outcome.replies
        }
        prepared = replies.pop(self._waiting, None) if self._waiting is not None else None
        if isinstance(prepared, PreparedTransactions):
            self._waiting = None
            self._write_markers(prepared)
        return replies

    def _expire(self) -> None:
        due_ms = self._shard.next_deadline_ms
        if due_ms is not None and due_ms <= self.now_ms:
            self._apply(self._shard.expire(self.now_ms))

    def new_producer_id(self) -> int:
        self._producer_ids += 1
        return self._producer_ids

    # Markers

    def pump_markers(self) -> None:
        """The coordinator's broker asks for decided transactions, if it does not wait for them already."""
        if self._waiting is None:
            self._token += 1
            self._waiting = self._token
            request = AwaitMarkers()
            self._apply(self._shard.handle(request, ReplyToken(self._waiting), self.now_ms))

    def _write_markers(self, found: PreparedTransactions) -> None:
        for prepared in found.transactions:
            job = MarkerJob(prepared, self._coordinator_epoch, set(prepared.partitions))
            for partition in prepared.partitions:
                self.deliver_later(lambda job=job, at=partition: self._write_marker(job, at))  # type: ignore[misc]

    def _write_marker(self, job: MarkerJob, at: TopicPartition) -> None:
        if self.is_unlucky():
            self.deliver_later(lambda: self._write_marker(job, at))
            return
        try:
            self.partitions[at].end(
                job.prepared,
                is_commit=job.prepared.state == "PrepareCommit",
                coordinator_epoch=job.coordinator_epoch,
            )
        except BrokerError:
            if job.coordinator_epoch == self._coordinator_epoch and at in job.left:
                raise Violation(f"{at} refused a marker of the coordinator: {job}") from None
            return
        if self.is_unlucky():
            self.deliver_late(lambda: self._write_marker(job, at))  # repeated
        job.left.discard(at)
        if not job.left:
            self._report(job)

    def _report(self, job: MarkerJob) -> None:
        if job.coordinator_epoch != self._coordinator_epoch:
            return  # Its broker is no longer the coordinator, and has no shard.
        request = MarkersWritten(
            transactional_id=job.prepared.transactional_id,
            producer_id=job.prepared.producer_id,
            producer_epoch=job.prepared.producer_epoch,
        )
        if self.is_unlucky():
            self.deliver_later(lambda: self._report(job))
        else:
            self._serve(request)

    # The end

    def settle(self) -> None:
        """No more faults: all messages arrive, and open transactions time out."""
        self.has_faults = False
        for _ in range(QUIET_ROUNDS_MAX):
            self.pump_markers()
            late, self._late = self._late, []
            for message in late:
                message()
            self.now_ms += TIMEOUT_MS // 4
            self._expire()

    def check(self) -> None:
        """Raise Violation if a guarantee is broken."""
        replayed = TransactionShard(SETTINGS)
        for record in self._records:
            replayed.replay(record, self.now_ms)
        if replayed.transactions != self._shard.transactions:
            raise Violation("the state of the shard is not that of its log")
        outcomes: dict[Attempt, set[bool]] = defaultdict(set)
        visible: dict[Attempt, dict[TopicPartition, int]] = defaultdict(lambda: defaultdict(int))
        for at, partition in self.partitions.items():
            is_open: dict[int, list[Attempt]] = defaultdict(list)
            for entry in partition.log:
                if entry.attempt is not None:
                    is_open[entry.producer_id].append(entry.attempt)
                    continue
                for attempt in is_open.pop(entry.producer_id, []):
                    outcomes[attempt].add(entry.is_commit)
                    visible[attempt][at] += entry.is_commit
            if is_open or partition.state.first_undecided_offset is not None:
                raise Violation(f"{at}: a transaction hangs, and with it the last stable offset")
        for attempt, found in outcomes.items():
            if len(found) > 1:
                raise Violation(f"torn: {attempt} is committed and aborted")
            if True in found and attempt not in self.history.commits_requested:
                raise Violation(f"aborted read: {attempt} was never committed")
            if True in found and attempt in self.history.aborted:
                raise Violation(f"aborted read: {attempt} was aborted")
        for attempt in self.history.committed:
            for at, count in self.history.written[attempt].items():
                if visible[attempt][at] != count:
                    raise Violation(f"lost write: {attempt} on {at}")


class Producer:
    """A transactional producer and its restarts: writes some records, then commits or aborts."""

    def __init__(self, world: World, transactional_id: str, version: int) -> None:
        self._world = world
        self._id = transactional_id
        self._version = version
        self._attempts = 0
        self._restart()

    def _restart(self) -> None:
        """A new instance, which knows nothing."""
        self._known: Answer | None = None
        self._bumped = Answer()  # the id and epoch to go on with after an error
        self._attempt: Attempt | None = None
        self._pending: TopicPartition | None = None  # a batch that is not acknowledged
        self._sequences: dict[TopicPartition, int] = defaultdict(int)
        self._is_commit: bool | None = None

    def step(self) -> None:
        """The next request, or the last one again."""
        if self._world.is_unlucky(0.02):
            self._restart()
        try:
            if self._known is None:
                self._init()
            elif self._attempt is None:
                self._attempts += 1
                self._attempt = Attempt(self._id, self._attempts)
            elif self._is_commit is not None:
                self._end(self._known, self._attempt, is_commit=self._is_commit)
            elif self._pending is None and self._world.random.random() < 0.3:
                self._is_commit = self._world.random.random() < 0.6
            elif self._pending is not None and self._world.random.random() < 0.2:
                self._fail()  # It gives the batch up, which may still be on its way.
            else:
                self._write(self._known, self._attempt)
        except Lost:
            pass

    def _init(self) -> None:
        answer: TransactionResponse | None = None
        new_producer_id: int | None = None
        while answer is None or (isinstance(answer, Answer) and answer.needs_producer_id):
            if answer is not None:
                new_producer_id = self._world.new_producer_id()
            answer = self._world.ask(
                InitProducer(
                    transactional_id=self._id,
                    timeout_ms=TIMEOUT_MS,
                    producer_id=self._bumped.producer_id,
                    producer_epoch=self._bumped.producer_epoch,
                    new_producer_id=new_producer_id,
                )
            )
        assert isinstance(answer, Answer)
        if answer.code == ErrorCode.NONE:
            self._restart()
            self._known = answer
        elif answer.code != ErrorCode.CONCURRENT_TRANSACTIONS:
            self._restart()

    def _write(self, producer: Answer, attempt: Attempt) -> None:
        at = self._pending or self._world.random.choice(PARTITIONS)
        partition = self._world.partitions[at]
        if self._version == 1 and not self._is_added(producer, at, verify_only=False):
            return
        self._pending = at
        sequence = self._sequences[at]
        # What the leader of the partition does (KIP-890).
        verification = partition.state.verification(producer.producer_id)
        if not self._is_added(producer, at, verify_only=self._version == 1):
            return

        def append() -> None:
            partition.append(producer, sequence, attempt, verification)

        if self._world.is_unlucky():
            self._world.deliver_later(lambda: _ignore_refusal(append))
            raise Lost
        try:
            append()
        except BrokerError:
            self._fail()
            return
        if self._world.is_unlucky():
            raise Lost
        self._sequences[at] += 1
        self._pending = None
        self._world.history.written[attempt][at] += 1

    def _is_added(self, producer: Answer, at: TopicPartition, *, verify_only: bool) -> bool:
        answer = self._world.ask(
            AddPartitions(
                transactional_id=self._id,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                partitions=frozenset({at}),
                client_version=self._version,
                verify_only=verify_only,
            )
        )
        assert isinstance(answer, Answer)
        if answer.code == ErrorCode.NONE and not answer.missing:
            return True
        if answer.code != ErrorCode.CONCURRENT_TRANSACTIONS:
            self._fail()
        return False

    def _fail(self) -> None:
        """Abort what was written, and go on with a new epoch."""
        self._is_commit = False

    def _end(self, producer: Answer, attempt: Attempt, *, is_commit: bool) -> None:
        if is_commit:
            self._world.history.commits_requested.add(attempt)
        new_producer_id: int | None = None
        while True:
            answer = self._world.ask(
                EndTransaction(
                    transactional_id=self._id,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    is_commit=is_commit,
                    client_version=self._version,
                    new_producer_id=new_producer_id,
                )
            )
            assert isinstance(answer, Answer)
            if not answer.needs_producer_id:
                break
            new_producer_id = self._world.new_producer_id()
        if answer.code == ErrorCode.CONCURRENT_TRANSACTIONS:
            return
        was_clean = self._pending is None
        if answer.code == ErrorCode.NONE:
            (self._world.history.committed if is_commit else self._world.history.aborted).add(
                attempt
            )
        sequences = self._sequences
        self._restart()
        if answer.code == ErrorCode.NONE and self._version == 2:
            self._known = answer
        elif answer.code == ErrorCode.NONE and was_clean:
            self._known, self._sequences = producer, sequences
        elif answer.code in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE):
            self._bumped = producer  # KIP-360


def _ignore_refusal(append: Callable[[], None]) -> None:
    with contextlib.suppress(BrokerError):
        append()


def run(seed: int, steps: int) -> World:
    """A whole run. Raises Violation."""
    world = World(seed)
    for _ in range(steps):
        world.step()
    world.settle()
    world.check()
    return world
