"""Consumers that join, leave, crash, pause and repeat requests, with a coordinator that restarts."""

import pytest
from group_world import REBALANCE_TIMEOUT_MS, SETTINGS, STATIC_SESSION_TIMEOUT_MS, World
from simulated_consumer import PARTITIONS, REQUEST_TIMEOUT_MS, Consumer

from zhumq.groups.classic import ClassicGroup, ClassicGroupState

SEEDS = range(20)
STEPS = 80
CONSUMERS = 5


def misbehave(world: World, consumers: list[Consumer]) -> None:
    """One random fault."""
    draw = world.draw
    consumer = draw.choice(consumers)
    if draw.random() < 0.08:
        world.reload()
    elif not consumer.alive:
        consumer.start()
    else:
        match draw.randrange(8):
            case 0:
                consumer.crash()
            case 1:
                consumer.leave()
            case 2:
                consumer.pause(draw.randrange(STATIC_SESSION_TIMEOUT_MS))
            case 3:
                consumer.change_subscription()
            case _:
                pass


def run_world(seed: int) -> World:
    world = World(seed)
    draw = world.draw
    consumers = [
        Consumer(
            f"consumer-{number}", world, instance_id=f"static-{number}" if number < 2 else None
        )
        for number in range(CONSUMERS)
    ]
    for _ in range(STEPS):
        misbehave(world, consumers)
        world.run_until(world.now_ms + draw.randrange(1, 3_000))
    # All faults end and all consumers return: in bounded time every partition has one owner.
    world.lost_replies = world.repeated_requests = 0
    world.run_until(world.now_ms + REQUEST_TIMEOUT_MS + STATIC_SESSION_TIMEOUT_MS)
    for consumer in consumers:
        if not consumer.alive:
            consumer.start()
    world.run_until(
        world.now_ms
        + REQUEST_TIMEOUT_MS
        + 3 * REBALANCE_TIMEOUT_MS
        + SETTINGS.new_member_join_timeout_ms
    )
    group = world.shard.groups["group"]
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicGroupState.STABLE
    assert all(consumer.assigned for consumer in consumers)
    assert {consumer.member_id for consumer in consumers} == set(group.members)
    assert {consumer.generation for consumer in consumers} == {group.generation}
    owned = sorted(partition for consumer in consumers for partition in consumer.positions)
    assert owned == list(range(PARTITIONS))
    world.reload()
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_a_classic_group_keeps_its_invariants_under_faults(seed: int) -> None:
    world = run_world(seed)
    assert world.accepted_commits > 20, "the group makes progress"


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = run_world(1), run_world(1)
    assert first.log == second.log
    assert first.now_ms == second.now_ms
    assert first.reloads == second.reloads > 0
