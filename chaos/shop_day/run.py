"""Runs a day: a cluster, its pipelines on Spark, the kills of a seed, and the comparison at the end."""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka.admin import NewTopic

from chaos.shop_day import results
from chaos.shop_day.compare import Difference, Part, differences, report
from chaos.shop_day.facts import (
    ALERTS,
    APP,
    CHANGES_DEAD,
    CHANGES_REFUSED,
    CLICKS_DEAD,
    CLICKS_REFUSED,
    CUSTOMERS,
    EDGE,
    KIOSK,
    ORDERS,
    PAYMENTS,
    TICKS,
    TOPICS,
    WEB,
    Message,
)
from chaos.shop_day.feeder import Feeder, Place
from chaos.shop_day.generator import closing, day
from chaos.shop_day.outcome import COLUMNS, Outcome, archived_rows, outcome_of, rejected_rows
from chaos.shop_day.pipelines import AFTER_NOON, CHANGES, NAMES, Pipelines
from chaos.shop_day.schedule import Event, EventKind, plan
from chaos.spark_cluster import Standalone, standalone_cluster
from zhumq.testing.cluster import ClusterProcesses, cluster_processes, wait_for

BROKERS: Final = 3
# Each is a task of every batch, and of an exactly-once sink a transaction.
PARTITIONS: Final = {CUSTOMERS: 2, ORDERS: 2, PAYMENTS: 2, WEB: 2, APP: 1, EDGE: 1, KIOSK: 1}
PROGRESS_SECONDS_MAX: Final = 600.0  # on a busy machine
FIRST_TICKS: Final = 12  # an hour of the shop
FEED_SECONDS_MAX: Final = 600.0
AFTER_A_BATCH_SHARE: Final = 0.8  # of the kills; the others come while things start
MOMENT_SECONDS_MAX: Final = 3.0
STARTS_MAX: Final = 3
PYTHON_WORKER_SHARE: Final = 0.3  # of the kills of executors
WORKERS: Final = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
BROKER_SETTINGS: Final = {
    "transaction.two.phase.commit.enable": "true",
    # The messages are of a day that is long gone. This pass would forget their idempotent producer each time: its
    # age is that of its newest message, as in Kafka (KAFKA-6817), and a repeated batch would be written twice.
    "log.retention.check.interval.ms": "86400000",
}
RESULT_TOPICS: Final = (ALERTS, CHANGES_DEAD, CHANGES_REFUSED, CLICKS_DEAD, CLICKS_REFUSED)
PLACE: Final = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class DayOptions:
    """How large the day is, and how much is killed in it."""

    rows: int
    kills: int  # of each: drivers, executors or their Python workers, brokers
    seed: int
    tick_seconds: float = 0.25  # five minutes of the shop take at least so long


@dataclass(frozen=True, slots=True, kw_only=True)
class DayReport:
    """What a day came to."""

    lines: list[str]
    found: list[Difference]


def run_day(options: DayOptions, folder: Path, print_line: Callable[[str], None]) -> DayReport:
    """Run a day in an empty folder. Raises FeedFailed, RunFailed and AssertionError for one that cannot be run."""
    began = time.monotonic()
    messages = day(rows=options.rows, seed=options.seed)
    with ExitStack() as stack:
        cluster = stack.enter_context(
            cluster_processes(nodes=BROKERS, folder=folder, settings=BROKER_SETTINGS)
        )
        spark = stack.enter_context(standalone_cluster(folder, hosts=WORKERS))
        _create_topics(cluster)
        pipelines = Pipelines(folder=folder, master=spark.master, bootstrap=cluster.bootstrap)
        stack.callback(pipelines.end)
        feeder = Feeder(cluster.bootstrap, messages, tick_seconds=options.tick_seconds)
        stack.callback(feeder.stop)
        print_line(
            f"{len(messages):,} messages, {options.kills} kills of each, seed {options.seed}"
        )
        shop = _Shop(
            options=options, cluster=cluster, spark=spark, pipelines=pipelines, feeder=feeder,
            print_line=print_line,
        )  # fmt: skip
        shop.live()
        closers = closing(first=len(messages))
        feeder.send(closers)
        everything = [*messages, *closers]
        for name in NAMES:
            pipelines.finish(name)
            print_line(f"{name} has come to the end of its topics")
        pipelines.audit()
        parts = parts_of(everything, feeder.places, pipelines, cluster.bootstrap)
    found = [difference for part in parts for difference in differences(part)]
    done = ", ".join(f"{word} {count}" for word, count in sorted(shop.done.items()))
    summary = f"{len(everything):,} messages in {time.monotonic() - began:.0f} s; {done}"
    return DayReport(lines=[*report(parts, found), summary], found=found)


