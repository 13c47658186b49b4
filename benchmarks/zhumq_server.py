"""Starts zhumq for the benchmark and the conformance suites: a process on free ports."""

import compileall
from collections.abc import Mapping
from pathlib import Path

from benchmarks.server import REPOSITORY, Prepared, free_ports


def prepare_zhumq(
    directory: Path,
    *,
    tree: Path = REPOSITORY,
    name: str = "zhumq",
    settings: Mapping[str, str] | None = None,
    broker_id: int = 0,
    zookeeper: str | None = None,
    protocol: str = "PLAINTEXT",
    ca_file: str = "",
) -> Prepared:
    """A broker of a checkout, with its data below `directory`, on a port chosen before it starts."""
    # A checkout may have no bytecode; pip compiles it when it installs a package.
    compileall.compile_dir(tree / "src", quiet=2)
    data = directory / "zhumq-data"
    (kafka_port,) = free_ports(1)
    return Prepared(
        name=name,
        command=(
            str(tree / ".venv" / "bin" / "zhumq"), "start", "--listen", f"{protocol}://127.0.0.1:{kafka_port}", "--http", "127.0.0.1:0",
            "--data-dir", str(data), "--broker-id", str(broker_id),
            *(("--zookeeper", zookeeper) if zookeeper else ()),
            f"--set=advertised.listeners={protocol}://127.0.0.1:{kafka_port}",  # written out, as Kafka's has to be
            *(f"--set={key}={value}" for key, value in (settings or {}).items()),
        ),
        bootstrap=f"127.0.0.1:{kafka_port}",
        data=data,
        log=directory / "zhumq.log",
        output=directory / "zhumq.out",
        ca_file=ca_file,
    )  # fmt: skip
