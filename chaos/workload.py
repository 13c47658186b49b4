"""The clients of a run: producers, readers, groups, offset pollers, switcher and mover; or transactions."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.clients import FAST_RETRIES, ClientErrors, Progress, partition_name
from chaos.consumers import GroupReader, LoneReader, OffsetPoller, Reader
from chaos.history import Recorder
from chaos.last_stable import LastStablePoller
from chaos.mover import Mover
from chaos.producers import ChaosProducer, ProducerPlan
from chaos.switcher import Switcher
from chaos.transaction_writers import TransactionCopier, TransactionWriter, WorkerPlan

CREATE_SECONDS_MAX: Final = 60.0
ASK_SECONDS_MAX: Final = 10.0
MEMBERS_PER_GROUP: Final = 2
# Small, so that faults also hit segment rolls, and recovery scans many segments.
SEGMENT_BYTES: Final = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """A topic of the workload."""

    name: str
    partitions: int
    mode: str  # raft or fetch, or empty for the default
    is_switched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPlan:
    """The clients of a run and their rates."""

    topics: Sequence[TopicPlan]
    replicas: int = 3
    producers: int = 2
    per_second: int = 300  # of each producer
    groups: Sequence[tuple[str, str]] = (("chaos-classic", "classic"), ("chaos-new", "consumer"))
    switch_seconds: float = 7.0
    move_seconds: float | None = None  # between two moves of replicas; None: no moves
    transactional: bool = False  # transactions instead of single sends and groups

    @property
    def isolation_level(self) -> str:
        """Of the last reader."""
        return "read_committed" if self.transactional else "read_uncommitted"

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return [(each.name, number) for each in self.topics for number in range(each.partitions)]


class Writer(Protocol):
    """A client that writes until it is asked to stop."""

    never_answered: int

    def start(self) -> None: ...

    def ask_to_stop(self, flush_seconds: float) -> None: ...

    def join(self) -> None: ...


class Poller(Protocol):
    """A client that looks again and again until it is asked to stop."""

    def start(self) -> None: ...

    def ask_to_stop(self) -> None: ...

    def join(self) -> str | None: ...


class Workload:
    """The running clients."""

    def __init__(
        self, plan: WorkloadPlan, bootstrap: str, recorder: Recorder, *, seed: int, log: Path
    ) -> None:
        self.plan = plan
        self.client_errors = ClientErrors()
        self.progress = Progress()
        self._bootstrap = bootstrap
        self._recorder = recorder
        self.producers: list[Writer] = []
        self.copiers: list[
            Writer
        ] = []  # they stop after the producers, when they have copied everything
        self.readers: list[Reader] = [
            LoneReader(bootstrap, recorder, self.client_errors, plan.partitions)
        ]
        self.offset_pollers: list[Poller] = []
        self.last_stable_poller: LastStablePoller | None = None
        if plan.transactional:
            self._add_transactions(seed)
        else:
            self._add_sends(seed, _logger(log))
        self.switchers = [
            Switcher(bootstrap, recorder, topic.name, plan.switch_seconds)
            for topic in plan.topics
            if topic.is_switched
        ]
        self.mover: Mover | None = None
        if plan.move_seconds is not None:
            self.mover = Mover(
                bootstrap.split(","),
                replicas=plan.replicas,
                seed=seed,
                every_seconds=plan.move_seconds,
            )

    def _add_sends(self, seed: int, logger: logging.Logger) -> None:
        plan, bootstrap, recorder = self.plan, self._bootstrap, self._recorder
        names = [topic.name for topic in plan.topics]
        self.producers += [
            ChaosProducer(
                ProducerPlan(
                    bootstrap=bootstrap,
                    partitions=plan.partitions,
                    per_second=plan.per_second,
                    seed=seed + number,
                    logger=logger,
                ),
                recorder,
                self.client_errors,
                self.progress,
            )
            for number in range(plan.producers)
        ]
        for group, protocol in plan.groups:
            self.readers += [
                GroupReader(
                    bootstrap,
                    recorder,
                    self.client_errors,
                    group=group,
                    topics=names,
                    protocol=protocol,
                    progress=self.progress,
                )
                for _ in range(MEMBERS_PER_GROUP)
            ]
        self.offset_pollers += [
            OffsetPoller(
                bootstrap,
                recorder,
                self.client_errors,
                group=group,
                partitions=lambda: plan.partitions,
            )
            for group, _ in plan.groups
        ]

    def _add_transactions(self, seed: int) -> None:
        """Writers to all partitions, and copiers from the first topic to the others."""
        plan = WorkerPlan(
            bootstrap=self._bootstrap,
            recorder=self._recorder,
            client_errors=self.client_errors,
            progress=self.progress,
            seed=seed,
        )
        source = self.plan.topics[0].name
        targets = [each for each in self.plan.partitions if each[0] != source]
        self.producers += [
            TransactionWriter(
                f"writer-{number}", plan, self.plan.partitions, version=1 + number % 2
            )
            for number in range(self.plan.producers)
        ]
        self.copiers += [
            TransactionCopier(f"copier-{number}", plan, source, targets)
            for number in range(MEMBERS_PER_GROUP)
        ]
        self.last_stable_poller = LastStablePoller(
            self._bootstrap, self._recorder, self.client_errors, self.plan.partitions
        )
        self.offset_pollers.append(self.last_stable_poller)

    def create_topics(self) -> None:
        """Create the topics. Raises AssertionError at the deadline."""
        admin = AdminClient({**FAST_RETRIES, "bootstrap.servers": self._bootstrap})
        deadline = time.monotonic() + CREATE_SECONDS_MAX
        for topic in self.plan.topics:
            settings = {
                "min.insync.replicas": str(min(2, self.plan.replicas)),
                "segment.bytes": str(SEGMENT_BYTES),
            }
            if topic.mode:
                settings["replication.mode"] = topic.mode
            new = NewTopic(
                topic.name,
                num_partitions=topic.partitions,
                replication_factor=self.plan.replicas,
                config=settings,
            )
            while True:
                try:
                    admin.create_topics([new])[topic.name].result(ASK_SECONDS_MAX)
                    break
                except KafkaException as exception:
                    error: KafkaError = exception.args[0]
                    if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                        break
                    assert time.monotonic() < deadline, f"cannot create {topic.name}: {error}"
                except TimeoutError:
                    assert time.monotonic() < deadline, f"cannot create {topic.name}"

    def start(self) -> None:
        for producer in (*self.producers, *self.copiers):
            producer.start()
        for reader in self._reading:
            reader.start()
        for each in self._changers:
            each.start()

    def stop_writing(self, flush_seconds: float) -> int:
        """Stop the producers; returns the number of sends without an answer after `flush_seconds`."""
        for each in self._changers:
            each.stop()
        for writers in (self.producers, self.copiers):
            for writer in writers:
                writer.ask_to_stop(flush_seconds)
            for writer in writers:
                writer.join()
        return sum(writer.never_answered for writer in (*self.producers, *self.copiers))

    def stop_reading(self) -> list[str]:
        """Stop the readers; returns the lines where readers hang that do not end."""
        for each in self._reading:
            each.ask_to_stop()
        return [where for each in self._reading if (where := each.join()) is not None]

    @property
    def _changers(self) -> list[Switcher | Mover]:
        return [*self.switchers, *([self.mover] if self.mover is not None else [])]

    @property
    def _reading(self) -> list[Poller]:
        return [*self.readers, *self.offset_pollers]

    @property
    def partition_names(self) -> list[str]:
        return [partition_name(*each) for each in self.plan.partitions]


def _logger(path: Path) -> logging.Logger:
    """A logger for the producers' library, with its own file."""
    logger = logging.getLogger(f"chaos-clients-{path}")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    return logger
