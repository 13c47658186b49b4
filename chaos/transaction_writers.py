"""Workers that write transactions: over several partitions, and as copies of what they consume."""

import contextlib
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from chaos.clients import FAST_RETRIES, ClientErrors, Progress, hanging_at
from chaos.history import Recorder
from chaos.messages import entry_of
from chaos.raw_transactional_producer import RawTransactionalProducer
from chaos.transaction_table import ABORT, COMMIT
from chaos.transactional_producer import ProducerLost, ProducerSetting, TransactionalProducer

GROUP: Final = "chaos-copiers"
WRITES_MAX: Final = 6
ABORTS: Final = 0.15  # share of transactions
REPLACED: Final = 0.04  # share of transactions during which another instance takes over
HELD: Final = 0.03  # share of transactions that stay open for a while
HELD_SECONDS_MAX: Final = 4.0
CONSUMED_MAX: Final = 10
POLL_SECONDS: Final = 0.3
ASK_SECONDS: Final = 2.0
JOIN_SECONDS_MAX: Final = 120.0
QUIET_TURNS: Final = 30  # without a record, before a copier at the end has everything


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlan:
    """What all workers of a run share."""

    bootstrap: str
    recorder: Recorder
    client_errors: ClientErrors
    progress: Progress
    seed: int


class Instance(Protocol):
    """A producer with a transactional id, of any library."""

    def take_over(self) -> None: ...

    def begin(self, partitions: Sequence[tuple[str, int]]) -> None: ...

    def end(self, word: str) -> bool: ...

    def close(self) -> None: ...


InstanceT = TypeVar("InstanceT", bound=Instance)


class TransactionWorker(ABC, Generic[InstanceT]):
    """A thread that makes one transaction after the other with one transactional id."""

    def __init__(self, name: str, plan: WorkerPlan) -> None:
        self._name = name
        self._draw = random.Random(f"{plan.seed}-{name}")  # noqa: S311 (repeatable, not secret)
        self._plan = plan
        self._setting = ProducerSetting(
            bootstrap=plan.bootstrap,
            recorder=plan.recorder,
            client_errors=plan.client_errors,
            progress=plan.progress,
            draw=self._draw,
        )
        self._stopping = threading.Event()
        self._flush_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name=f"chaos-{name}", daemon=True)
        self._has_ended = False
        self.never_answered = 0

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self, flush_seconds: float) -> None:
        self._flush_seconds = flush_seconds
        self._stopping.set()

    def join(self) -> None:
        """Wait for the end; a worker that hangs or was broken by an error counts as unanswered."""
        hanging_at(self._thread, JOIN_SECONDS_MAX)
        self.never_answered = 0 if self._has_ended else 1

    def _run(self) -> None:
        while not self._is_done():
            producer = self._new()
            try:
                producer.take_over()
                while not self._is_done():
                    producer = self._transact(producer)
            except ProducerLost:
                pass
            finally:
                producer.close()
        self._has_ended = True

    def _is_done(self) -> bool:
        return self._stopping.is_set()

    @abstractmethod
    def _new(self) -> InstanceT:
        """Another instance."""

    @abstractmethod
    def _transact(self, producer: InstanceT) -> InstanceT:
        """Make one transaction; returns the producer of the next. Raises ProducerLost."""


class TransactionWriter(TransactionWorker[Instance]):
    """Writes to several partitions at once.

    Sometimes another instance takes over, and the first one tries to commit all the same.
    """

    def __init__(
        self,
        name: str,
        plan: WorkerPlan,
        partitions: Sequence[tuple[str, int]],
        *,
        version: int = 1,
    ) -> None:
        """`version`: that of Kafka's transactions, 1 or 2."""
        super().__init__(name, plan)
        self._partitions = partitions
        self._version = version

    def _new(self) -> Instance:
        kind = RawTransactionalProducer if self._version == 2 else TransactionalProducer
        return kind(self._setting, self._name)

    def _transact(self, producer: Instance) -> Instance:
        count = self._draw.randint(1, WRITES_MAX)
        producer.begin([self._draw.choice(self._partitions) for _ in range(count)])
        fate = self._draw.random()
        if fate < REPLACED:
            return self._replace(producer)
        if fate < REPLACED + HELD:
            self._stopping.wait(self._draw.uniform(0, HELD_SECONDS_MAX))
        producer.end(ABORT if self._draw.random() < ABORTS else COMMIT)
        return producer

    def _replace(self, first: Instance) -> Instance:
        second = self._new()
        try:
            second.take_over()
        except ProducerLost:
            second.close()
            raise
        with contextlib.suppress(ProducerLost):
            first.end(COMMIT)  # the checker reports it if this has an effect
        first.close()
        return second


class TransactionCopier(TransactionWorker[TransactionalProducer]):
    """A member of a group that copies what it reads, with its offsets in the transaction.

    After it was asked to stop it goes on until it has copied everything.
    """

    def __init__(
        self, name: str, plan: WorkerPlan, source: str, targets: Sequence[tuple[str, int]]
    ) -> None:
        super().__init__(name, plan)
        self._source = source
        self._targets = targets
        self._quiet_turns = 0
        self._asked_at: float | None = None
        self._consumer = self._subscribe()

    def _run(self) -> None:
        super()._run()
        self._consumer.close()

    def _new(self) -> TransactionalProducer:
        return TransactionalProducer(self._setting, self._name)

    def _is_done(self) -> bool:
        if not self._stopping.is_set():
            return False
        if self._asked_at is None:
            self._asked_at, self._quiet_turns = time.monotonic(), 0
        is_late = time.monotonic() - self._asked_at > self._flush_seconds
        return self._quiet_turns >= QUIET_TURNS or is_late

    def _transact(self, producer: TransactionalProducer) -> TransactionalProducer:
        messages = self._read()
        if not messages:
            self._quiet_turns += 1
            return producer
        self._quiet_turns = 0
        is_committed = False
        try:
            producer.begin([self._draw.choice(self._targets) for _ in messages])
            producer.consume([entry_of(each) for each in messages], self._send_offsets(messages))
            is_committed = producer.end(ABORT if self._draw.random() < ABORTS else COMMIT)
        except KafkaException:
            producer.end(ABORT)
        finally:
            if not is_committed:
                self._rewind()
        return producer

    def _send_offsets(self, messages: list[Message]) -> Callable[[Producer], None]:
        next_offsets = {
            (each.topic() or "", each.partition() or 0): (each.offset() or 0) + 1
            for each in messages
        }
        offsets = [
            TopicPartition(topic, number, offset)
            for (topic, number), offset in next_offsets.items()
        ]

        def send(producer: Producer) -> None:
            member = self._consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(offsets, member, ASK_SECONDS)

        return send

    def _read(self) -> list[Message]:
        try:
            found = self._consumer.consume(CONSUMED_MAX, POLL_SECONDS)
        except KafkaException as exception:
            self._plan.client_errors.count(exception.args[0])
            return []
        for each in found:
            if (error := each.error()) is not None:
                self._plan.client_errors.count(error)
        return [each for each in found if each.error() is None]

    def _rewind(self) -> None:
        """Read again what was not committed: as a new member, which begins at the committed offsets."""
        self._consumer.close()
        self._consumer = self._subscribe()

    def _subscribe(self) -> Consumer:
        consumer = Consumer(
            {
                **FAST_RETRIES,
                "bootstrap.servers": self._plan.bootstrap,
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 100,
            }
        )
        consumer.subscribe([self._source])
        return consumer
