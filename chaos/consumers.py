"""Consumers of a chaos run: standalone, in groups that commit, and pollers of committed offsets."""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from chaos.clients import (
    FAST_RETRIES,
    ClientErrors,
    Progress,
    hanging_at,
    partition_name,
)
from chaos.history import Action, Entry, Phase, Recorder
from chaos.messages import entry_of

POLL_SECONDS: Final = 0.2
RECORDS_MAX: Final = 500  # of one line in the history
COMMIT_SECONDS: Final = 0.3  # at least, between two commits of one member
ASK_SECONDS: Final = 1.0
ASK_SECONDS_MAX: Final = 5.0
JOIN_SECONDS_MAX: Final = 60.0
NO_OFFSET: Final = -1
# The coordinator no longer knows this member or its generation: it refused the commit.
_CERTAINLY_NOT: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError._NO_OFFSET,
        KafkaError._STATE,
    }
)


class Reader(ABC):
    """A consumer in its own thread. After a fatal error a new consumer replaces it."""

    def __init__(self, bootstrap: str, recorder: Recorder, client_errors: ClientErrors) -> None:
        self._bootstrap = bootstrap
        self._recorder = recorder
        self._client_errors = client_errors
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-reader", daemon=True)
        self._process = 0
        self._is_fatal = False
        self._gathered: list[Entry] = []
        self._errors: deque[KafkaError] = (
            deque()
        )  # appended by the library's callback, handled in our thread

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def join(self) -> str | None:
        """Which reader it is and the line where its thread hangs, if it does not end in time."""
        line = hanging_at(self._thread, JOIN_SECONDS_MAX)
        return None if line is None else f"{line} ({type(self).__name__})"

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._process = self._recorder.new_process()
            self._is_fatal = False
            consumer = Consumer(self._settings())
            try:
                self._begin(consumer)
                while not self._stopping.is_set() and not self._is_fatal:
                    self._turn(consumer)
            finally:
                consumer.close()

    def _settings(self) -> dict[str, object]:
        return {
            **FAST_RETRIES,
            "bootstrap.servers": self._bootstrap,
            "group.id": "chaos-alone",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "error_cb": self._errors.append,
        }

    @abstractmethod
    def _begin(self, consumer: Consumer) -> None:
        """Assign or subscribe."""

    def _turn(self, consumer: Consumer) -> None:
        """Poll once and record what was read."""
        try:
            message = consumer.poll(POLL_SECONDS)
            while message is not None:
                error = message.error()
                if error is not None:
                    self._failed(error)
                else:
                    self._gathered.append(entry_of(message))
                if len(self._gathered) >= RECORDS_MAX:
                    break
                message = consumer.poll(0)
        except KafkaException as exception:
            self._errors.append(exception.args[0])
        self._write_gathered()
        while self._errors:
            self._failed(self._errors.popleft())

    def _write_gathered(self) -> list[Entry]:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._recorder.write(self._process, Phase.OK, Action.POLL, gathered)
        return gathered

    def _failed(self, error: KafkaError) -> None:
        self._client_errors.add(error, "consumer")
        if error.fatal():
            self._is_fatal = True


class LoneReader(Reader):
    """Reads fixed partitions from their start, without a group."""

    def __init__(
        self,
        bootstrap: str,
        recorder: Recorder,
        client_errors: ClientErrors,
        partitions: Sequence[tuple[str, int]],
    ) -> None:
        super().__init__(bootstrap, recorder, client_errors)
        self._partitions = partitions

    def _begin(self, consumer: Consumer) -> None:
        entries = [Entry(partition_name(*each), 0) for each in self._partitions]
        self._recorder.write(self._process, Phase.OK, Action.ASSIGN, entries)
        consumer.assign([TopicPartition(*each, 0) for each in self._partitions])


