"""Plays the matrix of rights against Apache Kafka: what it expects of a broker has to be what Kafka does."""

import sys
import tempfile
from pathlib import Path

from benchmarks.kafka_peer import prepare_kafka
from tests.access_check import World, check_row
from tests.access_matrix import ROWS

from zhumq.protocol.api import OWN_KEY_MIN

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "true",
    "group.coordinator.rebalance.protocols": "classic,consumer,share",
    # InitProducerId 6 (two-phase commit) and others that it has, but does not serve by default.
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
}
# Kafka 4.3.1 fails while it refuses these (its error response reads the names of a null list), and never answers.
NEVER_ANSWERED = frozenset({"DESCRIBE_USER_SCRAM_CREDENTIALS of all users"})


def main() -> int:
    wrong = 0
    rows = [row for row in ROWS if row.key < OWN_KEY_MIN and str(row) not in NEVER_ANSWERED]
    with (
        tempfile.TemporaryDirectory(prefix="access-matrix-") as folder,
        prepare_kafka(Path(folder), settings=SETTINGS).start() as server,
    ):
        world = World.by_address(server.bootstrap, quotes_requests=True)
        for row in rows:
            for each in check_row(world, row):
                wrong += 1
                sys.stdout.write(f"{row}: {each}\n")
        world.close()
    sys.stdout.write(f"{len(rows)} requests, {wrong} differences from Apache Kafka\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
