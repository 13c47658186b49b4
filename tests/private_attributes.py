"""Private attributes of the code under test that tests still use: `python tests/private_attributes.py` lists them.

A test that reads or replaces them holds the code to how it is written, not to what it does. The list only gets shorter.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent
# Planted bugs replace private methods: that is what they are for.
EXEMPT = TESTS / "simulation"
# Of a NamedTuple, and the way out of a child process.
PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_exit"}

KNOWN = {
    "chaos/test_serving_probe.py": 2,
    "integration/push/test_push_modes.py": 1,
    "integration/share/test_share_cluster.py": 1,
    "integration/share/test_share_crash.py": 1,
    "integration/spark/test_spark_fetcher.py": 1,
    "integration/zookeeper/test_membership.py": 12,
    "integration/zookeeper/test_zookeeper_store.py": 14,
    "integration/zookeeper/zookeeper_support.py": 2,
    "properties/groups/consumer_world.py": 1,
    "properties/groups/group_world.py": 2,
    "properties/share/test_share_partition_against_model.py": 2,
    "replication/replication_support.py": 1,
    "replication/test_fetch_replication.py": 3,
    "unit/client/test_client_link.py": 4,
    "unit/cluster/test_alter_partition_writer.py": 4,
    "unit/cluster/test_sessions_in_any_order.py": 4,
    "unit/consensus/test_idle_replicas.py": 4,
    "unit/consensus/test_orderly_elections.py": 3,
    "unit/consensus/test_replica_contract.py": 2,
    "unit/coordinators/test_delivery_rules.py": 3,
    "unit/coordinators/test_delivery_service.py": 2,
    "unit/groups/test_consumer_heartbeat.py": 1,
    "unit/groups/test_group_deadlines.py": 1,
    "unit/host/test_deadline_timer.py": 1,
}


def found() -> dict[str, int]:
    """How many uses there are in each file."""
    counts = Counter(name.partition(":")[0] for name in uses())
    return dict(sorted(counts.items()))


def uses() -> Iterator[str]:
    """Each use, with its place."""
    for path in sorted(TESTS.rglob("*.py")):
        if EXEMPT in path.parents:
            continue
        tree = ast.parse(path.read_text())
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        # What a helper of this file calls its own is no part of the code under test.
        own = {node.attr for node in attributes if _is_own(node)}
        own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for node in attributes:
            name = node.attr
            is_private = name.startswith("_") and name[1:2].islower()
            if is_private and name not in PUBLIC and name not in own and not _is_own(node):
                yield f"{path.relative_to(TESTS)}:{node.lineno}: {ast.unparse(node)}"


def _is_own(node: ast.Attribute) -> bool:
    owner = node.value
    if isinstance(owner, ast.Name):
        return owner.id in ("self", "cls")
    return isinstance(owner, ast.Call) and ast.unparse(owner.func) == "super"


if __name__ == "__main__":
    print(*uses(), sep="\n")
