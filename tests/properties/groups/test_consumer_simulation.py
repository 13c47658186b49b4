"""Members of the consumer protocol join, leave, crash and pause while topics and the coordinator change."""

import pytest
from consumer_world import SESSION_TIMEOUT_MS, ConsumerWorld
from simulated_member import REBALANCE_TIMEOUT_MS, REQUEST_TIMEOUT_MS, Member

from zhumq.groups.consumer import ConsumerGroupState

SEEDS = range(25)
STEPS = 100
MEMBERS = 5


def misbehave(world: ConsumerWorld, members: list[Member]) -> None:
    """One random fault."""
    draw = world.draw
    member = draw.choice(members)
    chance = draw.random()
    if chance < 0.08:
        world.reload()
    elif chance < 0.2:
        change_topics(world)
    elif not member.alive:
        member.start()
    else:
        match draw.randrange(8):
            case 0:
                member.crash()
            case 1:
                member.leave()
            case 2:
                member.pause(draw.randrange(2 * SESSION_TIMEOUT_MS))
            case 3:
                member.subscribe(
                    draw.sample(["orders", "invoices", "events-1", "nowhere"], draw.randrange(3)),
                    draw.choice([None, "events-.*", "(orders|invoices)"]),
                )
            case _:
                pass


def change_topics(world: ConsumerWorld) -> None:
    draw, topics = world.draw, world.topics
    name = draw.choice(["orders", "invoices", "events-1", "events-2"])
    count = topics.counts.get(name)
    if count is None:
        topics.put(name, draw.randrange(1, 7))
    elif draw.random() < 0.3 and name != "orders":
        world.committed_of = {
            each: offset
            for each, offset in world.committed_of.items()
            if each[0] != topics.ids[name]
        }
        topics.delete(name)
    else:
        topics.put(name, count + draw.randrange(4))


def run_world(seed: int) -> ConsumerWorld:
    world = ConsumerWorld(seed)
    world.topics.put("orders", 6)
    draw = world.draw
    members = [
        Member(f"member-{number}", world, instance_id=f"static-{number}" if number < 2 else None)
        for number in range(MEMBERS)
    ]
    for _ in range(STEPS):
        misbehave(world, members)
        world.run_until(world.now_ms + draw.randrange(1, 3_000))
    # All faults end and all members return with the same topics: in bounded time all have their share.
    world.lost_replies = world.repeated_requests = 0
    world.run_until(world.now_ms + 2 * SESSION_TIMEOUT_MS)
    for member in members:
        if not member.alive:
            member.start()
        member.subscribe(["orders"], "events-.*")
    world.run_until(
        world.now_ms + 5 * (SESSION_TIMEOUT_MS + REBALANCE_TIMEOUT_MS) + REQUEST_TIMEOUT_MS
    )
    check_converged(world, members)
    world.reload()
    return world


def check_converged(world: ConsumerWorld, members: list[Member]) -> None:
    group = world.group
    assert group is not None
    assert group.state is ConsumerGroupState.STABLE
    assert {member.member_id for member in members} == set(group.members)
    assert {member.epoch for member in members} == {group.epoch}
    topics = world.topics
    everything = sorted(
        (topics.ids[name], index)
        for name, count in topics.counts.items()
        if name == "orders" or name.startswith("events-")
        for index in range(count)
    )
    assert sorted(each for member in members for each in member.positions) == everything
    loads = [len(member.positions) for member in members]
    assert max(loads) - min(loads) <= 1, "the assignment is even"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_consumer_group_keeps_its_invariants_under_faults(seed: int) -> None:
    world = run_world(seed)
    assert world.accepted_commits > 20, "the group makes progress"


def test_the_same_seed_gives_the_same_run_of_a_consumer_group() -> None:
    first, second = run_world(1), run_world(1)
    assert first.log == second.log
    assert first.now_ms == second.now_ms
    assert first.reloads == second.reloads > 0
