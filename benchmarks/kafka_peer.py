"""Apache Kafka from its published Maven artifacts: one KRaft node, started and stopped like any other server."""

import argparse
import signal
import subprocess
import sys
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.server import REPOSITORY, Prepared, free_ports

FETCH = REPOSITORY / "benchmarks" / "kafka" / "fetch"
HEAP = "1g"

# The options of Kafka's own start script, with the heap of the comparison.
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
    """Fetch the jars with Maven unless they exist for this pom; returns the class path."""
    fetched = subprocess.run([FETCH], check=True, stdout=subprocess.PIPE, text=True)
    return f"{fetched.stdout.strip()}/*"


def settings_of(
    *,
    port: int,
    controller_ports: Sequence[int],
    data: Path,
    extra: Mapping[str, str],
    node_id: int = 0,
    protocol: str = "PLAINTEXT",
) -> dict[str, str]:
    """The settings of a node with both roles, broker and controller; internal topics have one replica."""
    controller_port = controller_ports[node_id]
    voters = (f"{number}@127.0.0.1:{each}" for number, each in enumerate(controller_ports))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(voters),
        "listeners": f"{protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"{protocol}://127.0.0.1:{port}",
        "inter.broker.listener.name": protocol,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **extra,
    }


def prepare_kafka(
    directory: Path,
    *,
    settings: Mapping[str, str] | None = None,
    protocol: str = "PLAINTEXT",
    ca_file: str = "",
) -> Prepared:
    """A cluster of one node."""
    port, controller_port = free_ports(2)
    return prepare_kafka_node(
        directory,
        port=port,
        controller_ports=[controller_port],
        cluster_id=new_cluster_id(),
        settings=settings,
        protocol=protocol,
        ca_file=ca_file,
    )


def new_cluster_id() -> str:
    # No leading dash, which the tool would parse as an option.
    return "z" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def prepare_kafka_node(
    directory: Path,
    *,
    port: int,
    controller_ports: Sequence[int],
    cluster_id: str,
    node_id: int = 0,
    settings: Mapping[str, str] | None = None,
    protocol: str = "PLAINTEXT",
    ca_file: str = "",
) -> Prepared:
    """Write the settings, and format the storage below `directory` if it is new."""
    data = directory / "kafka-data"
    log = directory / "kafka.log"
    values = settings_of(
        port=port,
        controller_ports=controller_ports,
        data=data,
        extra=settings or {},
        node_id=node_id,
        protocol=protocol,
    )
    properties = directory / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    log4j = directory / "log4j2.yaml"
    log4j.write_text(LOG4J)
    java = (f"-Dlog4j2.configurationFile={log4j}", "-cp", install())
    if not (data / "meta.properties").exists():
        with log.open("ab") as output:
            subprocess.run(
                ["java", *java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)],
                check=True, stdout=output, stderr=output,
            )  # fmt: skip
    return Prepared(
        name="kafka",
        command=("java", *JVM_OPTIONS, *java, "kafka.Kafka", str(properties)),
        bootstrap=f"127.0.0.1:{port}",
        data=data,
        log=log,
        output=directory / "kafka.out",
        ca_file=ca_file,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Run one Apache Kafka node until Ctrl-C.")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    settings = dict(each.split("=", 1) for each in arguments.set)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops the node with this process
    with tempfile.TemporaryDirectory(prefix="kafka-peer-") as temporary:
        directory = arguments.data_dir or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        with (
            prepare_kafka(directory, settings=settings).start() as server,
            suppress(KeyboardInterrupt),
        ):
            sys.stdout.write(f"kafka ready kafka={server.bootstrap} pid={server.pid}\n")
            sys.stdout.flush()
            server.process.wait()


if __name__ == "__main__":
    main()
