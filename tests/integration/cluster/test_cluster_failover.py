"""A leader, the controller, a session or all brokers fail: nothing acknowledged is lost."""

import shutil
import urllib.request

import pytest
from cluster_support import client_of, create_topic, read_numbers, set_mode, traffic
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from zhumq.testing.cluster import ClusterProcesses, wait_for

pytestmark = pytest.mark.slow

MODES = ("raft", "fetch")
WAIT_SECONDS = 60.0


def test_any_broker_takes_any_change_and_all_of_them_know(cluster: ClusterProcesses) -> None:
    one, two, three = (cluster.brokers[each].bootstrap for each in (1, 2, 3))
    admin = cluster.admin(one)
    admin.create_topics([NewTopic("known", 4, 3)])["known"].result(WAIT_SECONDS)
    admin = cluster.admin(two)
    resource = ConfigResource(ResourceType.TOPIC, "known")
    resource.add_incremental_config(
        ConfigEntry("retention.ms", "77000", incremental_operation=AlterConfigOpType.SET)
    )
    admin.incremental_alter_configs([resource])[resource].result(WAIT_SECONDS)
    grown = NewPartitions("known", 6)
    admin.create_partitions([grown])["known"].result(WAIT_SECONDS)

    def known() -> bool | None:
        third = cluster.admin(three)
        topic = third.list_topics("known", timeout=WAIT_SECONDS).topics["known"]
        asked = ConfigResource(ResourceType.TOPIC, "known")
        settings = third.describe_configs([asked])[asked].result(WAIT_SECONDS)
        led = all(each.leader in (1, 2, 3) for each in topic.partitions.values())
        changed = len(topic.partitions) == 6 and settings["retention.ms"].value == "77000"
        return (changed and led) or None

    wait_for(known, "the changes at the third broker")
    with urllib.request.urlopen(f"http://{cluster.brokers[2].http}/metrics") as answer:
        assert b"zhumq_cluster_brokers 3" in answer.read()
    admin = cluster.admin(three)
    admin.delete_topics(["known"])["known"].result(WAIT_SECONDS)
    wait_for(
        lambda: "known" not in cluster.admin(one).list_topics(timeout=WAIT_SECONDS).topics or None,
        "the first broker without the topic",
    )


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost(
    cluster: ClusterProcesses, mode: str
) -> None:
    topic = f"killed-{mode}"
    create_topic(cluster, topic, replication_mode=mode)
    with traffic(cluster, topic) as running:
        for _ in range(2):
            leader = cluster.wait_for_leader(topic)
            cluster.kill(leader)
            cluster.wait_for_leader(topic, other_than=leader)
            running.wait_for_more()
            cluster.restart(leader)
            running.wait_for_more()


@pytest.mark.thorough
def test_the_controller_is_replaced(cluster: ClusterProcesses) -> None:
    create_topic(cluster, "controlled", replication_mode="fetch")
    with traffic(cluster, "controlled"):
        controller = cluster.admin().list_topics(timeout=WAIT_SECONDS).controller_id
        cluster.kill(controller)

        def another() -> int | None:
            found = cluster.admin().list_topics(timeout=WAIT_SECONDS).controller_id
            return None if found in (controller, -1) else found

        wait_for(another, "another controller")
        cluster.wait_for_brokers(set(cluster.brokers) - {controller})
        # The new controller elects leaders.
        leader = cluster.wait_for_leader("controlled")
        assert leader != controller
        cluster.restart(controller)
        cluster.wait_for_brokers(cluster.brokers)


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_a_broker_that_was_paused_for_longer_than_its_session_comes_back_as_a_follower(
    cluster: ClusterProcesses, mode: str
) -> None:
    topic = f"paused-{mode}"
    create_topic(cluster, topic, replication_mode=mode)
    with traffic(cluster, topic) as running:
        leader = cluster.wait_for_leader(topic)
        paused = cluster.brokers[leader]
        paused.pause()
        try:
            others = set(cluster.brokers) - {leader}
            bootstrap = ",".join(cluster.brokers[each].bootstrap for each in others)
            wait_for(
                lambda: cluster.leader_of(topic, bootstrap=bootstrap) in others or None,
                "another leader",
            )
            running.wait_for_more()
        finally:
            paused.resume()
        cluster.wait_for_brokers(cluster.brokers)
        running.wait_for_more()


