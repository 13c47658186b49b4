"""Brokers crash, are cut off and come back while idempotent producers write: nothing is lost or duplicated."""

import asyncio
import random
import shutil
import sys
from pathlib import Path

import pytest
from replication_support import T0, Node, Nodes, batch, bytes_of, nodes, run, until, values_of

from zhumq.model.errors import BrokerError
from zhumq.model.replication_mode import Mode

NOW_MS = 1_700_000_000_000
SECONDS = 6.0
ATTEMPT_SECONDS = 3.0


class Sender:
    """One idempotent producer: each value is sent, with its sequence, until it is acknowledged."""

    def __init__(self, up: Nodes, producer_id: int) -> None:
        self._up = up
        self._producer_id = producer_id
        self.acknowledged: list[str] = []
        self.offsets: list[int] = []
        self.is_done = False

    async def run(self) -> None:
        while not self.is_done:
            sequence = len(self.acknowledged)
            value = f"{self._producer_id}:{sequence}"
            offset = await self._send(
                batch(value, producer_id=self._producer_id, sequence=sequence)
            )
            if offset is None:
                return
            self.acknowledged.append(value)
            self.offsets.append(offset)

    async def _send(self, data: bytes) -> int | None:
        while True:
            node = self._up.leader()
            try:
                if node is not None:
                    partition = node.partition()
                    partition.check_enough_replicas()
                    appended = partition.append(data, NOW_MS)
                    durable = partition.when_durable(appended.last_offset + 1)
                    await asyncio.wait_for(durable, ATTEMPT_SECONDS)
                    return appended.base_offset
            except TimeoutError:
                pass
            except BrokerError as reason:
                if not reason.retriable:
                    raise
            if self.is_done:
                # The log may have the value or not.
                return None
            await asyncio.sleep(0.01)


class Chaos:
    """Injects one random fault after the other."""

    def __init__(self, up: Nodes, seed: int, *, switches: bool, wipes: bool) -> None:
        self._up = up
        self._dice = random.Random(seed)
        self._switches = switches
        self._faults = [
            self._kill,
            self._kill,
            self._cut_from_store,
            self._cut_links,
            self._restart_all,
        ]
        if wipes:
            self._faults += [self._wipe, self._wipe]
        self.done: list[str] = []

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        if self._wipe in self._faults:
            # Before the partition's metadata changes for the first time.
            await self._wipe()
        while loop.time() < end:
            await self._dice.choice(self._faults)()
            if self._switches:
                self._switch()
            await asyncio.sleep(self._dice.uniform(0.05, 0.6))
            self._up.store.step_modes()

    def recovered_leader(self) -> Node | None:
        """Let the controller act, and return the leader."""
        self._up.store.repair()
        self._up.store.step_modes()
        return self._up.leader()

    def _switch(self) -> None:
        """Change the topic's replication mode."""
        store = self._up.store
        store.mode = Mode.FETCH if store.mode is Mode.RAFT else Mode.RAFT
        self.done.append(f"to {store.mode}")
        store.step_modes()

    def _pick(self) -> int:
        return self._dice.choice(sorted(self._up.up))

    async def _kill(self) -> None:
        broker_id = self._pick()
        declared = self._dice.random() < 0.5
        self.done.append(f"kill {broker_id}{' and declare it gone' if declared else ''}")
        await self._up.stop(broker_id, clean=self._dice.random() < 0.3, declare=declared)
        await asyncio.sleep(self._dice.uniform(0.0, 0.8))
        await self._up.start(broker_id)
        self._up.store.repair()

    async def _wipe(self) -> None:
        """Replace a disk by an empty one, unless another replica is still recovering: one of three may be
        lost at a time."""
        record = self._up.store.image.partition(T0)
        assert record is not None
        votes = record.mode is Mode.RAFT or record.changing_mode
        states = [each.partition().driver.core.quorum_state for each in self._up]
        if any(state.recovering or (votes and state.votes_unknown) for state in states):
            return
        node = self._up[self._pick()]
        declared = self._dice.random() < 0.5
        self.done.append(f"wipe {node.broker_id}{' and declare it gone' if declared else ''}")
        await self._up.stop(node.broker_id, clean=False, declare=declared)
        shutil.rmtree(self._up.root / f"broker-{node.broker_id}")
        if self._dice.random() < 0.5:
            # The leader may stop before the wiped replica has fetched everything.
            gone = self._pick()
            self.done.append(f"kill {gone} meanwhile")
            await self._up.stop(gone, clean=False, declare=False)
            await self._up.start(node.broker_id)
            self._up.store.declare_gone(gone)
            await self._up.start(gone)
        else:
            await self._up.start(node.broker_id)
        self._up.store.repair()

    async def _cut_from_store(self) -> None:
        node = self._up[self._pick()]
        self.done.append(f"cut {node.broker_id} from the store")
        node.own_store.is_cut = True
        node.own_store.broker_epoch = None
        self._up.store.declare_gone(node.broker_id)
        if self._dice.random() < 0.5:
            node.replicas.on_session_lost()
        await asyncio.sleep(self._dice.uniform(0.0, 1.0))
        node.register()
        self._up.store.repair()

    async def _cut_links(self) -> None:
        """Cut one way: lose what this broker sends to one other broker, or to both."""
        node = self._up[self._pick()]
        others = [each for each in self._up.up if each != node.broker_id]
        cut = others if self._dice.random() < 0.5 else [self._dice.choice(others)]
        self.done.append(f"cut {node.broker_id} from {cut}")
        for broker_id in cut:
            node.detours[broker_id] = None
        node.reset_connections()
        await asyncio.sleep(self._dice.uniform(0.0, 2.0))
        node.detours.clear()

    async def _restart_all(self) -> None:
        self.done.append("restart all")
        broker_ids = sorted(self._up.up)
        for broker_id in broker_ids:
            await self._up.stop(broker_id, clean=False, declare=False)
        await self._up.start(*broker_ids)
        self._up.store.repair()


