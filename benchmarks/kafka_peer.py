"""Apache Kafka from its published Maven artifacts: one KRaft node, started and stopped like any other server."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from benchmarks.server import REPOSITORY, Server, free_ports, serves, wait_until

FETCH = REPOSITORY / "benchmarks" / "kafka" / "fetch"
HEAP = "1g"

# What Kafka's own start script passes, with the heap of the comparison.
JVM_OPTIONS = (
    "-server",
    f"-Xmx{HEAP}",
    f"-Xms{HEAP}",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

LOG4J = """\
Configuration:
  Appenders:
    Console:
      name: STDERR
      target: SYSTEM_ERR
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n"
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        - ref: STDERR
"""


def install() -> str:
    """Fetch the jars with Maven unless they are there for this pom; returns the class path."""
    fetched = subprocess.run([FETCH], check=True, stdout=subprocess.PIPE, text=True)
    return f"{fetched.stdout.strip()}/*"


def settings_of(
    *, port: int, controller_port: int, data: Path, extra: Mapping[str, str]
) -> dict[str, str]:
    """A single node that plays both roles; every internal topic has one replica."""
    return {
        "process.roles": "broker,controller",
        "node.id": "0",
        "controller.quorum.voters": f"0@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **extra,
    }


def start_kafka(directory: Path, *, settings: Mapping[str, str] | None = None) -> Server:
    """Format the storage below `directory` if it is new, start the node, return once it serves."""
    server = launch_kafka(directory, settings=settings)
    wait_until(lambda: serves(server.bootstrap), server)
    return server


def launch_kafka(directory: Path, *, settings: Mapping[str, str] | None = None) -> Server:
    """Start the process and return at once: the measurement of the start time waits by itself."""
    class_path = install()
    data = directory / "kafka-data"
    port, controller_port = free_ports(2)
    properties = directory / "server.properties"
    properties.write_text(
        "".join(
            f"{key}={value}\n"
            for key, value in settings_of(
                port=port, controller_port=controller_port, data=data, extra=settings or {}
            ).items()
        )
    )
    log4j = directory / "log4j2.yaml"
    log4j.write_text(LOG4J)
    java = ["java", f"-Dlog4j2.configurationFile={log4j}", "-cp", class_path]
    log = directory / "kafka.log"
    with log.open("ab") as stderr:
        if not (data / "meta.properties").exists():
            cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            subprocess.run(
                [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)],
                check=True, stdout=stderr, stderr=stderr,
            )  # fmt: skip
        process = subprocess.Popen(
            [java[0], *JVM_OPTIONS, *java[1:], "kafka.Kafka", str(properties)],
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            env={**os.environ, "LC_ALL": "C"},
        )
    return Server(
        name="kafka", process=process, bootstrap=f"127.0.0.1:{port}", data=data, log=log
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Run one Apache Kafka node until Ctrl-C.")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    settings = dict(each.split("=", 1) for each in arguments.set)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the node is stopped with us
    with tempfile.TemporaryDirectory(prefix="kafka-peer-") as temporary:
        directory = arguments.data_dir or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        with start_kafka(directory, settings=settings) as server, suppress(KeyboardInterrupt):
            sys.stdout.write(f"kafka ready kafka={server.bootstrap} pid={server.pid}\n")
            sys.stdout.flush()
            server.process.wait()


if __name__ == "__main__":
    main()
