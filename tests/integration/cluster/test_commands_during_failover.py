"""Commands and the library's Admin at the moment a broker is killed: they wait until the cluster has recovered."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from cluster_support import create_topic, output_of
from confluent_kafka import KafkaError, KafkaException

from zhumq import Admin, Consumer, Producer
from zhumq.client.errors import RequestFailed
from zhumq.client.retrying_admin import RetryingAdmin
from zhumq.client.routes import find_push_addresses
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages import configs
from zhumq.testing.cluster import ClusterProcesses, wait_for
from zhumq.testing.raw_client import RawClient

pytestmark = pytest.mark.slow

SECONDS_MAX = 60.0
GROUP_RESOURCE = 32


def kill_controller(cluster: ClusterProcesses) -> int:
    controller = cluster.admin().list_topics(timeout=SECONDS_MAX).controller_id
    cluster.kill(controller)
    return int(controller)


@pytest.mark.thorough
def test_commands_sent_when_the_controller_dies_are_carried_out(
    cluster: ClusterProcesses,
) -> None:
    for mode in ("raft", "fetch"):
        create_topic(cluster, f"commands-{mode}", 4, replication_mode=mode)
    kill_controller(cluster)
    commands = [
        ("cluster", "status"),
        ("topic", "describe", "commands-raft"),
        ("topic", "describe", "commands-fetch"),
        ("topic", "create", "commands-new", "--replicas", "2"),
        ("topic", "alter", "commands-raft", "--set", "retention.ms=70000"),
        ("group", "list"),
    ]
    with ThreadPoolExecutor(len(commands)) as pool:
        list(pool.map(lambda words: output_of(*words, "--bootstrap", cluster.bootstrap), commands))


@pytest.mark.thorough
def test_the_librarys_admin_waits_for_a_new_controller(cluster: ClusterProcesses) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic("before", partitions=2)
        dead = kill_controller(cluster)
        admin.create_topic("after", partitions=2, replicas=2)
        # The broker that answers may learn of it a moment later.
        wait_for(lambda: {"before", "after"} <= set(admin.topics()) or None, "both topics")
        admin.delete_topic("before")
        with pytest.raises(RequestFailed, match="after"):
            admin.create_topic("after", partitions=2, replicas=2)
    addresses = set(find_push_addresses(cluster.bootstrap).values())
    assert addresses == {broker.push for each, broker in cluster.brokers.items() if each != dead}


def test_a_change_is_sent_again_after_not_controller_and_after_no_other_error(
    cluster: ClusterProcesses,
) -> None:
    admin = RetryingAdmin({"bootstrap.servers": cluster.bootstrap})
    answers: list[int] = []

    def change(_client: object, _seconds: float) -> str:
        answers.append(len(answers))
        if len(answers) < 3:
            raise KafkaException(KafkaError(KafkaError.NOT_CONTROLLER))
        return "done"

    assert admin.change(change) == "done"
    assert len(answers) == 3

    def unanswered(_client: object, _seconds: float) -> str:
        answers.append(len(answers))
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    answers.clear()
    with pytest.raises(KafkaException):
        admin.change(unanswered)
    assert len(answers) == 1, "the broker may have carried it out"


def test_a_topic_is_described_with_the_mode_that_its_partitions_are_in(
    cluster: ClusterProcesses,
) -> None:
    name, where = "changes-mode", ("--bootstrap", cluster.bootstrap)
    create_topic(cluster, name, 2, replication_mode="raft")

    def modes() -> set[tuple[str, str]]:
        described = json.loads(output_of("topic", "describe", name, "--json", *where))
        return {(each["mode"], each["wanted_mode"]) for each in described["partitions"]}

    assert modes() == {("raft", "raft")}
    output_of("topic", "alter", name, "--set", "replication.mode=fetch", *where)
    wait_for(lambda: modes() == {("fetch", "fetch")} or None, "partitions in fetch mode")
    assert "MODE" in output_of("topic", "describe", name, *where)


@pytest.mark.thorough
def test_a_partition_without_a_leader_is_described_without_offsets(
    cluster: ClusterProcesses,
) -> None:
    name, where = "leaderless", ("--bootstrap", cluster.bootstrap)
    create_topic(cluster, name, 3, replicas=1, min_insync_replicas="1")
    with Producer(cluster.bootstrap) as producer:
        for partition in range(3):
            producer.send(name, b"x", partition=partition)
    with Consumer(name, group="left", bootstrap=cluster.bootstrap) as consumer:
        for _, message in zip(range(3), consumer, strict=False):
            message.ack()
    dead = cluster.wait_for_leader(name, 0)
    cluster.kill(dead)
    wait_for(lambda: cluster.leader_of(name, 0) is None or None, "a partition without a leader")
    described = json.loads(output_of("topic", "describe", name, "--json", *where))
    for row in described["partitions"]:
        is_led = row["replicas"] != [dead]
        assert (row["leader"] is not None) == is_led
        found = [row[field] for field in ("earliest", "latest", "messages")]
        assert found == ([0, 1, 1] if is_led else [None] * 3)
    first = output_of("topic", "describe", name, *where).splitlines()[-3].split()
    assert [*first[:4], *first[-3:]] == ["0", "-", str(dead), "-", "-", "-", "-"]
    offsets = json.loads(output_of("group", "describe", "left", "--json", *where))["offsets"]
    assert [row["lag"] for row in offsets] == [
        0 if row["leader"] is not None else None for row in described["partitions"]
    ]


def test_settings_of_groups_are_listed_by_every_broker(cluster: ClusterProcesses) -> None:
    """Each group's coordinator keeps them, and any broker lists all of them."""
    groups = {f"settings-{number}" for number in range(6)}
    brokers = list(cluster.brokers.values())
    with RawClient(brokers[0].bootstrap) as client:
        change = configs.IncrementalAlterConfigsAlterableConfig(
            name="share.delivery.count.limit", config_operation=0, value="2"
        )
        request = configs.IncrementalAlterConfigsRequest(
            resources=[
                configs.IncrementalAlterConfigsResource(
                    resource_type=GROUP_RESOURCE, resource_name=group, configs=[change]
                )
                for group in groups
            ]
        )
        answers = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses
        assert [each.error_code for each in answers] == [0] * len(groups)
    for broker in brokers:
        with RawClient(broker.bootstrap) as client:
            asked = configs.ListConfigResourcesRequest(resource_types=[GROUP_RESOURCE])
            listed = client.ask(ApiKey.LIST_CONFIG_RESOURCES, asked)
            assert listed.error_code == 0
            assert {each.resource_name for each in listed.config_resources} == groups