@pytest.mark.thorough
def test_all_brokers_are_killed_at_once_and_started_again(cluster: ClusterProcesses) -> None:
    for mode in MODES:
        create_topic(cluster, f"all-{mode}", partitions=2, replication_mode=mode)
    with traffic(cluster, "all-raft") as raft, traffic(cluster, "all-fetch") as fetch:
        cluster.kill(*cluster.brokers)
        cluster.restart(*cluster.brokers)
        raft.wait_for_more()
        fetch.wait_for_more()


def test_a_topic_changes_its_mode_under_load_there_and_back(cluster: ClusterProcesses) -> None:
    create_topic(cluster, "switched", partitions=2, replication_mode="raft")
    with traffic(cluster, "switched") as running:
        for mode in ("fetch", "raft", "fetch", "raft"):
            set_mode(cluster, "switched", mode)
            running.wait_for_more(100)


@pytest.mark.thorough
def test_a_group_survives_its_coordinator(cluster: ClusterProcesses) -> None:
    create_topic(cluster, "grouped")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(200):
        producer.produce("grouped", str(number).encode())
    assert producer.flush(WAIT_SECONDS) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "survivors",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe(["grouped"])
    seen: list[int] = []

    def consume(count: int) -> None:
        def more() -> bool | None:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                seen.append(int(message.value() or b""))
                consumer.commit(message=message, asynchronous=False)
            return len(seen) >= count or None

        wait_for(more, f"{count} messages")

    consume(20)
    admin = cluster.admin()
    group = admin.describe_consumer_groups(["survivors"])["survivors"].result(WAIT_SECONDS)
    coordinator = group.coordinator.id
    cluster.kill(coordinator)
    # Commits fail while there is no coordinator; the client finds the next one by itself.
    place = TopicPartition("grouped", 0, len(seen))
    wait_for(
        lambda: _can_commit(consumer, place) or None, "a commit after the kill of the coordinator"
    )
    consume(60)
    consumer.close()
    assert sorted(set(seen)) == list(range(max(seen) + 1))
    resumed = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "survivors", "log_level": 0}
    )
    (committed,) = resumed.committed([TopicPartition("grouped", 0)], WAIT_SECONDS)
    resumed.close()
    assert committed.offset >= len(set(seen))


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["raft", "fetch"])
def test_a_consumer_and_a_producer_go_on_while_a_broker_is_replaced_by_an_empty_one(
    cluster: ClusterProcesses, mode: str
) -> None:
    topic = f"wiped-{mode}"
    create_topic(cluster, topic, replication_mode=mode)
    with traffic(cluster, topic) as running:
        leader = cluster.wait_for_leader(topic)
        follower = next(each for each in cluster.brokers if each != leader)
        cluster.kill(follower)
        _empty(cluster, follower)
        cluster.restart(follower)
        # The broker detects it, even if the cluster does not.
        assert "this disk has lost the quorum state of" in cluster.brokers[follower].log
        running.wait_for_more()
        wait_for(
            lambda: _is_intact(cluster, follower, as_many_as=leader) or None, "caught-up replicas"
        )
    # The follower has everything again: with the remaining broker it serves the topic.
    first = read_numbers(client_of(cluster), topic)
    cluster.kill(leader)
    cluster.wait_for_leader(topic, other_than=leader)
    assert sorted(read_numbers(client_of(cluster), topic)) == sorted(first)


def _can_commit(consumer: Consumer, place: TopicPartition) -> bool:
    try:
        consumer.commit(offsets=[place], asynchronous=False)
    except KafkaException:
        return False
    return True


def _is_intact(cluster: ClusterProcesses, broker_id: int, *, as_many_as: int) -> bool:
    partitions = _metric(cluster, broker_id, "zhumq_partitions")
    is_open = partitions == _metric(cluster, as_many_as, "zhumq_partitions")
    return is_open and _metric(cluster, broker_id, "zhumq_partitions_recovering") == 0


def _metric(cluster: ClusterProcesses, broker_id: int, name: str) -> float:
    with urllib.request.urlopen(f"http://{cluster.brokers[broker_id].http}/metrics") as answer:
        values = dict(
            line.rsplit(maxsplit=1)
            for line in answer.read().decode().splitlines()
            if line[0] != "#"
        )
    return float(values[name])


def _empty(cluster: ClusterProcesses, broker_id: int) -> None:
    shutil.rmtree(cluster.brokers[broker_id].data_dir)
