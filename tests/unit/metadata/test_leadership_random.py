"""Invariants under random broker failures, late controllers and invalid requests."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from leadership_support import cluster, ids, partition

from zhumq.metadata.changes import BrokerRegistered, Change, apply_changes
from zhumq.metadata.image import NO_BROKER, ClusterImage, PartitionState, Topic
from zhumq.metadata.leadership import (
    InSyncRequest,
    LeaderPolicy,
    LogEnd,
    LogEnds,
    elect_preferred,
    plan_membership,
    plan_preferred_leaders,
)
from zhumq.metadata.reassignment import begin_move, cancel_move, change_in_sync
from zhumq.model.errors import BrokerError
from zhumq.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition

BROKERS = ids(1, 2, 3, 4, 5)
PARTITIONS = 4
STEPS = 120
UNCLEAN_TOPIC = "t1"


def policy_of(topic: Topic) -> LeaderPolicy:
    return LeaderPolicy(unclean=topic.name == UNCLEAN_TOPIC)


class World:
    """A store, the live brokers, and two controllers, of which one may be late."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        first = [partition(self.draw.sample(BROKERS, 3), epoch=0) for _ in range(PARTITIONS)]
        self.image = cluster(*first, epochs=dict.fromkeys(BROKERS, 1), topics=2)
        self.live = set(BROKERS)
        self.seen_by_controllers = [self.image, self.image]
        self.leaders: dict[tuple[TopicPartition, int], BrokerId] = {}

    def step(self) -> None:
        seen = self.draw.randrange(2)
        # A controller reads the newest image, or continues with the one it has.
        if self.draw.random() < 0.7:
            self.seen_by_controllers[seen] = self.image
        image = self.seen_by_controllers[seen]
        try:
            match self.draw.randrange(8):
                case 0:
                    self.live.discard(self.draw.choice(BROKERS))
                case 1:
                    self.come_back(self.draw.choice(BROKERS))
                case 2 | 3:
                    changes = list(plan_membership(image, self.live, policy_of, self.log_ends()))
                    # The controller may fail at any point of its changes.
                    self.propose(image, changes[: self.draw.randrange(len(changes) + 1)])
                case 4:
                    self.propose(image, list(plan_preferred_leaders(image)))
                case 5:
                    name = self.any_partition()
                    self.propose(
                        image, [change_in_sync(image, name, self.request(name))], grows=True
                    )
                case 6:
                    target = self.draw.sample(BROKERS, self.draw.randrange(1, 5))
                    self.propose(image, [begin_move(image, self.any_partition(), target)])
                case _:
                    plan = self.draw.choice([cancel_move, elect_preferred])
                    self.propose(image, [plan(image, self.any_partition())])
        except BrokerError:
            pass

    def come_back(self, broker_id: BrokerId) -> None:
        """Also for a live broker: killed and restarted before its session expired."""
        self.live.add(broker_id)
        broker = replace(cluster().brokers[BrokerId(1)], broker_id=broker_id)
        registered = replace(broker, epoch=self.image.version + 1)
        self.propose(self.image, [BrokerRegistered(broker=registered)])

    def propose(
        self, decided_on: ClusterImage, changes: Sequence[Change], *, grows: bool = False
    ) -> None:
        if decided_on.version != self.image.version or not changes:
            return
        before, self.image = self.image, apply_changes(self.image, changes)
        for name, topic in self.image.topics.items():
            for index, state in enumerate(topic.partitions):
                self.check(
                    TopicPartition(name, index), before.topics[name].partitions[index], state, grows
                )

    def check(
        self, name: TopicPartition, before: PartitionState, now: PartitionState, grows: bool
    ) -> None:
        assert now.in_sync
        assert set(now.in_sync) <= set(now.replicas)
        assert len(set(now.replicas)) == len(now.replicas)
        assert now.target_replicas
        assert {*now.adding, *now.removing} <= set(now.replicas)
        assert not set(now.adding) & set(now.removing)
        if now == before:
            return
        assert now.partition_epoch == before.partition_epoch + 1
        assert before.leader_epoch <= now.leader_epoch <= before.leader_epoch + 1
        if now.leader != NO_BROKER:
            assert now.leader in now.in_sync
            assert self.leaders.setdefault((name, now.leader_epoch), now.leader) == now.leader
        if (now.leader, now.leader_broker_epoch) != (before.leader, before.leader_broker_epoch):
            assert now.leader_epoch == before.leader_epoch + 1
        if not set(now.replicas) >= set(before.replicas):
            assert now.leader_epoch == before.leader_epoch + 1
        if name.topic != UNCLEAN_TOPIC:
            # Everything acknowledged is on every in-sync replica. Only in-sync replicas become leaders,
            # and only a leader's request adds a replica to the set.
            assert grows or set(now.in_sync) <= set(before.in_sync)

    def any_partition(self) -> TopicPartition:
        return TopicPartition(
            self.draw.choice(sorted(self.image.topics)), self.draw.randrange(PARTITIONS)
        )

    def request(self, name: TopicPartition) -> InSyncRequest:
        state = self.image.topics[name.topic].partitions[name.partition]
        sender = self.image.brokers.get(state.leader)
        in_sync = {state.leader, *self.draw.sample(state.replicas, len(state.replicas) - 1)}
        return InSyncRequest(
            broker_id=state.leader,
            broker_epoch=sender.epoch if sender else 0,
            leader_epoch=LeaderEpoch(state.leader_epoch - (self.draw.random() < 0.1)),
            partition_epoch=state.partition_epoch - (self.draw.random() < 0.1),
            in_sync=tuple(in_sync),
        )

    def log_ends(self) -> LogEnds:
        return {
            TopicPartition(name, index): {
                broker: LogEnd(
                    LeaderEpoch(self.draw.randrange(9)), Offset(self.draw.randrange(100))
                )
                for broker in self.draw.sample(BROKERS, 3)
            }
            for name in self.image.topics
            for index in range(PARTITIONS)
        }


@pytest.mark.parametrize("first_seed", range(0, 400, 50))
def test_at_most_one_broker_leads_an_epoch_and_the_cluster_recovers(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 50):
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        for broker_id in BROKERS:
            world.come_back(broker_id)
        world.propose(world.image, list(plan_membership(world.image, world.live, policy_of)))
        assert list(plan_membership(world.image, world.live, policy_of)) == []
        for topic in world.image.topics.values():
            for state in topic.partitions:
                assert world.image.leader_of(state) == state.leader != NO_BROKER


def test_the_same_seed_makes_the_same_history() -> None:
    worlds = [World(7), World(7)]
    for world in worlds:
        for _ in range(STEPS):
            world.step()
    assert worlds[0].image == worlds[1].image
