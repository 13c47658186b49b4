"""One librdkafka producer with a transactional id, whose transactions are recorded from begin to end."""

import contextlib
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from chaos.clients import FAST_RETRIES, ClientErrors, Progress
from chaos.history import Action, Entry, Phase, Recorder
from chaos.messages import content
from chaos.transaction_table import ABORT, COMMIT

# Longer than most faults; some transactions of a run are aborted by the coordinator.
TRANSACTION_TIMEOUT_MS: Final = 10_000
CALL_SECONDS: Final = 2.0  # then the library says that it goes on, and the call is repeated
GIVE_UP_SECONDS: Final = 60.0
PADDING_BYTES_MAX: Final = 200
PURGE_SECONDS: Final = 1.0
# The library prints that an instance was fenced, as the workload intends.
_QUIET: Final = logging.getLogger("chaos-transactions")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


class ProducerLost(Exception):
    """The producer cannot go on; another instance has to take over its transactional id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSetting:
    """What all transactional producers of a run share."""

    bootstrap: str
    recorder: Recorder
    client_errors: ClientErrors
    progress: Progress
    draw: random.Random


class TransactionalProducer:
    """One instance, which is one process of the history."""

    def __init__(self, setting: ProducerSetting, transactional_id: str) -> None:
        self._setting = setting
        self._transactional_id = transactional_id
        self._began_ms = 0
        self._places: tuple[str, ...] = ()
        # The library's callback only appends: it calls back even while an error is being raised.
        self._errors: deque[KafkaError] = deque()
        self.process = setting.recorder.new_process()
        self._producer = Producer(
            {
                **FAST_RETRIES,
                "bootstrap.servers": setting.bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 2,
                "request.timeout.ms": 3_000,
                "error_cb": self._errors.append,
            },
            logger=_QUIET,
        )

    def take_over(self) -> None:
        """Fence the instance before this one. Raises ProducerLost."""
        self._until_done(self._producer.init_transactions)
        self._write(Phase.OK, Action.INIT)

    def begin(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Begin a transaction and send a value to each of these partitions. Raises ProducerLost."""
        recorder = self._setting.recorder
        values = [recorder.new_value() for _ in partitions]
        self._places = tuple(f"{topic}-{number}" for topic, number in partitions)
        entries = [
            Entry(place, None, value) for place, value in zip(self._places, values, strict=True)
        ]
        self._began_ms = self._write(Phase.INVOKE, Action.BEGIN, entries)
        try:
            self._producer.begin_transaction()
            for (topic, number), value in zip(partitions, values, strict=True):
                padding = self._setting.draw.randrange(PADDING_BYTES_MAX)
                self._producer.produce(topic, content(value, padding), None, number)
        except KafkaException as exception:
            self._lose(exception.args[0])

    def consume(self, entries: Sequence[Entry], send_offsets: Callable[[Producer], None]) -> None:
        """Consume these values in the open transaction. Raises KafkaException where it has to be aborted."""
        self._write(Phase.OK, Action.CONSUMED, entries)
        self._until_done(lambda _seconds: send_offsets(self._producer))

    def end(self, word: str) -> bool:
        """Commit or abort; whether it was committed. Raises ProducerLost, after which the outcome may be unknown."""
        self._write(Phase.INVOKE, Action.END, note=word)
        try:
            if word == COMMIT:
                try:
                    self._until_done(self._producer.commit_transaction)
                except KafkaException:
                    word = ABORT
            if word == ABORT:
                self._until_done(self._producer.abort_transaction)
        except KafkaException as exception:
            self._lose(exception.args[0])
        except ProducerLost:
            self._write(Phase.INFO, Action.END, note=word)
            raise
        self._write(Phase.OK, Action.END, note=word)
        if word == COMMIT:
            for place in self._places:
                self._setting.progress.acknowledged(place, self._began_ms)
        return word == COMMIT

    def close(self) -> None:
        """Forget what is not sent yet."""
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        with contextlib.suppress(KafkaException, SystemError):  # it was fenced: see _errors
            self._producer.flush(PURGE_SECONDS)

    def _until_done(self, call: Callable[[float], object]) -> None:
        """Repeat a call until it is answered. Raises ProducerLost, or KafkaException if the transaction has to be aborted."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while True:
            try:
                call(CALL_SECONDS)
            except KafkaException as exception:
                error: KafkaError = exception.args[0]
                self._errors.append(error)
                self._count_errors()
                if error.fatal() or time.monotonic() > deadline:
                    self._lose(error)
                if error.txn_requires_abort():
                    raise
                if not error.retriable() and error.code() != KafkaError._TIMED_OUT:
                    self._lose(error)
            except SystemError as error_of_python:
                raise ProducerLost("a callback ran while an error was raised") from error_of_python
            else:
                return

    def _count_errors(self) -> None:
        # A fatal one is no finding: instances are fenced by the next, and by the time limit.
        while self._errors:
            self._setting.client_errors.count(self._errors.popleft())

    def _lose(self, error: KafkaError) -> None:
        raise ProducerLost(error.str())

    def _write(
        self, phase: Phase, action: Action, entries: Sequence[Entry] = (), note: str = ""
    ) -> int:
        return self._setting.recorder.write(
            self.process, phase, action, entries, group=self._transactional_id, note=note
        )
