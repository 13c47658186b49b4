"""The end of a run: everything is healed, answered, read once more, stopped and compared."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from zhumq.testing.chaos.battlefield import broker_name
from zhumq.testing.chaos.findings import Findings, Kind
from zhumq.testing.chaos.last_reads import LastReads, read_everything
from zhumq.testing.chaos.nemesis import INTERNAL_PREFIX
from zhumq.testing.chaos.replicas import compare_replicas
from zhumq.testing.chaos.scene import HEAL_SECONDS_MAX, Scene

HEALED_SECONDS: Final = 3.0  # of work after the last fault
ASK_SECONDS: Final = 5.0


def end(scene: Scene) -> LastReads:
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
    stuck = scene.workload.stop_reading()
    if stuck:
        findings.add(Kind.NOT_HEALED, "consumers", f"{stuck} readers hang")
    for what in scene.workload.troubles.fatal:
        findings.add(Kind.CLIENT_FATAL, "clients", what)
    scene.tell("reading everything once more")
    last = _read(scene)
    for partition in last.unread:
        findings.add(Kind.NOT_HEALED, partition, "it cannot be read to its end")
    _stop_brokers(scene)
    return last


def compare(folder: Path, broker_ids: Sequence[int], last: LastReads, findings: Findings) -> int:
    """Compare all replicas of all partitions; how many bytes were looked at."""
    return sum(
        compare_replicas(
            partition,
            {broker_name(each): folder / broker_name(each) / partition for each in broker_ids},
            high_watermark,
            findings,
        )
        for partition, high_watermark in last.high_watermarks.items()
    )


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
