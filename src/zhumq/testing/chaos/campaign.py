"""A whole run: a cluster, a workload, faults, then healing, last reads and the check."""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from zhumq.testing.chaos import end_phase
from zhumq.testing.chaos.battlefield import Battlefield
from zhumq.testing.chaos.checker import check
from zhumq.testing.chaos.clients import partition_name
from zhumq.testing.chaos.findings import Findings
from zhumq.testing.chaos.history import Action, Recorder, read_history
from zhumq.testing.chaos.nemesis import Nemesis
from zhumq.testing.chaos.producers import count_epoch_bumps
from zhumq.testing.chaos.report import Report
from zhumq.testing.chaos.scene import Scene
from zhumq.testing.chaos.serving import ServingProbe
from zhumq.testing.chaos.workload import TopicPlan, Workload, WorkloadPlan
from zhumq.testing.chaos.write_gaps import GapMeter, Interruption, SilenceMeter, only_at

BROKERS: Final = 3
PRODUCERS_LOG: Final = "producers.log"
TOPICS: Final = (
    TopicPlan(name="on-raft", partitions=3, mode="raft"),
    TopicPlan(name="on-fetch", partitions=3, mode="fetch"),
    TopicPlan(name="switched", partitions=2, mode="raft", is_switched=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What is run. `harm` does the faults, while the workload runs."""

    title: str
    seed: int
    harm: Callable[[Scene], None]
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
    folder: Path | None = None  # none: a new one, which is removed if nothing was found
    keep: bool = False  # do not remove it
    tell: Callable[[str], None] = lambda _: None


def run(campaign: Campaign) -> Report:
    """Run it to its end."""
    folder = campaign.folder or Path(tempfile.mkdtemp(prefix=f"zhumq-chaos-{campaign.seed}-"))
    started = time.monotonic()
    findings = Findings()
    history = folder / "history.jsonl"
    recorder = Recorder.create(history)
    try:
        scene, ending = _run_clients(campaign, folder, recorder, findings)
    finally:
        recorder.close()
    campaign.tell("comparing replicas and checking the history")
    bytes_compared = end_phase.compare(folder, ending, findings)
    nemesis, workload = scene.nemesis, scene.workload
    writes = _write_meters(scene)
    commits = GapMeter(nemesis.group_interruptions(), Action.COMMIT)
    switches = SilenceMeter(_switches(scene))
    verdict = check(read_history(history), [*writes.values(), commits, switches])
    report = Report(
        title=campaign.title,
        seed=campaign.seed,
        seconds=time.monotonic() - started,
        verdict=verdict,
        findings=(*verdict.findings, *findings),
        deeds=nemesis.deeds,
        switches=sum(len(each.times_ms) for each in workload.switchers),
        moves=workload.mover.granted if workload.mover is not None else 0,
        troubles=workload.troubles.counts,
        epoch_bumps=count_epoch_bumps(folder / PRODUCERS_LOG),
        write_gaps={topic: meter.gaps for topic, meter in writes.items()},
        commit_gaps=commits.gaps,
        switch_gaps=switches.gaps,
        serving=scene.probe.result,
        bytes_compared=bytes_compared,
        partitions_compared=len(ending.last.high_watermarks),
        folder=folder,
    )
    (folder / "report.json").write_text(report.to_json())
    if report.is_clean and campaign.folder is None and not campaign.keep:
        shutil.rmtree(folder)
    return report


def _run_clients(
    campaign: Campaign, folder: Path, recorder: Recorder, findings: Findings
) -> tuple[Scene, end_phase.Ending]:
    plan = WorkloadPlan(
        topics=campaign.topics,
        producers=campaign.producers,
        per_second=campaign.per_second,
        switch_seconds=campaign.switch_seconds,
        move_seconds=campaign.move_seconds,
    )
    with Battlefield(
        folder,
        brokers=campaign.brokers,
        zookeeper_nodes=campaign.zookeeper_nodes,
        settings=campaign.settings,
    ) as battlefield:
        bootstrap = battlefield.cluster.bootstrap
        groups = [group for group, _ in plan.groups]
        scene = Scene(
            seed=campaign.seed,
            field=battlefield,
            nemesis=Nemesis(battlefield, recorder, findings, groups=groups, tell=campaign.tell),
            workload=Workload(
                plan, bootstrap, recorder, seed=campaign.seed, log=folder / PRODUCERS_LOG
            ),
            recorder=recorder,
            findings=findings,
            probe=ServingProbe(battlefield),
            tell=campaign.tell,
        )
        campaign.tell(f"{campaign.brokers} brokers at {bootstrap}, their data in {folder}")
        scene.workload.create_topics()
        scene.workload.start()
        campaign.harm(scene)
        return scene, end_phase.end(scene)


def _write_meters(scene: Scene) -> dict[str, GapMeter]:
    """One for each topic, as each has its own way to a new leader."""
    meters = {}
    for topic in scene.workload.plan.topics:
        names = {partition_name(topic.name, number) for number in range(topic.partitions)}
        meters[topic.name] = GapMeter(only_at(scene.nemesis.interruptions(), names.__contains__))
    return meters


def _switches(scene: Scene) -> list[Interruption]:
    """Only where nothing else disturbs do switches tell how long they take."""
    if scene.nemesis.deeds:
        return []
    partitions = {topic.name: topic.partitions for topic in scene.workload.plan.topics}
    return [
        Interruption(
            time_ms=time_ms,
            places=frozenset(
                partition_name(each.topic, number) for number in range(partitions[each.topic])
            ),
        )
        for each in scene.workload.switchers
        for time_ms in each.times_ms
    ]
