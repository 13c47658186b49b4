"""A complete run: cluster, workload, faults, then healing, last reads and the check."""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos import end_phase
from chaos.checker import check
from chaos.clients import partition_name
from chaos.cluster_under_test import ClusterUnderTest
from chaos.findings import Findings
from chaos.history import Action, Recorder, read_history
from chaos.nemesis import Nemesis
from chaos.producers import count_epoch_bumps
from chaos.report import Report
from chaos.request_delays import RequestDelays
from chaos.run_context import RunContext
from chaos.serving import ServingProbe
from chaos.transaction_writers import GROUP as COPIERS
from chaos.workload import TopicPlan, Workload, WorkloadPlan
from chaos.write_gaps import GapMeter, Interruption, SilenceMeter, only_at

BROKERS: Final = 3
PRODUCERS_LOG: Final = "producers.log"
TRANSACTION_TOPICS: Final = (
    TopicPlan(name="source", partitions=2, mode="raft"),
    TopicPlan(name="on-raft", partitions=2, mode="raft"),
    TopicPlan(name="on-fetch", partitions=3, mode="fetch"),
)
TOPICS: Final = (
    TopicPlan(name="on-raft", partitions=3, mode="raft"),
    TopicPlan(name="on-fetch", partitions=3, mode="fetch"),
    TopicPlan(name="switched", partitions=2, mode="raft", is_switched=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosRun:
    """Settings of a run. `inflict` injects the faults while the workload runs."""

    title: str
    seed: int
    inflict: Callable[[RunContext], None]
    topics: Sequence[TopicPlan] = TOPICS
    zookeeper_nodes: int = 3
    producers: int = 2
    per_second: int = 300
    switch_seconds: float = 7.0
    brokers: int = BROKERS
    move_seconds: float | None = (
        None  # between two moves of replicas; needs more brokers than replicas
    )
    settings: Mapping[str, str] = field(default_factory=dict)  # of the brokers
    transactional: bool = False
    folder: Path | None = None  # None: a new one, removed if nothing was found
    keep: bool = False  # do not remove the folder
    print_line: Callable[[str], None] = lambda _: None


def run(chaos_run: ChaosRun) -> Report:
    """Run it and return the report."""
    folder = chaos_run.folder or Path(tempfile.mkdtemp(prefix=f"zhumq-chaos-{chaos_run.seed}-"))
    started = time.monotonic()
    findings = Findings()
    history = folder / "history.jsonl"
    recorder = Recorder.create(history)
    try:
        context, ending = _run_clients(chaos_run, folder, recorder, findings)
    finally:
        recorder.close()
    chaos_run.print_line("comparing replicas and checking the history")
    bytes_compared = end_phase.compare(folder, ending, findings)
    nemesis, workload = context.nemesis, context.workload
    writes = _write_meters(context)
    commits = GapMeter(nemesis.group_interruptions(), Action.COMMIT)
    switches = SilenceMeter(_switches(context))
    verdict = check(read_history(history), [*writes.values(), commits, switches])
    report = Report(
        title=chaos_run.title,
        seed=chaos_run.seed,
        seconds=time.monotonic() - started,
        verdict=verdict,
        findings=(*verdict.findings, *findings),
        injected_faults=nemesis.injected_faults,
        switches=sum(len(each.times_ms) for each in workload.switchers),
        moves=workload.mover.granted if workload.mover is not None else 0,
        delayed_requests=context.cluster_under_test.delayed_requests,
        client_errors=workload.client_errors.counts,
        epoch_bumps=count_epoch_bumps(folder / PRODUCERS_LOG),
        write_gaps={topic: meter.gaps for topic, meter in writes.items()},
        commit_gaps=commits.gaps,
        switch_gaps=switches.gaps,
        serving=context.probe.result,
        bytes_compared=bytes_compared,
        partitions_compared=len(ending.last.high_watermarks),
        folder=folder,
    )
    (folder / "report.json").write_text(report.to_json())
    if report.is_clean and chaos_run.folder is None and not chaos_run.keep:
        shutil.rmtree(folder)
    return report


def _run_clients(
    chaos_run: ChaosRun, folder: Path, recorder: Recorder, findings: Findings
) -> tuple[RunContext, end_phase.Ending]:
    plan = WorkloadPlan(
        topics=chaos_run.topics,
        producers=chaos_run.producers,
        per_second=chaos_run.per_second,
        switch_seconds=chaos_run.switch_seconds,
        move_seconds=chaos_run.move_seconds,
        transactional=chaos_run.transactional,
    )
    with ClusterUnderTest(
        folder,
        brokers=chaos_run.brokers,
        zookeeper_nodes=chaos_run.zookeeper_nodes,
        settings=chaos_run.settings,
        delays=RequestDelays(seed=chaos_run.seed) if chaos_run.transactional else None,
    ) as cluster_under_test:
        bootstrap = cluster_under_test.cluster.bootstrap
        groups = [COPIERS] if plan.transactional else [group for group, _ in plan.groups]
        context = RunContext(
            seed=chaos_run.seed,
            cluster_under_test=cluster_under_test,
            nemesis=Nemesis(
                cluster_under_test,
                recorder,
                findings,
                groups=groups,
                print_line=chaos_run.print_line,
            ),
            workload=Workload(
                plan, bootstrap, recorder, seed=chaos_run.seed, log=folder / PRODUCERS_LOG
            ),
            recorder=recorder,
            findings=findings,
            probe=ServingProbe(cluster_under_test),
            print_line=chaos_run.print_line,
        )
        chaos_run.print_line(f"{chaos_run.brokers} brokers at {bootstrap}, their data in {folder}")
        context.workload.create_topics()
        context.workload.start()
        chaos_run.inflict(context)
        return context, end_phase.end(context)


def _write_meters(context: RunContext) -> dict[str, GapMeter]:
    """One meter per topic, as each mode elects a leader differently. They count single sends."""
    meters: dict[str, GapMeter] = {}
    if context.workload.plan.transactional:
        return meters
    for topic in context.workload.plan.topics:
        names = {partition_name(topic.name, number) for number in range(topic.partitions)}
        meters[topic.name] = GapMeter(only_at(context.nemesis.interruptions(), names.__contains__))
    return meters


def _switches(context: RunContext) -> list[Interruption]:
    """The mode changes as interruptions; none in a run with faults, which would distort the gaps."""
    if context.nemesis.injected_faults:
        return []
    partitions = {topic.name: topic.partitions for topic in context.workload.plan.topics}
    return [
        Interruption(
            time_ms=time_ms,
            places=frozenset(
                partition_name(each.topic, number) for number in range(partitions[each.topic])
            ),
        )
        for each in context.workload.switchers
        for time_ms in each.times_ms
    ]
