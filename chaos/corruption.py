"""Corrupts files of a real cluster's brokers and reads everything back: `python -m chaos.corruption`."""

import argparse
import contextlib
import functools
import random
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.damage import are_equal, end_offset
from zhumq.testing.cluster import ClusterProcesses, cluster_processes

BROKERS: Final = 3
PLACES_PER_ROUND: Final = 5
MESSAGES: Final = 240  # to each partition, in batches of a few
BATCH_MESSAGES: Final = 6
KEYS: Final = 40
SECTOR_BYTES: Final = 512
WAIT_SECONDS_MAX: Final = 90.0
LOOK_SECONDS: Final = 0.1
GROUP: Final = "corruption"
INTERNAL_PREFIX: Final = "__"
NEVER_TOUCHED: Final = (".lock", ".tmp")
SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.segment.bytes": "16384",
    "log.scrub.bytes.per.second": str(64 << 20),
    "log.scrub.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
    "replica.election.timeout.ms": "1000",
}
SMALL_SEGMENTS: Final = {"segment.bytes": "16384", "min.insync.replicas": "2"}
COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
TOPICS: Final = {
    "plain-raft": {"replication.mode": "raft"},
    "plain-fetch": {"replication.mode": "fetch"},
    "gzip-raft": {"replication.mode": "raft"},
    "lz4-fetch": {"replication.mode": "fetch"},
    "compacted-raft": {"replication.mode": "raft", **COMPACTED},
    "compacted-fetch": {"replication.mode": "fetch", **COMPACTED},
}
KINDS: Final = ("flip", "flip", "flip", "zero", "cut", "remove")

Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Corruption:
    """One corrupted file, with its bytes from before."""

    broker_id: int
    path: Path
    kind: str
    before: bytes
    note: str

    def undo(self) -> None:
        self.path.write_bytes(self.before)


@dataclass(slots=True, kw_only=True)
class Report:
    """The result of a run."""

    places: int = 0
    refused_starts: int = 0
    findings: list[str] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)
    damage_lines: int = 0


def corrupt(path: Path, kind: str, draw: random.Random) -> str:
    """Corrupt a file in one way; returns a description."""
    size = path.stat().st_size
    if kind == "remove":
        path.unlink()
        return "removed"
    place = draw.randrange(size)
    with open(path, "r+b") as file:
        if kind == "cut":
            file.truncate(place)
            return f"cut to {place} of {size} bytes"
        file.seek(place)
        if kind == "zero":
            length = min(SECTOR_BYTES, size - place)
            file.write(bytes(length))
            return f"{length} zeros at byte {place} of {size}"
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ (1 << draw.randrange(8))]))
        return f"a bit of byte {place} of {size} flipped"


def candidates(data_dir: Path) -> dict[str, list[Path]]:
    """The files that can be corrupted, by partition folder; files of the broker itself under ''."""
    found: dict[str, list[Path]] = {}
    for path in sorted(data_dir.rglob("*")):
        if not path.is_file() or not path.stat().st_size or path.name.endswith(NEVER_TOUCHED):
            continue
        folder = "" if path.parent == data_dir else path.parent.name
        if not folder.endswith(("-delete", "-stray")) and ".deleted" not in path.name:
            found.setdefault(folder, []).append(path)
    return found


