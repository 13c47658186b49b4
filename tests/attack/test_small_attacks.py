"""Each attack of `make attack` in small: the broker's counters show that its limits held."""

import asyncio
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from zhumq.testing.process import BrokerProcess

from . import crowd
from .attacker import ATTACKS
from .crowd import tasks
from .honest import HonestClient
from .login_flood import LOGIN_FLOODS, build, flood_command, rates_of
from .target import Target, attacked_broker

SETTINGS = {"queued.max.request.bytes": str(16 << 20), "offsets.topic.num.partitions": "4"}
REQUEST_BYTES_MAX = (16 << 20) * 5 // 4 + (1 << 20)
# Attacks that need hundreds of megabytes, or minutes of CPU time, run in `make attack` only.
LARGE = {"six-large-frames", "slow-readers", "push-unread", "bombs", "waiting-joins"}
SMALL_CROWD = 30


@pytest.fixture(scope="module")
def attacked(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[BrokerProcess, Target]]:
    folder: Path = tmp_path_factory.mktemp("attacked")
    with attacked_broker(folder, SETTINGS) as running:
        yield running


def metric(process: BrokerProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{process.http}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{name} (.+)$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(ATTACKS.keys() - LARGE - LOGIN_FLOODS.keys()))
def test_an_honest_client_is_served_beside_the_attack(
    attacked: tuple[BrokerProcess, Target], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, target = attacked
    monkeypatch.setattr(crowd, "CROWD_MAX", SMALL_CROWD)

    async def scenario() -> None:
        await ATTACKS[name](target)
        client = HonestClient(target)
        await asyncio.to_thread(client.rounds, 12)
        used = await asyncio.to_thread(metric, running, "zhumq_request_memory_bytes")
        assert used <= REQUEST_BYTES_MAX
        assert not client.samples.errors
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        tasks.clear()

    asyncio.run(scenario())
    assert running.running
    assert "Traceback" not in running.log


@pytest.mark.skipif(shutil.which("gcc") is None, reason="the program is in C")
@pytest.mark.parametrize("mechanism", ["plain", "scram"])
def test_each_attempt_of_a_flood_is_a_login_that_fails(
    attacked: tuple[BrokerProcess, Target], mechanism: str
) -> None:
    running, target = attacked
    build()
    before = metric(running, "zhumq_authentications_failed_total")
    command = flood_command(target, mechanism, per_second=100, addresses=4)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flood:
        assert flood.stdout is not None
        lines: list[str] = []
        # An attempt is answered before its login has failed, if that takes more than one answer.
        while (
            not rates_of(lines).get("answered")
            or metric(running, "zhumq_authentications_failed_total") <= before
        ):
            lines.append(flood.stdout.readline())
        flood.kill()
    assert rates_of(lines)["offered"] >= rates_of(lines)["answered"]
