"""The two load programs in C: built once, run as processes, their JSON read back."""

import json
import os
import subprocess

from benchmarks.server import BUILD, REPOSITORY, Measured

SOURCES = REPOSITORY / "benchmarks" / "loader"
LIBRDKAFKA = BUILD / "conformance" / "librdkafka" / "src" / "src"
BINARIES = BUILD / "bench"
WARNINGS = ("-O2", "-Wall", "-Wextra", "-Werror")
RUN_WAIT_S = 600

Figures = dict[str, float]


def build_loaders() -> None:
    """Build programs older than their source; librdkafka first, by the script of its conformance suite."""
    subprocess.run([REPOSITORY / "conformance" / "librdkafka" / "build", "libs"], check=True)
    BINARIES.mkdir(parents=True, exist_ok=True)
    libraries = ("-lm", "-lssl", "-lcrypto", "-lz", "-ldl", "-lpthread", "-lrt")
    compile_if_older("requests", (), ())
    compile_if_older(
        "client",
        ("-isystem", str(LIBRDKAFKA)),
        (str(LIBRDKAFKA / "librdkafka.a"), *libraries),
    )


def compile_if_older(name: str, flags: tuple[str, ...], libraries: tuple[str, ...]) -> None:
    source, binary = SOURCES / f"{name}.c", BINARIES / name
    if binary.exists() and binary.stat().st_mtime >= source.stat().st_mtime:
        return
    subprocess.run(
        ["gcc", *WARNINGS, *flags, "-o", str(binary), str(source), *libraries], check=True
    )


def run_loader(program: str, *words: object, ca_file: str = "") -> Figures:
    """Run a load program to its end; returns the JSON object that it prints. With a CA: over TLS."""
    done = subprocess.run(
        [str(BINARIES / program), *map(str, words)],
        capture_output=True, text=True, timeout=RUN_WAIT_S, check=False,
        env={**os.environ, **({"BENCH_CA": ca_file} if ca_file else {})},
    )  # fmt: skip
    if done.returncode:
        raise LoaderFailed(f"{program} {' '.join(map(str, words))}: {done.stderr.strip()[-500:]}")
    figures: Figures = json.loads(done.stdout)
    return figures


class LoaderFailed(Exception):
    """A load program failed; the message holds its error output."""


def produce(
    server: Measured, topic: str, *, partitions: int, count: int, size: int, acks: int
) -> Figures:
    words = ("produce", server.bootstrap, topic, partitions, count, size, acks)
    return run_loader("client", *words, ca_file=server.ca_file)


def consume(server: Measured, topic: str, *, partitions: int, count: int) -> Figures:
    words = ("consume", server.bootstrap, topic, partitions, count)
    return run_loader("client", *words, ca_file=server.ca_file)


def latency(server: Measured, topic: str, *, rate: int, seconds: int, acks: int = 1) -> Figures:
    words = ("latency", server.bootstrap, topic, rate, seconds, acks)
    return run_loader("client", *words, ca_file=server.ca_file)


def transact(
    server: Measured, topic: str, *, producers: int, transactions: int, messages: int, size: int
) -> Figures:
    """Each producer has a transactional id and a partition of its own; a consumer reads at read_committed."""
    words = ("transact", server.bootstrap, topic, producers, transactions, messages, size)
    return run_loader("client", *words, ca_file=server.ca_file)


def one_record_requests(
    server: Measured, topic: str, *, connections: int, in_flight: int, count: int, acks: int
) -> Figures:
    host, _, port = server.bootstrap.rpartition(":")
    return run_loader(
        "requests", "rate", host, port, topic, 1, connections, in_flight, count, 100, acks
    )


def first_acknowledged_ns(server: Measured, topic: str) -> float:
    """The monotonic time of the first acknowledged record; tries twice a millisecond from now on."""
    host, _, port = server.bootstrap.rpartition(":")
    return run_loader("requests", "first", host, port, topic)["acknowledged_at_ns"]
