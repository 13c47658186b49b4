"""The end of a run: heal, drain the producers, read everything, stop the brokers, compare replicas."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from chaos.cluster_under_test import broker_name
from chaos.findings import Findings, Kind
from chaos.last_reads import LastReads, read_everything
from chaos.mover import moves_left
from chaos.nemesis import INTERNAL_PREFIX
from chaos.replicas import compare_replicas
from chaos.run_context import HEAL_SECONDS_MAX, RunContext

HEALED_SECONDS: Final = 3.0  # of work after the last fault
ASK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The final state of a run, after the brokers have stopped."""

    last: LastReads
    holders: Mapping[str, Sequence[int]]  # the brokers with a replica of each partition


def end(context: RunContext) -> Ending:
    """Heal, let the clients finish, read everything, and stop the brokers cleanly."""
    findings = context.findings
    context.nemesis.report_crashed_brokers()
    context.nemesis.heal()
    context.print_line("healed; waiting for unanswered sends")
    _see_writes_go_on(context)
    unanswered = context.workload.stop_writing(HEAL_SECONDS_MAX)
    if unanswered:
        findings.add(Kind.NOT_HEALED, "producers", f"{unanswered} sends were never answered")
    if not context.wait_until(lambda: context.cluster_under_test.in_sync(context.topics)):
        findings.add(
            Kind.NOT_HEALED, "replicas", context.cluster_under_test.describe(context.topics)
        )
    _see_moves_end(context)
    _see_transactions_end(context)
    for where in context.workload.stop_reading():
        findings.add(Kind.NOT_HEALED, "consumers", f"a reader hangs at {where}")
    for what in context.workload.client_errors.fatal:
        findings.add(Kind.CLIENT_FATAL, "clients", what)
    context.print_line("reading everything once more")
    last = _read(context)
    for partition in last.unread:
        findings.add(Kind.NOT_HEALED, partition, "cannot be read to its end")
    holders = context.cluster_under_test.holders()
    for partition in last.high_watermarks.keys() - holders:
        findings.add(Kind.NOT_HEALED, partition, "no broker reports its replicas")
    _stop_brokers(context)
    return Ending(last=last, holders=holders)


def compare(folder: Path, ending: Ending, findings: Findings) -> int:
    """Compare all replicas of all partitions; returns the number of bytes compared."""
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
    """With all brokers alive every move ends, also of a partition without writes."""
    if context.workload.mover is None:
        return
    first = context.cluster_under_test.cluster.brokers[
        context.cluster_under_test.broker_ids[0]
    ].bootstrap
    if not context.wait_until(lambda: moves_left(first) == []):
        for partition in moves_left(first) or ["no broker answers"]:
            context.findings.add(Kind.NOT_HEALED, partition, "its move does not end")


def _see_transactions_end(context: RunContext) -> None:
    """With all brokers alive every transaction ends, at the latest by its timeout."""
    poller = context.workload.last_stable_poller
    if poller is not None and not context.wait_until(lambda: not poller.look()):
        for partition in poller.look():
            context.findings.add(Kind.LAST_STABLE_STUCK, partition, "after all faults are over")


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
    """Read the clients' topics; of internal topics only look up the high watermark."""
    internal: list[tuple[str, int]] = []
    with contextlib.suppress(KafkaException):
        internal = [
            (name, number)
            for name, topic in context.cluster_under_test.admin.list_topics(
                timeout=ASK_SECONDS
            ).topics.items()
            for number in topic.partitions
            if name.startswith(INTERNAL_PREFIX)
        ]
    return read_everything(
        context.cluster_under_test.cluster.bootstrap,
        context.workload.plan.partitions,
        context.recorder,
        context.workload.client_errors,
        only_ends=internal,
        isolation_level=context.workload.plan.isolation_level,
        seconds_max=HEAL_SECONDS_MAX,
    )


def _stop_brokers(context: RunContext) -> None:
    context.nemesis.report_crashed_brokers()
    for broker_id, broker in context.cluster_under_test.cluster.brokers.items():
        code = broker.stop()
        if code:
            tail = context.cluster_under_test.log_tail(broker_id)
            context.findings.add(
                Kind.BROKER_FELL, broker_name(broker_id), f"it stopped with code {code}:\n{tail}"
            )
