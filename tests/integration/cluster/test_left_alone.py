"""A leader without followers: what consumers see, what happens to acks=1 messages, and when it is no longer named."""

import uuid

import pytest
from availability_support import COMMITTED, GIVE_UP_MS, WAIT_SECONDS, create_committed, read, send

from zhumq.testing.cluster import ClusterProcesses, wait_for

pytestmark = pytest.mark.slow


@pytest.mark.thorough
def test_a_fetch_leader_left_alone_shows_what_it_took_once_another_is_back(
    cluster: ClusterProcesses,
) -> None:
    topic = f"alone-{uuid.uuid4().hex[:6]}"
    create_committed(cluster, topic, "fetch")
    leader = cluster.wait_for_leader(topic)
    others = [each for each in cluster.brokers if each != leader]
    gone = [leader, others[0]]
    cluster.kill(*gone)
    cluster.wait_for_brokers({others[1]})
    cluster.wait_for_leader(topic, other_than=leader)
    for number in range(COMMITTED, COMMITTED + 3):
        assert send(cluster, topic, 1, str(number)) == (None, number)
    committed = [str(number) for number in range(COMMITTED)]
    # Not one message more: the next leader may be a replica without it.
    assert read(cluster, topic, COMMITTED + 1, GIVE_UP_MS / 1000) == committed
    # Killed and restarted alone, it serves only what it knew to be committed.
    cluster.kill(others[1])
    cluster.restart(others[1])
    cluster.wait_for_brokers({others[1]})
    cluster.wait_for_leader(topic)
    found = read(cluster, topic, COMMITTED + 1, GIVE_UP_MS / 1000)
    assert found == committed[: len(found)]
    cluster.restart(*gone)
    cluster.wait_for_brokers(cluster.brokers)
    everything = read(cluster, topic, COMMITTED + 3, WAIT_SECONDS)
    assert everything[:COMMITTED] == committed
    # One broker acknowledged with acks=1 and was killed since: unflushed messages may be lost.
    assert everything == [str(number) for number in range(len(everything))]


@pytest.mark.thorough
def test_a_leader_that_loses_its_majority_is_no_longer_named(cluster: ClusterProcesses) -> None:
    topic = f"outvoted-{uuid.uuid4().hex[:6]}"
    create_committed(cluster, topic, "raft")
    first = cluster.wait_for_leader(topic)
    cluster.kill(first)
    second = cluster.wait_for_leader(topic, other_than=first)
    (third,) = set(cluster.brokers) - {first, second}
    cluster.kill(third)
    cluster.wait_for_brokers({second})
    # It is alive and was elected, but by now it can commit nothing: operators and clients have to see that.
    wait_for(lambda: cluster.leader_of(topic) is None or None, "no leader", WAIT_SECONDS)
    cluster.restart(first, third)
    cluster.wait_for_leader(topic)
    assert send(cluster, topic, -1, "again")[0] is None