class GroupReader(Reader):
    """A member of a group: reads its assigned partitions and commits what it has read."""

    def __init__(
        self,
        bootstrap: str,
        recorder: Recorder,
        client_errors: ClientErrors,
        *,
        group: str,
        topics: Sequence[str],
        protocol: str,
        progress: Progress,
    ) -> None:
        super().__init__(bootstrap, recorder, client_errors)
        self._progress = progress
        self._group = group
        self._topics = list(topics)
        self._protocol = protocol
        self._read: dict[str, TopicPartition] = {}  # to be committed, by the history's name
        self._next_commit = 0.0

    def _settings(self) -> dict[str, object]:
        settings = super()._settings() | {"group.id": self._group, "group.protocol": self._protocol}
        if self._protocol == "classic":
            settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        return settings

    def _begin(self, consumer: Consumer) -> None:
        self._read.clear()
        self._recorder.write(self._process, Phase.OK, Action.SUBSCRIBE, group=self._group)
        consumer.subscribe(
            self._topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )

    def _turn(self, consumer: Consumer) -> None:
        super()._turn(consumer)
        if self._read and time.monotonic() >= self._next_commit:
            self._commit(consumer)
            self._next_commit = time.monotonic() + COMMIT_SECONDS

    def _write_gathered(self) -> list[Entry]:
        gathered = super()._write_gathered()
        for partition, offset, _ in gathered:
            assert offset is not None, "what was read has an offset"
            topic, _, number = partition.rpartition("-")
            self._read[partition] = TopicPartition(topic, int(number), offset + 1)
        return gathered

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._write_gathered()
        self._note(Action.ASSIGN, partitions)

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # The next member to get the partition reads uncommitted records again.
        self._write_gathered()
        self._note(Action.REVOKE, partitions)
        for each in partitions:
            self._read.pop(partition_name(each.topic, each.partition), None)

    def _note(self, action: Action, partitions: list[TopicPartition]) -> None:
        entries = [Entry(partition_name(each.topic, each.partition)) for each in partitions]
        self._recorder.write(self._process, Phase.OK, action, entries, group=self._group)

    def _commit(self, consumer: Consumer) -> None:
        offsets, self._read = self._read, {}
        entries = [Entry(name, each.offset) for name, each in offsets.items()]
        began_ms = self._write_commit(Phase.INVOKE, entries)
        try:
            answers = consumer.commit(offsets=list(offsets.values()), asynchronous=False)
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            self._failed(error)
            phase = Phase.FAIL if error.code() in _CERTAINLY_NOT else Phase.INFO
            self._write_commit(phase, entries, error.name())
            return
        for answer in answers or ():
            entry = Entry(partition_name(answer.topic, answer.partition), answer.offset)
            if answer.error is None:
                self._write_commit(Phase.OK, [entry])
                self._progress.acknowledged(self._group, began_ms)
            else:
                self._client_errors.add(answer.error, "commit")
                self._write_commit(Phase.INFO, [entry], answer.error.name())

    def _write_commit(self, phase: Phase, entries: Sequence[Entry], note: str = "") -> int:
        return self._recorder.write(
            self._process, phase, Action.COMMIT, entries, group=self._group, note=note
        )


class OffsetPoller:
    """Fetches a group's committed offsets at an interval, without being a member."""

    def __init__(
        self,
        bootstrap: str,
        recorder: Recorder,
        client_errors: ClientErrors,
        *,
        group: str,
        partitions: Callable[[], Sequence[tuple[str, int]]],
    ) -> None:
        self._consumer = Consumer(
            {
                **FAST_RETRIES,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "error_cb": self._failed,
            }
        )
        self._recorder = recorder
        self._client_errors = client_errors
        self._group = group
        self._partitions = partitions
        self._process = recorder.new_process()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-offset-poller", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def join(self) -> str | None:
        return hanging_at(self._thread, JOIN_SECONDS_MAX)

    def poll(self) -> bool:
        """Fetch the committed offsets once; whether all partitions were answered."""
        partitions = [TopicPartition(*each) for each in self._partitions()]
        entries = [Entry(partition_name(each.topic, each.partition)) for each in partitions]
        self._write(Phase.INVOKE, entries)
        try:
            answers = self._consumer.committed(partitions, ASK_SECONDS_MAX)
        except KafkaException as exception:
            self._failed(exception.args[0])
            self._write(Phase.INFO, entries)
            return False
        known = [each for each in answers if each.error is None]
        self._write(
            Phase.OK,
            [
                Entry(
                    partition_name(each.topic, each.partition),
                    each.offset if each.offset > NO_OFFSET else None,
                )
                for each in known
            ],
        )
        return len(known) == len(answers)

    def _run(self) -> None:
        while not self._stopping.wait(ASK_SECONDS):
            self.poll()
        self._consumer.close()

    def _write(self, phase: Phase, entries: Sequence[Entry]) -> None:
        self._recorder.write(self._process, phase, Action.COMMITTED, entries, group=self._group)

    def _failed(self, error: KafkaError) -> None:
        self._client_errors.add(error, "offset poller")
