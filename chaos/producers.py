"""Idempotent producers that send unique values and record every answer."""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chaos.clients import FAST_RETRIES, ClientErrors, Progress, partition_name
from chaos.history import Action, Entry, Phase, Recorder
from chaos.messages import content

BEAT_SECONDS: Final = 0.01
UNANSWERED_MAX: Final = 5_000  # of one producer; then it waits for answers
PADDING_BYTES_MAX: Final = 200
FLUSH_SECONDS: Final = 0.05
PURGE_SECONDS: Final = 1.0
# Longer than any fault: the library retries a send until it is answered.
DELIVERY_TIMEOUT_MS: Final = 300_000
# After these errors a message was certainly not stored. After any other the outcome is unknown.
_CERTAINLY_NOT: Final = frozenset(
    {
        KafkaError._QUEUE_FULL,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPlan:
    """Settings of one producer."""

    bootstrap: str
    partitions: Sequence[tuple[str, int]]
    per_second: int
    seed: int
    logger: logging.Logger


class ChaosProducer:
    """One producer in its own thread. After a fatal error a new producer replaces it."""

    def __init__(
        self,
        plan: ProducerPlan,
        recorder: Recorder,
        client_errors: ClientErrors,
        progress: Progress,
    ) -> None:
        self._plan = plan
        self._progress = progress
        self._recorder = recorder
        self._client_errors = client_errors
        self._draw = random.Random(plan.seed)  # noqa: S311 (repeatable, not secret)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-producer", daemon=True)
        self._process = 0
        self._is_fatal = False
        self._flush_seconds = 0.0
        # The library's callbacks only append answers and errors, which are handled later: it calls back
        # even while a fatal error is being raised, when no Python code can run safely.
        self._answers: deque[tuple[Entry, int, KafkaError | None, Message]] = deque()
        self._errors: deque[KafkaError] = deque()
        self._unanswered = 0
        self.never_answered = 0  # counted when the producer ends

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self, flush_seconds: float) -> None:
        """Stop sending, and wait up to `flush_seconds` for missing answers."""
        self._flush_seconds = flush_seconds
        self._stopping.set()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._process = self._recorder.new_process()
            self._is_fatal = False
            producer = self._connect()
            self._send_until_stopped(producer)
            self._end(producer)

    def _connect(self) -> Producer:
        return Producer(
            {
                **FAST_RETRIES,
                "bootstrap.servers": self._plan.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "request.timeout.ms": 5_000,
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
                "error_cb": self._errors.append,
                # The log shows why a producer took a new epoch, the usual cause of duplicates.
                "debug": "eos",
                "log_level": 7,
            },
            logger=self._plan.logger,
        )

    def _send_until_stopped(self, producer: Producer) -> None:
        owed = 0.0
        before = time.monotonic()
        while not self._stopping.is_set() and not self._is_fatal:
            self._serve(lambda: producer.poll(BEAT_SECONDS))
            now = time.monotonic()
            # No burst after a wait: missed sends are dropped.
            owed = min(owed + (now - before) * self._plan.per_second, self._plan.per_second / 10)
            before = now
            while owed >= 1 and self._unanswered < UNANSWERED_MAX:
                owed -= 1
                self._send(producer)

    def _serve(self, call: Callable[[], int | None]) -> int:
        """Run the library's callbacks, then handle the answers and errors they appended."""
        left = 0
        try:
            left = call() or 0
        except KafkaException as exception:
            self._errors.append(exception.args[0])
        except SystemError:
            pass  # See `_answers`: a callback ran while a fatal error was being raised.
        while self._answers:
            self._answered(*self._answers.popleft())
        while self._errors:
            self._failed(self._errors.popleft())
        return left

    def _send(self, producer: Producer) -> None:
        topic, partition = self._draw.choice(self._plan.partitions)
        value = self._recorder.new_value()
        entry = Entry(partition_name(topic, partition), None, value)
        padding = self._draw.randrange(PADDING_BYTES_MAX)
        answers = self._answers

        def answered(error: KafkaError | None, message: Message) -> None:
            answers.append((entry, began_ms, error, message))

        began_ms = self._recorder.write(self._process, Phase.INVOKE, Action.SEND, [entry])
        self._unanswered += 1
        try:
            producer.produce(topic, content(value, padding), None, partition, answered)
        except BufferError:
            self._refused(entry, "queue full")
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            self._refused(entry, error.name())
            self._errors.append(error)

    def _refused(self, entry: Entry, note: str) -> None:
        """Record a send that the library did not accept."""
        self._unanswered -= 1
        self._recorder.write(self._process, Phase.FAIL, Action.SEND, [entry], note=note)

    def _answered(
        self, entry: Entry, began_ms: int, error: KafkaError | None, message: Message
    ) -> None:
        self._unanswered -= 1
        if error is None:
            offset = message.offset()
            known = offset if offset is not None and offset >= 0 else None
            acknowledged = entry._replace(offset=known)
            self._recorder.write(self._process, Phase.OK, Action.SEND, [acknowledged])
            self._progress.acknowledged(entry.partition, began_ms)
            return
        self._client_errors.add(error, "producer")
        phase = Phase.FAIL if error.code() in _CERTAINLY_NOT else Phase.INFO
        self._recorder.write(self._process, phase, Action.SEND, [entry], note=error.name())

    def _failed(self, error: KafkaError) -> None:
        self._client_errors.add(error, "producer")
        if error.fatal():
            self._is_fatal = True

    def _end(self, producer: Producer) -> None:
        """Wait for missing answers; a send without one stays unknown."""
        if not self._is_fatal:
            # In short steps, so that answers are recorded as they arrive.
            deadline = time.monotonic() + self._flush_seconds
            left = 1
            while left and time.monotonic() < deadline and not self._is_fatal:
                left = self._serve(lambda: producer.flush(FLUSH_SECONDS))
            self.never_answered = left
        producer.purge(in_queue=True, in_flight=True, blocking=False)
        self._serve(lambda: producer.flush(PURGE_SECONDS))
        self._unanswered = 0  # A send without an answer by now never gets one.


def count_epoch_bumps(log: Path) -> int:
    """How often the library logs that a producer takes a new epoch."""
    if not log.exists():
        return 0
    with open(log) as lines:
        return sum("-> DrainBump" in line for line in lines)
