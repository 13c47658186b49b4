"""Clients of both protocols join and leave one group: it changes its protocol, and no client loses anything."""

import pytest
from consumer_world import SESSION_TIMEOUT_MS, ConsumerWorld
from simulated_classic import TOPIC, ClassicClient
from simulated_member import REBALANCE_TIMEOUT_MS, Member

from zhumq.groups.classic import ClassicGroup, ClassicGroupState
from zhumq.groups.consumer import ConsumerGroup, ConsumerGroupState

SEEDS = range(25)
STEPS_OF_A_PHASE = 20
CLIENTS = 3  # of each protocol

Client = Member | ClassicClient


def misbehave(world: ConsumerWorld, clients: list[Client], staying: list[Client]) -> None:
    """One random fault; clients that are not `staying` leave sooner or later."""
    draw = world.draw
    client = draw.choice(clients)
    if draw.random() < 0.08:
        world.reload()
    elif client not in staying:
        if client.alive:
            client.leave()
    elif not client.alive:
        client.start()
    else:
        match draw.randrange(7):
            case 0:
                client.crash()
            case 1:
                client.leave()
            case 3:
                client.pause(draw.randrange(2 * SESSION_TIMEOUT_MS))
            case _:
                pass


def run_world(seed: int) -> tuple[ConsumerWorld, set[type]]:
    world = ConsumerWorld(seed)
    world.topics.put(TOPIC, 7)
    new: list[Client] = [Member(f"new-{number}", world) for number in range(CLIENTS)]
    old: list[Client] = [ClassicClient(f"old-{number}", world) for number in range(CLIENTS)]
    kinds = set()
    for staying in (old, old + new, new, old + new, old):
        for _ in range(STEPS_OF_A_PHASE):
            misbehave(world, old + new, staying)
            world.run_until(world.now_ms + world.draw.randrange(1, 3_000))
            kinds.add(type(world.shard.groups.get("group")))
    world.lost_replies = world.repeated_requests = 0
    settle(world, old + new, stay=old + new, kind=ConsumerGroup)
    settle(world, old + new, stay=old, kind=ClassicGroup)
    settle(world, old + new, stay=new, kind=ConsumerGroup)
    return world, kinds


def settle(world: ConsumerWorld, clients: list[Client], *, stay: list[Client], kind: type) -> None:
    """Only these stay: in bounded time they share all partitions, in the protocol that is left."""
    for client in clients:
        if client.alive and client not in stay:
            client.leave()
    world.run_until(world.now_ms + 2 * SESSION_TIMEOUT_MS)
    for client in stay:
        if not client.alive:
            client.start()
    world.run_until(world.now_ms + 6 * (SESSION_TIMEOUT_MS + REBALANCE_TIMEOUT_MS))
    group = world.shard.groups["group"]
    assert isinstance(group, kind)
    if isinstance(group, ConsumerGroup):
        assert group.state is ConsumerGroupState.STABLE
    else:
        assert isinstance(group, ClassicGroup)
        assert group.state is ClassicGroupState.STABLE
    assert set(group.members) == {client.member_id for client in stay}
    has = [
        client.owned if isinstance(client, ClassicClient) else set(client.positions)
        for client in stay
    ]
    topic_id = world.topics.ids[TOPIC]
    assert sorted(each for owned in has for each in owned) == [
        (topic_id, index) for index in range(7)
    ]
    assert max(map(len, has)) - min(map(len, has)) <= 1
    world.reload()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_of_both_protocols_keeps_its_invariants_under_faults(seed: int) -> None:
    _, kinds = run_world(seed)
    assert {ConsumerGroup, ClassicGroup} <= kinds, "the group changed its protocol during the run"
