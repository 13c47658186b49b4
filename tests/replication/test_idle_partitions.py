"""The cost of many idle partitions, and of their elections when a leader dies."""

import asyncio
from pathlib import Path

import pytest
from replication_support import T0, Nodes, nodes, run, until

from zhumq.consensus.contract import ReplicaSettings

PARTITIONS = 1_000
SECONDS_MAX = 90.0
QUIET_SECONDS = 2.0


def _is_led(up: Nodes) -> bool:
    return all(up.leader(T0._replace(partition=index)) for index in range(PARTITIONS))


def _requests(up: Nodes) -> int:
    return sum(node.service.requests_count for node in up)


def _votes(up: Nodes) -> int:
    outboxes = [each for node in up for each in node.replicas.lifecycle.router.outboxes]
    return sum(each.requests_count for each in outboxes)


@pytest.mark.thorough
def test_a_thousand_idle_partitions_cost_a_few_requests_and_an_election_a_few_more(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        # Three brokers in one process on a busy machine: a slow one must not lose its leaderships.
        async with nodes(tmp_path, settings=ReplicaSettings(election_timeout_ms=20_000)) as up:
            up.store.create(partitions=PARTITIONS)
            await until(lambda: _is_led(up), "every partition has a leader", SECONDS_MAX)
            # Every replica has caught up: there are no more updates to send.
            for index in range(PARTITIONS):
                await up.wait_equal(T0._replace(partition=index))
            votes, requests = _votes(up), _requests(up)
            loop = asyncio.get_running_loop()
            begun = loop.time()
            await asyncio.sleep(QUIET_SECONDS)
            # Six pairs of brokers, each with one fetch in 400 ms: not one for each partition.
            assert _requests(up) - requests < 6 * ((loop.time() - begun) / 0.4 + 2)
            assert _votes(up) == votes
            writes = up.store.writes
            await up.stop(1, clean=False, declare=False)
            await until(lambda: _is_led(up), "every partition has a leader again", SECONDS_MAX)
            # A third of the partitions, three or four messages each way for every election.
            assert _votes(up) - votes < PARTITIONS // 3
            assert up.store.writes - writes < PARTITIONS // 10

    run(body())
