"""Runs every client with transactions, programs that are killed, and kafka-transactions, and prints a table."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks.kafka_peer import prepare_kafka
from benchmarks.zhumq_server import prepare_zhumq
from confluent_kafka import Producer

from conformance.transactions.commands import Commands
from conformance.transactions.killed import KilledPrograms, Topics
from conformance.transactions.programs import KilledBroker, Programs

STEPS = ("commit", "abort", "committed", "uncommitted", "offsets", "fenced", "misuse")
READS = ("committed", "uncommitted")
NAMES = (
    "java", "librdkafka", "franz-go", "sarama", "kafkajs", "kafka-python", "aiokafka", "kafka-go",
)  # fmt: skip
BROKERS = {"kafka": prepare_kafka, "zhumq": prepare_zhumq}
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
CLIENT_WAIT_S = 300
VALUES = 3
SEED = 1


def steps_of(client: str) -> tuple[str, ...]:
    return READS if client == "kafka-go" else STEPS  # it has no transactional producer


class Suite:
    """One run against one broker."""

    def __init__(
        self, programs: Programs, broker: KilledBroker, folder: Path, results: Path
    ) -> None:
        self._programs = programs
        self._broker = broker
        self._topics = Topics(programs.bootstrap)
        self._folder = folder
        self._results = results
        self.verdicts: dict[str, str] = {}
        results.write_text("")

    def run(self, only: str) -> None:
        killed = KilledPrograms(self._programs, self._broker, self._topics, self._folder, SEED)
        others: dict[str, Callable[[], None]] = {
            "kafka-transactions": Commands(self._programs, self._topics).run,
            "a copier that is killed": killed.copier,
            "Kafka Streams that is killed": killed.streams,
            "Kafka Connect that is killed": killed.connect,
        }
        for name in NAMES:
            if re.search(only, name):
                self._client(name)
        for name, body in others.items():
            if re.search(only, name):
                self._other(name, body)

    def _client(self, name: str) -> None:
        first, second = f"{name}-first", f"{name}-second"
        self._topics.create(first, second)
        if name == "kafka-go":
            write_transactions(self._programs.bootstrap, first, second)
        began = time.monotonic()
        with (self._programs.logs / f"{name}.log").open("w") as errors:
            try:
                done = subprocess.run(
                    [
                        *self._programs.client(name), "--bootstrap", self._programs.bootstrap, "--first", first, "--second", second,
                        "--id", f"{name}-transactions", "--group", f"{name}-group",
                    ],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=CLIENT_WAIT_S, check=False,
                )  # fmt: skip
                output = done.stdout
            except subprocess.TimeoutExpired as late:
                output = (late.stdout or b"").decode()
        found = dict(line.split("\t")[::-1] for line in output.splitlines() if "\t" in line)
        for step in steps_of(name):
            self._note(found.get(step, "FAIL"), f"{name} {step}")
        failed = " FAILED" if "PASS" not in found.values() or "FAIL" in found.values() else ""
        tell(f"{name}{failed}", began)

    def _other(self, name: str, body: Callable[[], None]) -> None:
        began = time.monotonic()
        verdict = "FAIL"
        try:
            body()
            verdict = "PASS"
        except Exception:
            with (self._programs.logs / "others.log").open("a") as log:
                log.write(f"FAILED: {name}\n{traceback.format_exc()}")
        self._note(verdict, name)
        tell(f"{name} {verdict}", began)

    def _note(self, verdict: str, name: str) -> None:
        self.verdicts[name] = verdict
        with self._results.open("a") as file:
            file.write(f"{verdict}\t{name}\n")


def write_transactions(bootstrap: str, first: str, second: str) -> None:
    """What the other clients write themselves."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{first}-writer"})
    producer.init_transactions(CLIENT_WAIT_S)
    for word in ("committed", "aborted", "again"):
        producer.begin_transaction()
        for number in range(VALUES):
            for topic in (first, second):
                producer.produce(topic, f"{word}-{number}")
        producer.flush(CLIENT_WAIT_S)
        (producer.abort_transaction if word == "aborted" else producer.commit_transaction)(
            CLIENT_WAIT_S
        )
    plain = Producer({"bootstrap.servers": bootstrap})
    for topic in (first, second):
        plain.produce(topic, b"end")
    assert plain.flush(CLIENT_WAIT_S) == 0


def tell(words: str, began: float) -> None:
    print(f"{time.monotonic() - began:6.1f} s  {words}", file=sys.stderr, flush=True)


def table(verdicts: dict[str, str]) -> str:
    """One line for each client, one column for each step; then the other checks."""
    words = {"PASS": "ok", "FAIL": "FAILED"}
    lines = [f"{'client':<14}" + "".join(f"{step:<13}" for step in STEPS)]
    for client in sorted(NAMES):
        cells = [verdicts.get(f"{client} {step}") for step in STEPS]
        if any(cells):
            shown = "".join(f"{words.get(cell or '', '-'):<13}" for cell in cells)
            lines.append(f"{client:<14}{shown}".rstrip())
    clients = tuple(f"{name} " for name in NAMES)
    lines += [
        f"{words[verdict]:<8}{name}"
        for name, verdict in verdicts.items()
        if not name.startswith(clients)
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=sorted(BROKERS), default="zhumq")
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--libs", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    logs = arguments.build / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    for each in logs.iterdir():
        each.unlink()
    os.chdir(logs)
    with tempfile.TemporaryDirectory(prefix="conformance-transactions-") as temporary:
        folder = Path(temporary)
        broker = KilledBroker(BROKERS[arguments.broker](folder, settings=SETTINGS))
        programs = Programs(
            build=arguments.build, kafka_libs=arguments.libs, bootstrap=broker.bootstrap, logs=logs
        )
        suite = Suite(programs, broker, folder, arguments.results)
        try:
            suite.run(arguments.only)
        finally:
            has_died = broker.stop()
            log = arguments.build / f"{arguments.broker}.log"
            log.write_bytes(broker.log.read_bytes())
    print(table(suite.verdicts))
    if has_died:
        with arguments.results.open("a") as file:
            file.write("FAIL\tthe broker lives to the end\n")


if __name__ == "__main__":
    main()
