"""Which handshake goes on, which one goes first, and which one has to go."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

from zhumq.net.handshakes import TURN_SECONDS, Handshakes

Run = Callable[[Coroutine[Any, Any, None]], None]


class FakeHandshake:
    """Notes its steps and its end in a list that all share."""

    def __init__(self, client_host: str, name: str, log: list[str], cost: float = 0.0) -> None:
        self.client_host = client_host
        self.name = name
        self._log = log
        self._cost = cost
        self.handshakes: Handshakes | None = None

    def take_step(self) -> None:
        until = time.monotonic() + self._cost
        while time.monotonic() < until:
            pass
        self._log.append(self.name)

    def fail(self, reason: str) -> None:
        assert self.handshakes is not None
        self.handshakes.end(self)
        self._log.append(f"{self.name}: {reason}")

    def begin(self, handshakes: Handshakes) -> "FakeHandshake":
        self.handshakes = handshakes
        handshakes.begin(self)
        return self


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_addresses_take_turns_and_the_newest_of_one_goes_first(run: Run) -> None:
    async def scenario() -> None:
        log: list[str] = []
        handshakes = Handshakes(asyncio.get_running_loop())
        for number in range(4):
            handshakes.enter(FakeHandshake("flood", f"f{number}", log).begin(handshakes))
        handshakes.enter(FakeHandshake("honest", "h", log).begin(handshakes))
        await until(lambda: len(log) == 5)
        assert log == ["f3", "h", "f2", "f1", "f0"]
        handshakes.close()

    run(scenario())


def test_other_work_is_done_between_expensive_steps(run: Run) -> None:
    async def scenario() -> None:
        log: list[str] = []
        handshakes = Handshakes(asyncio.get_running_loop())
        for number in range(3):
            costly = FakeHandshake("a", f"step {number}", log, TURN_SECONDS)
            handshakes.enter(costly.begin(handshakes))
        while len([each for each in log if each.startswith("step")]) < 3:
            await asyncio.sleep(0)
            log.append("other work")
        steps = [index for index, each in enumerate(log) if each.startswith("step")]
        assert all("other work" in log[a:b] for a, b in pairwise(steps))
        handshakes.close()

    run(scenario())


def test_over_the_limit_the_oldest_of_the_busiest_address_fails(run: Run) -> None:
    async def scenario() -> None:
        log: list[str] = []
        handshakes = Handshakes(asyncio.get_running_loop(), count_max=3)
        for host, name in (("honest", "h"), ("flood", "f0"), ("flood", "f1"), ("other", "o")):
            FakeHandshake(host, name, log).begin(handshakes)
        assert log == ["f0: too many handshakes are in progress"]
        assert handshakes.count == 3
        handshakes.close()
        assert handshakes.count == 0

    run(scenario())


def test_the_deadline_does_not_count_while_the_client_waits_for_the_broker(run: Run) -> None:
    async def scenario() -> None:
        log: list[str] = []
        handshakes = Handshakes(asyncio.get_running_loop(), seconds_max=0.02)
        FakeHandshake("a", "silent", log).begin(handshakes)
        busy = FakeHandshake("b", "busy", log, 0.1).begin(handshakes)
        waiting = FakeHandshake("c", "waiting", log).begin(handshakes)
        handshakes.enter(busy)
        handshakes.enter(waiting)
        await until(lambda: "waiting" in log)
        await until(lambda: len(log) == 5)
        failed = [each.partition(":")[0] for each in log if ":" in each]
        assert log[0] == "busy"
        assert log.index("waiting") < log.index(
            "waiting: the handshake was not complete after 0.02 s"
        )
        assert sorted(failed) == ["busy", "silent", "waiting"]
        handshakes.close()

    run(scenario())
