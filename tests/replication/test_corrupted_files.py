"""Corruption in any file of one replica's disk is never served and never skipped, and is repaired."""

import os
import random
from pathlib import Path

import pytest
from chaos.corruption import KINDS, candidates, corrupt
from chaos.damage import are_equal
from replication_support import DEADLINE_SECONDS, T0, Node, Nodes, nodes, produce, run, until
from tests.unit.storage.storage_support import flush

from zhumq.host.clock import SystemClock
from zhumq.model.errors import CorruptMessage
from zhumq.model.replication_mode import Mode
from zhumq.records.batch import records
from zhumq.storage.checkpoints import META_FILE
from zhumq.storage.scrub import Scrubber

COUNT = 30
ROUNDS = int(os.environ.get("ZHUMQ_CORRUPTIONS", "10"))
SEED = int(os.environ.get("ZHUMQ_CORRUPTION_SEED", "1"))


def read_from(node: Node) -> tuple[dict[int, bytes | None], set[int]]:
    """The records that this replica can read from offset 0 on, and the offsets that it refuses."""
    log = node.partition().log
    found: dict[int, bytes | None] = {}
    refused: set[int] = set()
    offset = 0
    while offset < log.log_end_offset:
        try:
            part = log.read(offset, max_bytes=300, up_to_offset=log.log_end_offset)
        except CorruptMessage:
            refused.add(offset)
            offset += 1
            continue
        found.update({each.offset: each.value for each in records(part.read_bytes())})
        offset = part.next_offset
    return found, refused


def scrub(node: Node) -> None:
    scrubber = Scrubber(node.logs, SystemClock(), bytes_per_second=1 << 30, interval_ms=1)
    if scrubber.begin():
        scrubber.read()
        scrubber.finish()


def has_recovered(node: Node) -> bool:
    partition = node.partition()
    return (
        partition.is_intact and not partition.log.corrupt_ranges and not partition.driver.is_stopped
    )


@pytest.mark.thorough
@pytest.mark.timeout(60 + 6 * ROUNDS)
@pytest.mark.parametrize("mode", [Mode.RAFT, Mode.FETCH])
def test_corruption_is_never_served_never_skipped_and_is_repaired(
    tmp_path: Path, mode: Mode
) -> None:
    draw = random.Random(f"{SEED} {mode}")

    async def corrupt_one(up: Nodes, truth: dict[int, bytes | None]) -> None:
        broker_id = draw.choice(sorted(up.up))
        await up.stop(broker_id, clean=draw.random() < 0.5)
        found = candidates(up.root / f"broker-{broker_id}")
        # With a damaged meta.properties a broker refuses to start.
        found[""] = [each for each in found[""] if each.name != META_FILE]
        path = draw.choice(found[draw.choice(sorted(found))])
        note = f"broker {broker_id}: {path.name}: {corrupt(path, draw.choice(KINDS), draw)}"
        await up.start(broker_id)
        up.store.repair()
        node = up[broker_id]
        await until(lambda: node.replicas.find(*T0), f"{note}: opened")
        got, refused = read_from(node)
        known_end = max(truth) + 1
        assert {at: value for at, value in got.items() if at < known_end}.items() <= truth.items()
        end = node.partition().log_end_offset
        skipped = {offset for offset in truth if offset < end} - got.keys() - refused
        assert not skipped, f"{note}: {skipped}"
        scrub(node)
        await until(lambda: has_recovered(node), f"{note}: recovered", 2 * DEADLINE_SECONDS)
        await until(
            lambda: node.partition().log_end_offset >= known_end and not read_from(node)[1],
            f"{note}: everything is there again",
        )
        got, _ = read_from(node)
        assert truth.items() <= got.items(), note
        folders = {str(each): up.root / f"broker-{each}" / str(T0) for each in up.up}
        await until(lambda: are_equal(folders, known_end), f"{note}: the replicas are equal")
        await up.wait_leader()
        if mode is Mode.FETCH:
            # The next round may corrupt the leader: another replica must be in sync by then.
            state = lambda: up.store.image.partition(T0)  # noqa: E731
            await until(lambda: len(state().in_sync) == len(up.up), f"{note}: in sync again")

    async def body() -> None:
        async with nodes(tmp_path) as up:
            up.store.create(mode=mode, settings={"segment.bytes": "700"})
            for number in range(COUNT):
                await produce(up, f"value-{number}")
            await up.wait_equal()
            truth, _ = read_from(await up.wait_leader())
            assert len(truth) >= COUNT
            for node in up:
                flush(node.partition().log, checkpoint=True)
            for _ in range(ROUNDS):
                await corrupt_one(up, truth)

    run(body())
