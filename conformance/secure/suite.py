"""Starts a secured broker, runs every client over both protocols and Kafka's commands, and prints a table."""

import argparse
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.server import REPOSITORY
from confluent_kafka.admin import AdminClient, NewTopic
from tests.certificates import Certificate

from conformance.secure.commands import PREFIX, USER, Commands
from conformance.secure.tools import Tools, certificate_properties, scram_properties
from conformance.secured_kafka import USERS, SecuredCluster, secured_kafka
from conformance.secured_zhumq import ADMIN, secured_zhumq

CLIENTS = REPOSITORY / "conformance" / "secure" / "clients"
PYTHON = str(REPOSITORY / ".venv" / "bin" / "python")
PROTOCOLS = ("SASL_SSL", "SSL")
STEPS = ("create", "describe", "produce", "consume", "group", "delete", "refused")
WITHOUT_ADMINISTRATION = {"kcat": ("create", "delete"), "spark": ("create", "describe", "delete")}
CLIENT_WAIT_S = 420
TOPIC_WAIT_S = 60
JAVA_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
SETTINGS = {
    "super.users": f"User:{ADMIN}",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "connections.max.reauth.ms": "0",
}
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
BROKERS = {
    # Kafka's broker and controller talk to each other on the plain listeners.
    "kafka": (secured_kafka, {"super.users": f"User:{ADMIN};User:ANONYMOUS"}),
    "zhumq": (secured_zhumq, {}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run has its files."""

    build: Path
    libs: Path
    logs: Path

    @property
    def java(self) -> tuple[str, ...]:
        logging = f"-Dlog4j2.configurationFile={self.build / 'log4j2.properties'}"
        return ("java", *JAVA_OPTIONS, logging, "-cp", f"{self.build / 'classes'}:{self.libs}/*")

    def program(self, client: str) -> tuple[str, ...]:
        programs: dict[str, tuple[str, ...]] = {
            "librdkafka": (PYTHON, str(CLIENTS / "python" / "librdkafka.py")),
            "java": (*self.java, "secure.Steps"),
            "franz-go": (str(self.build / "franzgo"),),
            "kafka-go": (str(self.build / "kafkago"),),
            "sarama": (str(self.build / "sarama"),),
            "kafkajs": ("node", str(CLIENTS / "javascript" / "kafkajs.js")),
            "kafka-python": (PYTHON, str(CLIENTS / "python" / "kafka_python.py")),
            "aiokafka": (PYTHON, str(CLIENTS / "python" / "aiokafka_client.py")),
            "kcat": (str(CLIENTS / "shell" / "kcat.sh"),),
            "spark": (PYTHON, str(CLIENTS / "python" / "spark_kafka.py")),
        }
        return programs[client]


# The slow ones first: they run beside the quick ones.
NAMES = (
    "spark", "java", "kafkajs", "sarama", "kafka-go", "franz-go", "kafka-python", "librdkafka", "kcat", "aiokafka",
)  # fmt: skip


def steps_of(client: str) -> list[str]:
    return [step for step in STEPS if step not in WITHOUT_ADMINISTRATION.get(client, ())]


class Results:
    """The verdict of each test, kept in a file for the end of the run."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.verdicts: dict[str, str] = {}
        file.write_text("")

    def add(self, verdict: str, name: str) -> None:
        self.verdicts[name] = verdict
        with self._file.open("a") as file:
            file.write(f"{verdict}\t{name}\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    place: Place
    cluster: SecuredCluster
    certificate: Certificate
    topics: AdminClient  # for clients that cannot create topics
    results: Results

    def client(self, client: str, protocol: str) -> None:
        """Run the program of a client; a step that it does not report has failed."""
        topic = f"{PREFIX}{client}-{protocol.lower().replace('_', '-')}"
        is_sasl = protocol == "SASL_SSL"
        who = (
            ("--user", USER, "--password", USERS[USER])
            if is_sasl
            else ("--certificate", str(self.certificate.certificate_file), "--key", str(self.certificate.key_file))
        )  # fmt: skip
        began = time.monotonic()
        log = self.place.logs / f"{client}-{protocol}.log"
        has_topics = client not in WITHOUT_ADMINISTRATION
        if not has_topics:
            self.topics.create_topics([NewTopic(topic, 2, 1)])[topic].result(TOPIC_WAIT_S)
        with log.open("w") as errors:
            try:
                done = subprocess.run(
                    [
                        *self.place.program(client),
                        "--bootstrap", self.cluster.sasl_ssl if is_sasl else self.cluster.ssl,
                        "--protocol", protocol, "--ca", str(self.cluster.authority.certificate_file),
                        *who, "--topic", topic,
                    ],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=CLIENT_WAIT_S, check=False,
                    cwd=self.place.logs,
                )  # fmt: skip
                output = done.stdout
            except subprocess.TimeoutExpired as late:
                output = (late.stdout or b"").decode()
        if not has_topics:
            self.topics.delete_topics([topic])[topic].result(TOPIC_WAIT_S)
        found = dict(line.split("\t")[::-1] for line in output.splitlines() if "\t" in line)
        for step in steps_of(client):
            self.results.add(found.get(step, "FAIL"), f"{client} {protocol} {step}")
        tell(f"{client} {protocol}", time.monotonic() - began, output)

    def command(self, name: str, body: Callable[[], None]) -> None:
        began = time.monotonic()
        verdict = "FAIL"
        try:
            body()
            verdict = "PASS"
        except Exception:
            with (self.place.logs / "commands.log").open("a") as log:
                log.write(f"FAILED: {name}\n{traceback.format_exc()}")
        self.results.add(verdict, f"commands: {name}")
        tell(f"commands: {name}", time.monotonic() - began, verdict)


def tell(name: str, seconds: float, output: str) -> None:
    failed = " FAILED" if "FAIL" in output else ""
    print(f"{seconds:6.1f} s  {name}{failed}", file=sys.stderr, flush=True)


def table(verdicts: dict[str, str]) -> str:
    """One line for each client and protocol, one column for each step."""
    words = {"PASS": "ok", "FAIL": "FAILED"}
    lines = [f"{'client':<14}{'protocol':<10}" + "".join(f"{step:<10}" for step in STEPS)]
    for client in sorted(NAMES):
        for protocol in PROTOCOLS:
            cells = [verdicts.get(f"{client} {protocol} {step}") for step in STEPS]
            if any(cells):
                shown = "".join(f"{words.get(cell or '', '-'):<10}" for cell in cells)
                lines.append(f"{client:<14}{protocol:<10}{shown}".rstrip())
    commands = {name: cell for name, cell in verdicts.items() if name.startswith("commands")}
    lines += [f"{words[cell]:<8}{name}" for name, cell in commands.items()]
    return "\n".join(lines)


def run_all(run: Run, commands: Commands, *, only: str, jobs: int) -> None:
    first, others = commands.before_clients(), commands.beside_clients()
    clients = [
        (name, protocol)
        for name in NAMES
        for protocol in PROTOCOLS
        if re.search(only, f"{name} {protocol}")
    ]
    chosen = {name: body for name, body in others.items() if re.search(only, f"commands: {name}")}
    # What never gets to report has failed.
    for name in (*first, *chosen):
        run.results.add("FAIL", f"commands: {name}")
    for name, protocol in clients:
        for step in steps_of(name):
            run.results.add("FAIL", f"{name} {protocol} {step}")
    for name, body in first.items():
        run.command(name, body)
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(run.client, *each) for each in clients]
        waiting += [pool.submit(run.command, *each) for each in chosen.items()]
    for each in waiting:
        each.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=sorted(BROKERS), default="zhumq")
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--libs", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    logs = arguments.build / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "commands.log").write_text("")
    results = Results(arguments.results)
    place = Place(build=arguments.build, libs=arguments.libs, logs=logs)
    start, own = BROKERS[arguments.broker]
    settings = {**SETTINGS, "authorizer.class.name": AUTHORIZER, **own}
    with tempfile.TemporaryDirectory(prefix="conformance-secure-") as temporary:
        folder = Path(temporary)
        with start(folder, settings) as cluster:
            certificate = cluster.authority.issue(USER)
            commands = commands_of(place, cluster, certificate, folder)
            run = Run(
                place=place,
                cluster=cluster,
                certificate=certificate,
                topics=admin_of(cluster),
                results=results,
            )
            try:
                run_all(run, commands, only=arguments.only, jobs=arguments.jobs)
            finally:
                assert cluster.server is not None
                log = arguments.build / f"{arguments.broker}.log"
                log.write_bytes(cluster.server.log.read_bytes())
            died = cluster.server.process.poll() is not None
    print(table(results.verdicts))
    if died:
        results.add("FAIL", "the broker lives to the end")


def admin_of(cluster: SecuredCluster) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": cluster.sasl_ssl,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(cluster.authority.certificate_file),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": ADMIN,
            "sasl.password": USERS[ADMIN],
            "log_level": 0,  # it need not say that the broker ended before it
        }
    )


def commands_of(
    place: Place, cluster: SecuredCluster, certificate: Certificate, folder: Path
) -> Commands:
    ca = cluster.authority.certificate_file
    log = place.logs / "commands.log"

    def by_password(user: str, password: str) -> Tools:
        file = folder / f"{user}-{len(password)}.properties"
        properties = scram_properties(file, ca=ca, user=user, password=password)
        return Tools(java=place.java, bootstrap=cluster.sasl_ssl, properties=properties, log=log)

    by_certificate = certificate_properties(
        folder / "certificate.properties", ca=ca, certificate=certificate
    )
    return Commands(
        admin=by_password(ADMIN, USERS[ADMIN]),
        by_password=by_password(USER, USERS[USER]),
        by_certificate=Tools(
            java=place.java, bootstrap=cluster.ssl, properties=by_certificate, log=log
        ),
        as_other=by_password(USER, "not " + USERS[USER]),
        password=USERS[USER],
    )


if __name__ == "__main__":
    main()
