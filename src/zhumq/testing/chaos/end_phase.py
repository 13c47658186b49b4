"""The end of a run: everything is healed, answered, read once more, stopped and compared."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from zhumq.testing.chaos.cluster_under_test import broker_name
from zhumq.testing.chaos.findings import Findings, Kind
from zhumq.testing.chaos.last_reads import LastReads, read_everything
from zhumq.testing.chaos.mover import moves_left
from zhumq.testing.chaos.nemesis import INTERNAL_PREFIX
from zhumq.testing.chaos.replicas import compare_replicas
from zhumq.testing.chaos.run_context import HEAL_SECONDS_MAX, RunContext

HEALED_SECONDS: Final = 3.0  # of work after the last fault
ASK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a run leaves behind, on the disks of brokers that do not run any more."""

    last: LastReads
    holders: Mapping[str, Sequence[int]]  # the brokers that have a partition


def end(context: RunContext) -> Ending:
    """Heal, let the clients finish, read everything, and stop the brokers cleanly."""
    findings = context.findings
    context.nemesis.look_for_the_fallen()
    context.nemesis.heal()
    context.tell("healed; waiting for what is still to be answered")
    _see_writes_go_on(context)
    unanswered = context.workload.stop_writing(HEAL_SECONDS_MAX)
    if unanswered:
        findings.add(Kind.NOT_HEALED, "producers", f"{unanswered} sends are never answered")
    if not context.wait_until(lambda: context.field.in_sync(context.topics)):
        findings.add(Kind.NOT_HEALED, "replicas", context.field.describe(context.topics))
    _see_moves_end(context)
    for where in context.workload.stop_reading():
        findings.add(Kind.NOT_HEALED, "consumers", f"a reader hangs at {where}")
    for what in context.workload.troubles.fatal:
        findings.add(Kind.CLIENT_FATAL, "clients", what)
    context.tell("reading everything once more")
    last = _read(context)
    for partition in last.unread:
        findings.add(Kind.NOT_HEALED, partition, "it cannot be read to its end")
    holders = context.field.holders()
    for partition in last.high_watermarks.keys() - holders:
        findings.add(Kind.NOT_HEALED, partition, "nobody says who has it")
    _stop_brokers(context)
    return Ending(last=last, holders=holders)


def compare(folder: Path, ending: Ending, findings: Findings) -> int:
    """Compare all replicas of all partitions; how many bytes were looked at."""
    return sum(
        compare_replicas(
            partition,
            {
                broker_name(each): folder / broker_name(each) / partition
                for each in ending.holders.get(partition, ())
            },
            high_watermark,
            findings,
        )
        for partition, high_watermark in ending.last.high_watermarks.items()
    )


def _see_moves_end(context: RunContext) -> None:
    """With all brokers alive every move ends, also that of a partition which nobody writes to."""
    if context.workload.mover is None:
        return
    first = context.field.cluster.brokers[context.field.broker_ids[0]].bootstrap
    if not context.wait_until(lambda: moves_left(first) == []):
        for partition in moves_left(first) or ["nobody answers"]:
            context.findings.add(Kind.NOT_HEALED, partition, "its move does not end")


def _see_writes_go_on(context: RunContext) -> None:
    since_ms = context.recorder.now_ms()
    names = context.workload.partition_names
    if not context.wait_until(lambda: context.workload.progress.has_passed(names, since_ms)):
        for name in names:
            if not context.workload.progress.has_passed([name], since_ms):
                context.findings.add(
                    Kind.NOT_HEALED, name, f"no write within {HEAL_SECONDS_MAX:g} s"
                )
    time.sleep(HEALED_SECONDS)


def _read(context: RunContext) -> LastReads:
    """What clients wrote is read; of what the brokers keep for themselves only the end is asked."""
    internal: list[tuple[str, int]] = []
    with contextlib.suppress(KafkaException):
        internal = [
            (name, number)
            for name, topic in context.field.admin.list_topics(timeout=ASK_SECONDS).topics.items()
            for number in topic.partitions
            if name.startswith(INTERNAL_PREFIX)
        ]
    return read_everything(
        context.field.cluster.bootstrap,
        context.workload.plan.partitions,
        context.recorder,
        context.workload.troubles,
        only_ends=internal,
        seconds_max=HEAL_SECONDS_MAX,
    )


def _stop_brokers(context: RunContext) -> None:
    context.nemesis.look_for_the_fallen()
    for broker_id, broker in context.field.cluster.brokers.items():
        code = broker.stop()
        if code:
            words = context.field.last_words(broker_id)
            context.findings.add(
                Kind.BROKER_FELL, broker_name(broker_id), f"it stopped with code {code}:\n{words}"
            )
