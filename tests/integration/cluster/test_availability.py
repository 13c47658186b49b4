"""What is available with 3, 2 and 1 of three replicas: every cell of the table in docs/availability.md.

Topics have three replicas and min.insync.replicas=2. The tests kill the leader and one more broker.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from availability_support import (
    COMMITTED,
    GIVE_UP_MS,
    WAIT_SECONDS,
    create_committed,
    read,
    send,
    wait_until_in_sync,
)
from confluent_kafka import KafkaError

from zhumq.testing.cluster import ClusterProcesses, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

SITUATIONS = [(mode, left) for mode in ("raft", "fetch") for left in (3, 2, 1)]


@dataclass(frozen=True, slots=True)
class Situation:
    """A topic with COMMITTED messages acknowledged with acks=-1, and its number of live replicas."""

    cluster: ClusterProcesses
    topic: str
    mode: str
    left: int

    @property
    def goes_on(self) -> bool:
        """Whether the partition has a leader: raft needs a majority, fetch one in-sync replica."""
        return self.mode == "fetch" or self.left > 1


@pytest.fixture(scope="module", params=SITUATIONS, ids=lambda each: f"{each[0]}-{each[1]}-left")
def situation(
    shared_cluster: ClusterProcesses, request: pytest.FixtureRequest
) -> Iterator[Situation]:
    mode, left = request.param
    cluster = shared_cluster
    topic = f"available-{mode}-{left}-{uuid.uuid4().hex[:6]}"
    create_committed(cluster, topic, mode)
    leader = cluster.wait_for_leader(topic)
    others = [each for each in cluster.brokers if each != leader]
    gone = [leader, others[0]][: 3 - left]
    cluster.kill(*gone)
    cluster.wait_for_brokers(set(cluster.brokers) - set(gone))
    found = Situation(cluster, topic, mode, left)
    if found.goes_on and gone:
        cluster.wait_for_leader(topic, other_than=leader)
    elif gone:
        # The two that were left for a moment may have elected one of them, which resigns.
        wait_for(lambda: cluster.leader_of(topic) is None or None, "no leader", WAIT_SECONDS)
    yield found
    cluster.restart(*gone)
    cluster.wait_for_brokers(cluster.brokers)
    wait_until_in_sync(cluster, topic)


def test_what_is_committed_can_be_read_where_a_replica_leads(situation: Situation) -> None:
    committed = [str(number) for number in range(COMMITTED)]
    if situation.goes_on:
        found = read(situation.cluster, situation.topic, COMMITTED, WAIT_SECONDS)
        assert found == committed
    else:
        assert situation.cluster.leader_of(situation.topic) is None
        assert read(situation.cluster, situation.topic, 1, GIVE_UP_MS / 1000) == []


def test_acks_all_is_acknowledged_only_by_enough_replicas(situation: Situation) -> None:
    cluster, topic = situation.cluster, situation.topic
    if situation.left > 1:
        assert send(cluster, topic, -1, "all")[0] is None
    elif situation.mode == "fetch":
        assert send(cluster, topic, -1, "all", GIVE_UP_MS)[0] == KafkaError.NOT_ENOUGH_REPLICAS
    else:
        assert send(cluster, topic, -1, "all", GIVE_UP_MS)[0] == KafkaError._MSG_TIMED_OUT


@pytest.mark.parametrize("acks", [0, 1])
def test_acks_0_and_1_go_on_where_a_replica_leads(situation: Situation, acks: int) -> None:
    cluster, topic = situation.cluster, situation.topic
    if not situation.goes_on:
        assert send(cluster, topic, acks, "few", GIVE_UP_MS)[0] == KafkaError._MSG_TIMED_OUT
        return
    error, offset = send(cluster, topic, acks, "few")
    assert error is None
    if acks == 1:
        assert offset is not None
        assert offset >= COMMITTED
