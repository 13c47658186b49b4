"""Runs every client's suite against its own new broker and prints a summary; `make conformance` calls it."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from benchmarks.kafka_peer import prepare_kafka
from benchmarks.server import REPOSITORY, Prepared
from benchmarks.three_nodes import CLUSTERS
from benchmarks.zhumq_server import prepare_zhumq

from conformance import compacted
from conformance.secured_kafka import USERS, SecuredCluster, secured_kafka
from conformance.secured_zhumq import ADMIN, secured_zhumq

SUITES = (
    "kafka-python", "librdkafka", "franz-go", "kafka-go", "java", "java-registry", "kafkajs", "go-queue", "spark-kafka",
    "secure", "transactions",
)  # fmt: skip
OWN_BROKER = ("secure", "transactions")  # they start one themselves
# The broker settings that the projects of the suites use.
SETTINGS = {
    "num.partitions": "4",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    # Kafka's default. Messages of 1970, which some tests send, are gone after the first check.
    "log.retention.check.interval.ms": "300000",
    **compacted.BROKER_SETTINGS,
}
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
BROKERS: Mapping[str, Callable[..., Prepared]] = {"zhumq": prepare_zhumq, "kafka": prepare_kafka}
SECURED_BROKERS: Mapping[str, Callable[..., AbstractContextManager[SecuredCluster]]] = {
    "zhumq": secured_zhumq,
    "kafka": secured_kafka,
}


def run_suite(suite: str, broker: str, root: Path) -> tuple[int, str]:
    """Run one suite; returns its exit code and its last line."""
    if suite in OWN_BROKER:
        return _run(suite, {"BROKER": broker})
    prepare = BROKERS[broker]
    with ExitStack() as stack:
        folder = root / suite
        folder.mkdir(parents=True)
        server = stack.enter_context(prepare(folder, settings=SETTINGS).start())
        environment = {
            "BOOTSTRAP": server.bootstrap,
            "DATA_DIR": str(server.data),
            **compacted.make(server.bootstrap, server.data),
        }
        if suite == "librdkafka":
            second = folder / "noautocreate"
            second.mkdir()
            closed = {**SETTINGS, "auto.create.topics.enable": "false"}
            environment["BOOTSTRAP_NOAUTOCREATE"] = stack.enter_context(
                prepare(second, settings=closed).start()
            ).bootstrap
            environment |= _secured(stack, broker, folder / "secured")
            cluster = stack.enter_context(CLUSTERS[broker](folder / "cluster"))
            environment["BOOTSTRAP_CLUSTER"] = cluster.bootstrap
        code, verdict = _run(suite, environment)
        if server.process.poll() is not None:
            return 1, f"{suite}: the broker died\n{server.last_log_lines()}"
        log = REPOSITORY / "build" / "conformance" / suite / f"{broker}.log"
        log.write_bytes(server.log.read_bytes())
    return code, verdict


def _secured(stack: ExitStack, broker: str, folder: Path) -> dict[str, str]:
    """A third broker for librdkafka's tests: with users, and with rules for those whom the tests deny."""
    folder.mkdir()
    settings = {
        **SETTINGS,
        "authorizer.class.name": AUTHORIZER,
        "allow.everyone.if.no.acl.found": "true",
        "connections.max.reauth.ms": "10000",
    }
    cluster = stack.enter_context(SECURED_BROKERS[broker](folder, settings))
    return {
        "BOOTSTRAP_AUTHORIZER": cluster.plaintext,
        "BOOTSTRAP_SASL_SSL": cluster.sasl_ssl,
        "CA": str(cluster.authority.certificate_file),
        "SASL_USER": ADMIN,
        "SASL_PASSWORD": USERS[ADMIN],
    }


def _run(suite: str, environment: Mapping[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        [REPOSITORY / "conformance" / suite / "run"],
        env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    sys.stdout.write(done.stdout)
    sys.stdout.flush()
    lines = [line for line in done.stdout.splitlines() if " passed, " in line]
    return done.returncode, lines[-1] if lines else f"{suite}: no verdict"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", default=[], metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--broker", choices=sorted(BROKERS), default="zhumq")
    arguments = parser.parse_args()
    unknown = set(arguments.suites) - set(SUITES)
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    verdicts: list[str] = []
    failed = False
    with tempfile.TemporaryDirectory(prefix="zhumq-conformance-") as root:
        for suite in arguments.suites or SUITES:
            began = time.monotonic()
            code, verdict = run_suite(suite, arguments.broker, Path(root))
            failed = failed or code != 0
            word = "ok" if code == 0 else "FAILED"
            verdicts.append(f"{word:6} {verdict} ({time.monotonic() - began:.0f} s)")
    print(f"\nconformance of {arguments.broker}")
    print("\n".join(verdicts))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
