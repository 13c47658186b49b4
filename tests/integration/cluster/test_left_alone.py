"""A named leader that is left alone: what it shows, what it takes, and what becomes of that."""

import uuid

import pytest
from availability_support import COMMITTED, GIVE_UP_MS, WAIT_SECONDS, create_committed, read, send

from zhumq.testing.cluster import ClusterProcesses

pytestmark = pytest.mark.slow


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
    # Not one message more: another replica may lead next, and does not have it.
    assert read(cluster, topic, COMMITTED + 1, GIVE_UP_MS / 1000) == committed
    # It is killed too, comes back alone, and still shows what it knew to be committed.
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
    # Acks=1 was given by one disk, which was killed since: what it had not flushed may be gone.
    assert everything == [str(number) for number in range(len(everything))]
