"""Kafka's own kafka-acls against a broker with an authorizer: adds, lists by a match, denies, removes."""

import subprocess
import sys

from benchmarks.kafka_peer import install

from zhumq.testing.broker import broker

SECONDS_MAX = 120
SETTINGS = {"authorizer.class.name": "zhumq", "super.users": "User:ANONYMOUS"}
COMMAND = "org.apache.kafka.tools.AclCommand"
# Arguments, and what the tool has to print.
STEPS = (
    (("--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders"), "Adding ACLs"),
    (
        ("--add", "--allow-principal", "User:bob", "--consumer", "--topic", "ord", "--group", "g",
         "--resource-pattern-type", "prefixed"),
        "name=ord, patternType=PREFIXED",
    ),
    (
        ("--add", "--deny-principal", "User:eve", "--deny-host", "10.0.0.1", "--operation", "All", "--cluster"),
        "host=10.0.0.1, operation=ALL, permissionType=DENY",
    ),
    (("--list", "--topic", "orders", "--resource-pattern-type", "match"), "principal=User:alice, host=*, operation=WRITE"),
    (("--list", "--topic", "orders", "--resource-pattern-type", "match"), "principal=User:bob, host=*, operation=READ"),
    (("--remove", "--topic", "orders", "--force"), ""),
    (("--list", "--principal", "User:eve"), "name=kafka-cluster"),
)  # fmt: skip
GONE = "User:alice"


def main() -> int:
    with broker(settings=SETTINGS) as running:
        java = ["java", "-XX:TieredStopAtLevel=1", "-cp", install(), COMMAND]
        for arguments, expected in (*STEPS, (("--list",), "")):
            done = subprocess.run(
                [*java, "--bootstrap-server", running.bootstrap, *arguments],
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
            if done.returncode or expected not in done.stdout:
                sys.stdout.write(
                    f"FAIL kafka-acls {' '.join(arguments)}: {done.stdout}{done.stderr}\n"
                )
                return 1
    if GONE in done.stdout:
        sys.stdout.write(f"FAIL kafka-acls --remove left {done.stdout}\n")
        return 1
    sys.stdout.write("PASS kafka-acls adds, lists, denies and removes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