class CorruptionRun:
    """A cluster with known contents, whose files are corrupted in rounds."""

    def __init__(
        self, cluster: ClusterProcesses, seed: int, print_line: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._draw = random.Random(seed)  # noqa: S311 (repeatable, not secret)
        self._print_line = print_line
        # Kept: a client that is garbage-collected drops its pending requests.
        self._admin: AdminClient = cluster.admin()
        self._sent: dict[Place, dict[int, tuple[bytes, bytes]]] = {}
        self.report = Report()

    def prepare(self) -> None:
        """Create topics of all kinds, send messages, and commit a group's offsets."""
        ids = list(range(1, BROKERS + 1))
        rotated = [ids[place:] + ids[:place] for place in range(BROKERS)]
        new_topics = [
            NewTopic(
                name,
                num_partitions=BROKERS,
                replica_assignment=rotated,
                config={**SMALL_SEGMENTS, **config},
            )
            for name, config in TOPICS.items()
        ]
        for created in self._admin.create_topics(new_topics).values():
            created.result(WAIT_SECONDS_MAX)
        for name in TOPICS:
            for partition in range(BROKERS):
                self._cluster.wait_for_leader(name, partition)
                self._fill(name, partition)
        self._commit()

    def round(self, places: int) -> None:
        """Corrupt some files of one broker, each of a different log, and check the cluster."""
        broker_id = self._draw.choice(sorted(self._cluster.brokers))
        is_up = self._draw.random() < 0.2
        broker = self._cluster.brokers[broker_id]
        if not is_up:
            broker.kill() if self._draw.random() < 0.5 else broker.stop()
        done = self._corrupt_some(broker_id, places, is_up=is_up)
        self.report.places += len(done)
        for each in done:
            self._print_line(
                f"{self.report.places:4d} broker {broker_id} {'up' if is_up else 'down'}:"
                f" {each.path.relative_to(broker.data_dir)}: {each.note}"
            )
        if is_up:
            # The scrub finds damage in records that were verified before; reads are guaranteed from then on.
            passes = self._scrub_passes(broker_id) + 2
            self._wait(lambda: self._scrub_passes(broker_id) >= passes, "a complete scrub pass")
        else:
            self._start(broker_id, done)
        self._judge(f"after {len(done)} corruptions of broker {broker_id}")

    def _fill(self, topic: str, partition: int) -> None:
        codec = topic.partition("-")[0]
        sender = Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": codec if codec in ("gzip", "lz4") else "none",
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        sent = self._sent.setdefault((topic, partition), {})

        def answered(error: object, message: object) -> None:
            if error is not None:
                raise AssertionError(f"{topic}-{partition}: {error}")
            sent[message.offset()] = (message.key(), message.value())  # type: ignore[attr-defined]

        for number in range(MESSAGES):
            key = b"key-%03d" % (number % KEYS)
            value = b"%s-%d-%06d-" % (topic.encode(), partition, number) + key * 30
            sender.produce(topic, value, key, partition, on_delivery=answered)
            if number % BATCH_MESSAGES == BATCH_MESSAGES - 1:
                sender.flush(WAIT_SECONDS_MAX)
        sender.flush(WAIT_SECONDS_MAX)

    def _commit(self) -> None:
        reader = self._reader()
        offsets = [TopicPartition(*place, 7 + place[1]) for place in self._sent]
        reader.commit(offsets=offsets, asynchronous=False)
        reader.close()

    def _corrupt_some(self, broker_id: int, places: int, *, is_up: bool) -> list[Corruption]:
        data_dir = self._cluster.brokers[broker_id].data_dir
        found = candidates(data_dir)
        if is_up:
            # A running broker rewrites some files all the time: only sealed segments are corrupted.
            found = {
                folder: sealed
                for folder, paths in found.items()
                if len(logs := [path for path in paths if path.suffix == ".log"]) > 1
                and (sealed := logs[:-1])
                and not folder.startswith((INTERNAL_PREFIX, "compacted"))
            }
        done = []
        for folder in self._draw.sample(sorted(found), min(places, len(found))):
            path = self._draw.choice(found[folder])
            kind = "flip" if is_up else self._draw.choice(KINDS)
            before = path.read_bytes()
            note = corrupt(path, kind, self._draw)
            self.report.kinds[kind] = self.report.kinds.get(kind, 0) + 1
            done.append(
                Corruption(broker_id=broker_id, path=path, kind=kind, before=before, note=note)
            )
        return done

    def _start(self, broker_id: int, done: Iterable[Corruption]) -> None:
        """Start the broker. If it refuses, it must log the reason; then the run restores that file."""
        broker = self._cluster.brokers[broker_id]
        try:
            broker.start()
        except RuntimeError as error:
            line = broker.log.strip().splitlines()[-1]
            self.report.refused_starts += 1
            self._print_line(f"     refused to start: {line}")
            if not line.startswith("zhumq: ") or "Traceback" in str(error)[-4000:]:
                self.report.findings.append(
                    f"broker {broker_id} did not log why it refused to start: {line}"
                )
            for each in done:
                if each.path.parent == broker.data_dir:
                    each.undo()
            broker.start()

    def _judge(self, when: str) -> None:
        self._wait(self._is_settled, f"{when}: every partition led by its first replica")
        for topic, partition in self._sent:
            self._check_reads(topic, partition, when)
        self._check_group(when)
        for name, partition in self._sent:
            if name.startswith("compacted"):
                continue
            folder = f"{name}-{partition}"
            folders = {
                str(each): broker.data_dir / folder
                for each, broker in self._cluster.brokers.items()
            }
            end = max(end_offset(each) for each in folders.values())
            self._wait(functools.partial(are_equal, folders, end), f"{when}: {folder} recovered")
        self._wait(self._is_intact, f"{when}: nothing damaged and nothing recovering")

    def _is_settled(self) -> bool:
        with contextlib.suppress(KafkaException, TimeoutError):
            topics = self._admin.list_topics(timeout=5).topics
            return all(
                topics[topic].partitions[partition].leader == partition + 1
                for topic, partition in self._sent
            )
        return False

    def _is_intact(self) -> bool:
        """Whether no broker reports damage or recovering partitions."""
        for broker_id in self._cluster.brokers:
            text = self._metrics(broker_id)
            recovering = re.search(r"^zhumq_partitions_recovering (\d+)", text, re.MULTILINE)
            if recovering is None or recovering[1] != "0" or "\nzhumq_log_corrupt_ranges{" in text:
                return False
        return True

    def _scrub_passes(self, broker_id: int) -> int:
        found = re.search(
            r"^zhumq_scrub_passes_total (\d+)", self._metrics(broker_id), re.MULTILINE
        )
        assert found is not None
        return int(found[1])

    def _metrics(self, broker_id: int) -> str:
        address = self._cluster.brokers[broker_id].http
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def _wait(self, look: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not look():
            if time.monotonic() > deadline:
                self.report.findings.append(f"not within {WAIT_SECONDS_MAX:g} s: {what}")
                return
            time.sleep(LOOK_SECONDS)

    def _reader(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "check.crcs": True,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )

    def _check_reads(self, topic: str, partition: int, when: str) -> None:
        """A reader reads everything that was sent at its offset, and nothing else."""
        sent = self._sent[topic, partition]
        got = self._read(topic, partition)
        name = f"{when}: {topic}-{partition}"
        wrong = [offset for offset, found in got.items() if sent.get(offset) != found]
        if wrong:
            self.report.findings.append(f"{name}: offsets {wrong[:5]} are not what was sent")
        expected = set(sent)
        if topic.startswith("compacted"):
            newest = {key: offset for offset, (key, _) in sorted(sent.items())}
            expected = set(newest.values())
        if missing := expected - set(got):
            self.report.findings.append(f"{name}: {len(missing)} skipped, from {min(missing)} on")

    def _read(self, topic: str, partition: int) -> dict[int, tuple[bytes, bytes]]:
        last = max(self._sent[topic, partition])
        reader = self._reader()
        reader.assign([TopicPartition(topic, partition, 0)])
        got: dict[int, tuple[bytes, bytes]] = {}
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while last not in got and time.monotonic() < deadline:
            for message in reader.consume(500, 0.2):
                if message.error() is None:
                    offset = message.offset()
                    assert offset is not None
                    if offset in got:
                        self.report.findings.append(f"{topic}-{partition}: {offset} came twice")
                    got[offset] = (message.key() or b"", message.value() or b"")
        reader.close()
        return got

    def _check_group(self, when: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        expected = {place: 7 + place[1] for place in self._sent}
        found: dict[Place, int] = {}
        while found != expected and time.monotonic() < deadline:
            with contextlib.suppress(KafkaException, TimeoutError):
                # A new client each time: one that knew the coordinator before an outage waits for it
                # for ever (librdkafka 2.16, a broker "terminating in state TRY_CONNECT").
                admin = self._cluster.admin()
                asked = ConsumerGroupTopicPartitions(GROUP)
                listed = admin.list_consumer_group_offsets([asked])[GROUP].result(10)
                found = {
                    (each.topic, each.partition): each.offset for each in listed.topic_partitions
                }
        if found != expected:
            self.report.findings.append(f"{when}: the group's offsets are {found}")


def run(*, places: int, seed: int, print_line: Callable[[str], None], folder: Path) -> Report:
    """Corrupt so many places, a few in each round, and report the findings."""
    with cluster_processes(nodes=BROKERS, folder=folder, settings=SETTINGS) as cluster:
        corruption = CorruptionRun(cluster, seed, print_line)
        corruption.prepare()
        report = corruption.report
        while report.places < places and not report.findings:
            corruption.round(min(PLACES_PER_ROUND, places - report.places))
        logs = [broker.log for broker in cluster.brokers.values()]
        report.damage_lines = sum(len(re.findall(r"damage|is gone|cut off", log)) for log in logs)
        if report.findings:
            print_line(f"the logs are in {folder}")
        return report


def main(arguments: list[str] | None = None) -> int:
    """Run once; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m chaos.corruption", description=__doc__)
    parser.add_argument("--places", type=int, default=200, help="number of places to corrupt")
    parser.add_argument("--seed", type=int, default=1, help="seed of the places")
    parser.add_argument("--folder", type=Path, help="folder for the cluster, which is kept")
    chosen = parser.parse_args(arguments)

    def print_line(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    with contextlib.ExitStack() as stack:
        folder = chosen.folder
        if folder is None:
            prefix = "zhumq-corruption-"
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix)))
        begun = time.monotonic()
        report = run(places=chosen.places, seed=chosen.seed, print_line=print_line, folder=folder)
    for finding in report.findings:
        print_line(f"FOUND {finding}")
    print_line(
        f"{report.places} places in {time.monotonic() - begun:.0f} s, seed {chosen.seed}:"
        f" {report.kinds}, {report.refused_starts} starts refused,"
        f" {report.damage_lines} lines about damage in the logs, {len(report.findings)} findings"
    )
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
