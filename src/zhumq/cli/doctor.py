"""`zhumq doctor`: check what zhumq needs on this machine, with advice for what is missing."""

import importlib.metadata
import importlib.util
import os
import resource
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Final

import typer

from zhumq.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_HTTP, CommandFailed
from zhumq.cli.output import headings, print_table
from zhumq.host.java import MAJOR_VERSION_MIN, JavaMissing, find_java
from zhumq.model.address import parse_address

app = typer.Typer()

PYTHON_MIN: Final = (3, 11)
OPEN_FILES_MIN: Final = 4096  # three files a segment, and a socket a client
PORT_SECONDS_MAX: Final = 0.5
# Of each extra: what needs it, and those of its packages that no extra above it has.
EXTRAS: Final = {
    "push": ("push consumers and the broker's push listener need it", ("grpcio", "protobuf")),
    "avro": ("`zhumq.Avro` needs it", ("fastavro",)),
    "console": ("`zhumq web` needs it", ("starlette", "uvicorn", "msgspec")),
    "registry": (
        "the schema registry of `zhumq web` and `zhumq schema` need it",
        ("jsonschema", "grpcio-tools"),
    ),
    "ui": ("`zhumq ui` needs it", ("textual",)),
    "tracing": ("`zhumq.Tracing` needs it", ("opentelemetry-api",)),
    "cluster": ("`zhumq start --zookeeper` needs it", ("kazoo",)),
    "security": (
        "PKCS#12 key stores, `zhumq tls dev` and OAUTHBEARER need it",
        ("cryptography", "PyJWT"),
    ),
    "spark": (
        "the Spark source needs it",
        ("pyspark", "pyarrow", "pandas", "numpy", "PyYAML", "matplotlib"),
    ),
    "iceberg": ("`format: iceberg` in pipelines needs it", ("pyiceberg", "SQLAlchemy")),
}
PANDAS_MAJOR_MAX: Final = 2  # PySpark 4.3 does not work with 3


class State(StrEnum):
    """The result of a check."""

    OK = "ok"
    OPTIONAL = "optional"  # missing, and only some feature needs it
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check with its result."""

    what: str
    state: State
    found: str
    advice: str | None = None


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show what is installed on this machine and what is missing.

    The exit code is 0 unless a requirement of zhumq is not met.
    """
    findings = list(examine())
    rows = [asdict(each) for each in findings]
    columns = headings("what state found advice", advice="WHAT TO DO")
    print_table(rows, columns, empty="", as_json=as_json)
    problems = [each for each in findings if each.state is State.PROBLEM]
    if problems:
        raise CommandFailed(
            f"{problems[0].what}: {problems[0].found}; {problems[0].advice or 'see above'}"
        )


def examine() -> Iterator[Finding]:
    """All checks, the most important first."""
    yield _python()
    yield _open_files()
    yield _port("kafka port", DEFAULT_BOOTSTRAP)
    yield _port("http port", DEFAULT_HTTP)
    yield _java()
    for extra, (need, names) in EXTRAS.items():
        for name in names:
            yield _package(name, f"{need}: pip install 'zhumq[{extra}]'")
    yield _source()
    yield _program("kcat", "its test is skipped: apt-get install kcat")


def _python() -> Finding:
    words = f"{sys.version.split()[0]} at {sys.executable}"
    if sys.version_info >= PYTHON_MIN:
        return Finding(what="python", state=State.OK, found=words)
    oldest = ".".join(map(str, PYTHON_MIN))
    return Finding(
        what="python", state=State.PROBLEM, found=words, advice=f"use Python {oldest} or newer"
    )


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    words = f"{_limit(soft)} (at most {_limit(hard)})"
    # The broker raises the soft limit itself, so only the hard limit matters.
    if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES_MIN:
        return Finding(what="open files", state=State.OK, found=words)
    return Finding(
        what="open files",
        state=State.OPTIONAL,
        found=words,
        advice=f"many partitions or clients need more: ulimit -Hn {OPEN_FILES_MIN}",
    )


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _port(what: str, address: str) -> Finding:
    where = parse_address(address)
    try:
        socket.create_connection((where.host, where.port), timeout=PORT_SECONDS_MAX).close()
    except OSError:
        return Finding(what=what, state=State.OK, found=f"{address} is free")
    return Finding(
        what=what,
        state=State.OPTIONAL,
        found=f"{address} is in use",
        advice="a broker may be running; another one needs --listen and --http",
    )


def _java() -> Finding:
    try:
        java = find_java()
        version = java.major_version()
    except JavaMissing as error:
        return Finding(
            what="java",
            state=State.OPTIONAL,
            found=str(error),
            advice="Spark and the development ZooKeeper need it: pip install 'zhumq[spark]'",
        )
    words = f"{version} from {java.origin} at {java.executable}"
    if version >= MAJOR_VERSION_MIN:
        return Finding(what="java", state=State.OK, found=words)
    return Finding(
        what="java",
        state=State.OPTIONAL,
        found=words,
        advice=f"Spark needs Java {MAJOR_VERSION_MIN} or newer: set JAVA_HOME to one",
    )


def _package(name: str, advice: str) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(
            what=name,
            state=State.OPTIONAL,
            found="not installed",
            advice=advice,
        )
    if name == "pandas" and int(version.partition(".")[0]) > PANDAS_MAJOR_MAX:
        return Finding(
            what=name,
            state=State.OPTIONAL,
            found=version,
            advice="PySpark does not work with it yet: pip install 'pandas<3'",
        )
    return Finding(what=name, state=State.OK, found=version)


def _source() -> Finding:
    if importlib.util.find_spec("pyspark_zhumq") is not None:
        return Finding(what="spark source", state=State.OK, found='format("zhumq") is registered')
    return Finding(
        what="spark source",
        state=State.OPTIONAL,
        found="the package pyspark_zhumq cannot be imported",
        advice="install zhumq again in this environment",
    )


def _program(name: str, advice: str) -> Finding:
    path: str | None = shutil.which(name, mode=os.X_OK)
    if path is not None:
        return Finding(what=name, state=State.OK, found=path)
    return Finding(what=name, state=State.OPTIONAL, found="not on the PATH", advice=advice)