async def check(
    root: Path,
    seed: int,
    mode: Mode,
    *,
    seconds: float = SECONDS,
    switches: bool = False,
    wipes: bool = False,
) -> str:
    async with nodes(root) as up:
        # A record on only one disk is lost with that disk.
        up.store.min_in_sync = 2 if wipes else 1
        up.store.create(mode=mode)
        await up.wait_leader()
        senders = [Sender(up, producer_id) for producer_id in (1, 2, 3)]
        tasks = [asyncio.create_task(sender.run()) for sender in senders]
        chaos = Chaos(up, seed, switches=switches, wipes=wipes)
        try:
            await until(
                lambda: all(each.acknowledged for each in senders),
                "each sender has an acknowledgement",
            )
            await chaos.run(seconds)
            await until(chaos.recovered_leader, f"a broker leads after {chaos.done}")
            for sender in senders:
                sender.is_done = True
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await up.wait_equal()
        logs = {bytes_of(node) for node in up}
        assert len(logs) == 1, f"the replicas differ after {chaos.done}"
        found = values_of(up[1])
        for sender in senders:
            mine = [value for value in found if value.startswith(f"{sender._producer_id}:")]
            count = len(sender.acknowledged)
            assert mine[:count] == sender.acknowledged, f"lost or duplicated after {chaos.done}"
            assert len(mine) <= count + 1
        return f"{sum(len(each.acknowledged) for each in senders)} acknowledged, {chaos.done}"


@pytest.mark.thorough
@pytest.mark.parametrize("mode", list(Mode))
def test_nothing_acknowledged_is_lost_or_written_twice(tmp_path: Path, mode: Mode) -> None:
    run(check(tmp_path, 7, mode))


@pytest.mark.thorough
def test_nothing_acknowledged_is_lost_while_the_mode_changes_as_well(tmp_path: Path) -> None:
    run(check(tmp_path, 8, Mode.RAFT, switches=True))


@pytest.mark.thorough
@pytest.mark.parametrize("mode", list(Mode))
def test_nothing_acknowledged_is_lost_while_disks_are_replaced(tmp_path: Path, mode: Mode) -> None:
    run(check(tmp_path, 9, mode, wipes=True))


if __name__ == "__main__":
    # For long runs: first seed, last seed, seconds of each.
    import faulthandler
    import logging
    import tempfile

    faulthandler.enable()
    logging.disable(logging.WARNING)
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        for each, switching, wiping in (
            (Mode.RAFT, False, False),
            (Mode.FETCH, False, False),
            (Mode.RAFT, True, False),
            (Mode.RAFT, False, True),
            (Mode.FETCH, False, True),
            (Mode.RAFT, True, True),
        ):
            faulthandler.dump_traceback_later(300, exit=True)
            with tempfile.TemporaryDirectory(prefix="replication-faults-") as folder:
                trial = check(
                    Path(folder),
                    number,
                    each,
                    seconds=float(sys.argv[3]),
                    switches=switching,
                    wipes=wiping,
                )
                try:
                    outcome = run(trial)
                except BaseException as failure:
                    outcome = f"FAILED {type(failure).__name__}: {failure}"
                name = f"{each}{' switching' if switching else ''}{' wiping' if wiping else ''}"
                sys.stdout.write(f"{number} {name}: {outcome}\n")
                sys.stdout.flush()
