"""The exactly-once reader of a worker: rounds of tasks, each committed in one transaction with its outputs."""

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from zhumq.client import dead_letters
from zhumq.client.errors import ClusterFailed, OutcomeUnknown, TransactionAborted
from zhumq.client.outputs import HeaderPair, Output, Outputs, Work
from zhumq.client.security import ClientSecurity
from zhumq.client.task import Task
from zhumq.client.transactional_consumer import TransactionalConsumer
from zhumq.client.transactional_producer import TransactionalProducer

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.1
STOP_SECONDS_MAX: Final = 30.0
ROUND_TASKS_MAX: Final = 16  # of each processor
ABORTED_ROUNDS_MAX: Final = 10  # one after the other
RETRY_SECONDS: Final = 0.1  # doubled for each aborted round
# A transaction is open only while it is committed: the handlers have returned before it begins.
TRANSACTION_TIMEOUT_MS: Final = 10_000


class Round:
    """Tasks that are committed together: the origin of each of them."""

    def __init__(self, tasks: Sequence[Task], handler: Callable[[Task, Outputs], None]) -> None:
        self._tasks = tasks
        self._handler = handler
        self._changed = threading.Condition()
        self._left = len(tasks)
        self._outputs: dict[tuple[int, int], list[Output]] = {}  # by partition and offset
        self.is_abandoned = False

    def handle(self, task: Task) -> None:
        if self.is_abandoned:
            return
        outputs = Outputs()
        self._handler(task, outputs)
        self._outputs[task.partition, task.offset] = outputs.messages

    def send_to_dead_letters(self, task: Task, headers: Sequence[HeaderPair]) -> None:
        """Write the message to the dead-letter topic, in the same transaction."""
        topic = dead_letters.topic_of(task.topic)
        self._outputs[task.partition, task.offset] = [
            Output(topic, task.value, task.key, headers, None, None)
        ]

    def mark_done(self, task: Task) -> None:
        del task
        with self._changed:
            self._left -= 1
            self._changed.notify_all()

    def mark_abandoned(self, task: Task) -> None:
        del task
        self.abandon()

    def abandon(self) -> None:
        """Commit nothing of the round: its tasks are read again."""
        with self._changed:
            self.is_abandoned = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Whether all tasks are handled, or the round is abandoned, within this time."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_abandoned or not self._left, seconds)

    def outputs(self) -> list[Output]:
        """What the handlers have sent, in the order of the tasks. For a task that was skipped, nothing."""
        return [
            output
            for task in self._tasks
            for output in self._outputs.get((task.partition, task.offset), ())
        ]


class RoundReader:
    """Reads a round of tasks, has it handled, and commits outputs and positions in one transaction."""

    def __init__(
        self,
        topic: str,
        handler: Callable[[Task, Outputs], None],
        queues: "Sequence[queue.Queue[Work | None]]",
        *,
        group: str,
        bootstrap: str,
        start: Literal["earliest", "latest"],
        stopping: threading.Event,
        security: ClientSecurity,
        settings: Mapping[str, Any],
    ) -> None:
        self._handler = handler
        self._queues = queues
        self._stopping = stopping
        # Not the same for two members, nor for two runs: the group's generation fences (KIP-447).
        self._producer = TransactionalProducer(
            bootstrap,
            transactional_id=f"{group}-{uuid.uuid4()}",
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            security=security,
        )
        self._consumer = TransactionalConsumer(
            topic,
            group=group,
            bootstrap=bootstrap,
            start=start,
            security=security,
            settings=settings,
        )
        self._aborted = 0

    def run(self) -> None:
        tasks_max = ROUND_TASKS_MAX * len(self._queues)
        with self._producer, self._consumer:
            while not self._stopping.is_set():
                try:
                    # Before the consumer looks up its positions: an unknown outcome is decided by this.
                    self._producer.connect()
                except ClusterFailed as error:
                    logger.warning("no transactions yet: %s", error)
                    continue
                tasks = self._consumer.poll(POLL_SECONDS, messages_max=tasks_max)
                if tasks:
                    self._work(Round(tasks, self._handler), tasks)

    def _work(self, current: Round, tasks: Sequence[Task]) -> None:
        for task in tasks:
            key = task.key if task.key is not None else task.partition
            chosen = self._queues[hash(key) % len(self._queues)]
            while not current.is_abandoned:
                try:
                    chosen.put(Work(current, task), timeout=POLL_SECONDS)
                    break
                except queue.Full:  # of tasks of an abandoned round
                    self._keep_alive(current)
        stop_at: float | None = None
        while not current.wait(POLL_SECONDS):
            self._keep_alive(current)
            if self._stopping.is_set():
                stop_at = stop_at or time.monotonic() + STOP_SECONDS_MAX
                if time.monotonic() >= stop_at:
                    current.abandon()
        self._consumer.resume()
        if current.is_abandoned:
            self._consumer.rewind()
        else:
            self._commit(current)

    def _keep_alive(self, current: Round) -> None:
        self._consumer.keep_alive()
        if self._consumer.has_lost:
            current.abandon()

    def _commit(self, current: Round) -> None:
        try:
            with self._producer.transaction(self._consumer) as transaction:
                for each in current.outputs():
                    transaction.send(
                        each.topic,
                        each.value,
                        key=each.key,
                        headers=each.headers,
                        partition=each.partition,
                        timestamp_ms=each.timestamp_ms,
                    )
        except (OutcomeUnknown, ClusterFailed) as error:
            logger.warning("a round is read again, unless it is committed: %s", error)
            self._consumer.rewind()  # also where the transaction could not begin
        except TransactionAborted as error:
            self._aborted += 1
            if self._aborted >= ABORTED_ROUNDS_MAX:
                raise
            logger.warning("a round is read again: %s", error)
            self._stopping.wait(RETRY_SECONDS * 2 ** (self._aborted - 1))
        else:
            self._aborted = 0