@dataclass(slots=True, kw_only=True)
class _Shop:
    """The day itself: lets the feeder go on, and kills something at each event."""

    options: DayOptions
    cluster: ClusterProcesses
    spark: Standalone
    pipelines: Pipelines
    feeder: Feeder
    print_line: Callable[[str], None]
    done: Counter[str] = field(default_factory=Counter)
    _draw: random.Random = field(init=False)

    def live(self) -> None:
        # Another one than the generator's: the data of a seed is the same with more kills.
        self._draw = random.Random(f"kills {self.options.seed}")  # noqa: S311 (reproducible)
        for name in NAMES:
            self.pipelines.start(name)
        # The streams run beside the day, and do not begin with all of it.
        self.feeder.allow(FIRST_TICKS)
        for name in NAMES:
            self._wait_for_batches(name, 1)
        self._note("all streams run", "")
        for event in plan(kills=self.options.kills, draw=self._draw):
            self.feeder.allow(event.tick)
            self._happen(event)
        before = {name: self.pipelines.batches(name) for name in NAMES}
        self.feeder.allow(TICKS)
        self._wait_until(
            lambda: self.feeder.ticks_done == TICKS, "the day is sent", FEED_SECONDS_MAX
        )
        for name in NAMES:
            self._wait_for_batches(name, before[name] + 1)
            self._stop(name)

    def _happen(self, event: Event) -> None:
        match event.kind:
            case EventKind.NOON:
                self._noon(event.tick)
            case EventKind.DRIVER:
                name = self._draw.choice(NAMES)
                self._wait_for_a_moment(name)
                self._note("driver killed", self.pipelines.kill(name, self._draw))
            case EventKind.EXECUTOR:
                self._wait_for_a_moment(self._draw.choice(NAMES))
                self._kill_executor()
            case EventKind.BROKER:
                self._wait_for_a_moment(self._draw.choice(NAMES))
                broker = self._draw.choice(sorted(self.cluster.brokers))
                self.cluster.kill(broker)
                self._note("broker killed", f"broker {broker}")
                self._pause()
                self._restart(broker)

    def _restart(self, broker: int) -> None:
        """Start a killed broker again. Raises RuntimeError with its log."""
        for tries_left in reversed(range(STARTS_MAX)):
            try:
                self.cluster.restart(broker)
            except RuntimeError:
                # On a busy machine the start of a broker may take longer than its deadline.
                if not tries_left:
                    raise
                self._note("broker started again", f"broker {broker}")
            else:
                return

    def _noon(self, tick: int) -> None:
        """The pipeline knows the new column before the database has it."""
        self._wait_until(
            lambda: self.feeder.ticks_done >= tick, "the morning is sent", FEED_SECONDS_MAX
        )
        self._stop(CHANGES)
        self.pipelines.customers = AFTER_NOON
        self.pipelines.start(CHANGES)
        self._note("noon", "customers have a tier, clicks of the web a promotion")

    def _kill_executor(self) -> None:
        if self._draw.random() < PYTHON_WORKER_SHARE:
            what, kill = "Python worker", self.spark.kill_python_worker
        else:
            what, kill = "executor", self.spark.kill_executor
        self._wait_until(lambda: kill(self._draw), f"there is a {what}", PROGRESS_SECONDS_MAX)
        self._note(f"{what} killed", "")

    def _stop(self, name: str) -> None:
        if self.pipelines.drivers[name].is_alive:
            code = self.pipelines.stop(name)
            self._note("stops" if code == 0 else f"stops with exit code {code}", name)
        else:
            self._note_end(name)
            self.pipelines.drivers.pop(name).end()

    def _wait_for_a_moment(self, name: str) -> None:
        """Wait for a random time: the kill is mostly within a batch, sometimes while a query starts."""
        if self._draw.random() < AFTER_A_BATCH_SHARE:
            self._wait_for_batches(name, self.pipelines.batches(name) + 1)
        self._pause()

    def _pause(self) -> None:
        over_at = time.monotonic() + self._draw.uniform(0, MOMENT_SECONDS_MAX)
        self._wait_until(lambda: time.monotonic() >= over_at, "the moment comes", 60)

    def _wait_for_batches(self, name: str, count: int) -> None:
        def are_in() -> bool:
            self._revive()
            return self.pipelines.batches(name) >= count

        self._wait_until(are_in, f"{name} has {count} batches", PROGRESS_SECONDS_MAX)

    def _revive(self) -> None:
        """Start drivers again that have ended by themselves, as a supervisor would."""
        for name, driver in list(self.pipelines.drivers.items()):
            if not driver.is_alive:
                self._note_end(name)
                driver.end()
                self.pipelines.start(name)

    def _note_end(self, name: str) -> None:
        # Spark ends a query after four failures of a task, and Python's start may take too long.
        self._note("driver ended by itself", f"{name}; {self.pipelines.log_tail(name)}")
        ended = self.done["driver ended by itself"]
        assert ended <= 3 + 3 * self.options.kills, "the drivers end by themselves again and again"

    def _wait_until(self, fact: Callable[[], bool], what: str, seconds: float) -> None:
        try:
            wait_for(lambda: fact() or None, f"fact that {what}", seconds)
        except AssertionError as error:
            for name in NAMES:
                error.add_note(self.pipelines.log_tail(name))
            raise

    def _note(self, event: str, what: str) -> None:
        self.done[event] += 1
        clock = time.strftime("%H:%M:%S", time.gmtime())
        hour, minute = divmod(self.feeder.ticks_done * 24 * 60 // TICKS, 60)
        batches = sum(self.pipelines.batches(name) for name in NAMES)
        self.print_line(
            f"{clock} shop {hour:02}:{minute:02}, {batches} batches: {event} {what}".rstrip()
        )


def _create_topics(cluster: ClusterProcesses) -> None:
    admin = cluster.admin()
    config = {"retention.ms": "-1"}
    topics = [NewTopic(name, PARTITIONS[name], BROKERS, config=config) for name in TOPICS]
    for future in admin.create_topics(topics).values():
        future.result(60)


def parts_of(
    messages: Sequence[Message], places: dict[int, Place], pipelines: Pipelines, bootstrap: str
) -> list[Part]:
    """Everything that the pipelines have made, beside what the model has."""
    outcome = outcome_of(messages)
    tables = pipelines.tables
    alerts = results.alert_rows(bootstrap, ALERTS)
    return [
        *_merged_parts(outcome, tables),
        Part(
            name="sessions",
            columns=("user", "begun", "ended", "events", "promotions"),
            key=2,
            expected=outcome.sessions,
            found=results.session_rows(tables / "sessions"),
        ),
        Part(
            name="large payments",
            columns=("payment", "customer", "amount"),
            key=1,
            expected=outcome.large,
            found=alerts.pop("large", []),
        ),
        Part(
            name="troubled customers",
            columns=("customer", "hour", "failures"),
            key=2,
            expected=outcome.troubled,
            found=alerts.pop("troubled", []),
        ),
        Part(
            name="other alerts",
            columns=("kind", "fields"),
            key=1,
            expected=[],
            found=[(kind, fields) for kind, each in alerts.items() for fields in each],
        ),
        *(
            Part(
                name=topic,
                columns=(*PLACE, "reason", "key", "value"),
                key=3,
                expected=rejected_rows(messages, outcome.rejected, places, topic),
                found=results.rejected_rows(bootstrap, topic),
            )
            for topic in RESULT_TOPICS
            if topic != ALERTS
        ),
        Part(
            name="archive",
            columns=(*PLACE, "key", "value", "timestamp"),
            key=3,
            expected=archived_rows(messages, places),
            found=results.archive_rows(tables / "archive"),
        ),
        Part(
            name="audit",
            columns=results.AUDIT_COLUMNS,
            key=3,
            expected=[],
            found=results.audit_rows(pipelines.audit_report),
        ),
        Part(
            name="open transactions",
            columns=("topic", "partition", "last_stable_offset", "end_offset"),
            key=2,
            expected=[],
            found=results.open_rows(bootstrap, RESULT_TOPICS),
        ),
    ]


def _merged_parts(outcome: Outcome, tables: Path) -> list[Part]:
    parts = []
    for topic, table in ((CUSTOMERS, "customers"), (ORDERS, "orders"), (PAYMENTS, "payments")):
        columns = (*COLUMNS[topic], "_sequence")
        parts.append(
            Part(
                name=table,
                columns=columns,
                key=1,
                expected=outcome.newest[topic],
                found=results.delta_rows(tables / table, columns),
            )
        )
    columns = (*COLUMNS[CUSTOMERS], "_valid_from", "_valid_to")
    parts.append(
        Part(
            name="customer history",
            columns=columns,
            # A key and its version: a version that is torn in two has two rows of a key.
            key=1,
            expected=outcome.history,
            found=results.delta_rows(tables / "customer-history", columns),
        )
    )
    return parts
