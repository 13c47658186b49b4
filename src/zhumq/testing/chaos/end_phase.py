"""The end of a run: everything is healed, answered, read once more, stopped and compared."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from zhumq.testing.chaos.battlefield import broker_name
from zhumq.testing.chaos.findings import Findings, Kind
from zhumq.testing.chaos.last_reads import LastReads, read_everything
from zhumq.testing.chaos.mover import moves_left
from zhumq.testing.chaos.nemesis import INTERNAL_PREFIX
from zhumq.testing.chaos.replicas import compare_replicas
from zhumq.testing.chaos.scene import HEAL_SECONDS_MAX, Scene

HEALED_SECONDS: Final = 3.0  # of work after the last fault
ASK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What a run leaves behind, on the disks of brokers that do not run any more."""

    last: LastReads
    holders: Mapping[str, Sequence[int]]  # the brokers that have a partition


def end(scene: Scene) -> Ending:
    """Heal, let the clients finish, read everything, and stop the brokers cleanly."""
    findings = scene.findings
    scene.nemesis.look_for_the_fallen()
    scene.nemesis.heal()
    scene.tell("healed; waiting for what is still to be answered")
    _see_writes_go_on(scene)
    unanswered = scene.workload.stop_writing(HEAL_SECONDS_MAX)
    if unanswered:
        findings.add(Kind.NOT_HEALED, "producers", f"{unanswered} sends are never answered")
    if not scene.wait_until(lambda: scene.field.in_sync(scene.topics)):
        findings.add(Kind.NOT_HEALED, "replicas", scene.field.describe(scene.topics))
    _see_moves_end(scene)
    for where in scene.workload.stop_reading():
        findings.add(Kind.NOT_HEALED, "consumers", f"a reader hangs at {where}")
    for what in scene.workload.troubles.fatal:
        findings.add(Kind.CLIENT_FATAL, "clients", what)
    scene.tell("reading everything once more")
    last = _read(scene)
    for partition in last.unread:
        findings.add(Kind.NOT_HEALED, partition, "it cannot be read to its end")
    holders = scene.field.holders()
    for partition in last.high_watermarks.keys() - holders:
        findings.add(Kind.NOT_HEALED, partition, "nobody says who has it")
    _stop_brokers(scene)
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


def _see_moves_end(scene: Scene) -> None:
    """With all brokers alive every move ends, also that of a partition which nobody writes to."""
    if scene.workload.mover is None:
        return
    first = scene.field.cluster.brokers[scene.field.broker_ids[0]].bootstrap
    if not scene.wait_until(lambda: moves_left(first) == []):
        for partition in moves_left(first) or ["nobody answers"]:
            scene.findings.add(Kind.NOT_HEALED, partition, "its move does not end")


def _see_writes_go_on(scene: Scene) -> None:
    since_ms = scene.recorder.now_ms()
    names = scene.workload.partition_names
    if not scene.wait_until(lambda: scene.workload.progress.has_passed(names, since_ms)):
        for name in names:
            if not scene.workload.progress.has_passed([name], since_ms):
                scene.findings.add(Kind.NOT_HEALED, name, f"no write within {HEAL_SECONDS_MAX:g} s")
    time.sleep(HEALED_SECONDS)


def _read(scene: Scene) -> LastReads:
    """What clients wrote is read; of what the brokers keep for themselves only the end is asked."""
    internal: list[tuple[str, int]] = []
    with contextlib.suppress(KafkaException):
        internal = [
            (name, number)
            for name, topic in scene.field.admin.list_topics(timeout=ASK_SECONDS).topics.items()
            for number in topic.partitions
            if name.startswith(INTERNAL_PREFIX)
        ]
    return read_everything(
        scene.field.cluster.bootstrap,
        scene.workload.plan.partitions,
        scene.recorder,
        scene.workload.troubles,
        only_ends=internal,
        seconds_max=HEAL_SECONDS_MAX,
    )


def _stop_brokers(scene: Scene) -> None:
    scene.nemesis.look_for_the_fallen()
    for broker_id, broker in scene.field.cluster.brokers.items():
        code = broker.stop()
        if code:
            words = scene.field.last_words(broker_id)
            scene.findings.add(
                Kind.BROKER_FELL, broker_name(broker_id), f"it stopped with code {code}:\n{words}"
            )
