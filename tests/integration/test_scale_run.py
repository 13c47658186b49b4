"""`make scale` in small: it runs from end to end, and the bounds for any size hold."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
RUN_SECONDS_MAX = 100
SIZES = ("3 brokers", "10 brokers")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("scale")
    subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", "--small", "--output", str(folder)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        timeout=RUN_SECONDS_MAX,
    )
    found: dict[str, Any] = json.loads((folder / "latest.json").read_text())
    return found


@pytest.mark.parametrize("size", SIZES)
def test_the_ring_is_even_and_moves_little(measured: dict[str, Any], size: str) -> None:
    placement = measured["clusters"][size]["placement"]
    assert placement["replicas: most loaded broker, of an even share"] <= 1.25
    moved = placement["one more broker moves, % of all replicas"]
    assert moved <= 1.5 * placement["its even share, %"]


@pytest.mark.parametrize("size", SIZES)
def test_a_death_fits_into_transactions(measured: dict[str, Any], size: str) -> None:
    death = measured["clusters"][size]["a broker dies, fetch mode"]
    assert death["partitions changed"] > 0
    assert death["transactions too large for ZooKeeper, made again in halves"] == 0


@pytest.mark.parametrize("size", SIZES)
def test_every_partition_elects_a_leader_with_few_requests(
    measured: dict[str, Any], size: str
) -> None:
    election = measured["clusters"][size]["a broker dies, raft mode"]
    assert election["partitions without a leader"] > 0
    # A pre-vote and a vote, each asked and answered, and the announcement: of both survivors at most.
    assert election["requests between brokers"] <= 10 * election["partitions without a leader"]
    assert election["the last leader elected after ms"] < 3_000


def test_idle_replication_costs_one_request_a_beat_for_each_pair(measured: dict[str, Any]) -> None:
    idle = measured["clusters"]["3 brokers"]["idle replication, one broker"]
    assert idle["brokers it fetches from, most"] == 2
    assert idle["idle requests/s, sent and as many answered"] <= 2 * 5
