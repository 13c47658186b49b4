"""Reassignments and elections on a single node: there is nothing to move, and the answers say so."""

from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from zhumq.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from zhumq.testing.broker import broker
from zhumq.testing.raw_client import RawClient

TOPIC = "only"


def move(client: RawClient, replicas: list[int] | None, *, may_grow: bool = True) -> ErrorCode:
    asked = ReassignablePartition(partition_index=0, replicas=replicas)
    answer = client.ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=may_grow,
            topics=[ReassignableTopic(name=TOPIC, partitions=[asked])],
        ),
    )
    return ErrorCode(answer.responses[0].partitions[0].error_code)


def test_a_single_node_answers_requests_about_replicas_and_leaders() -> None:
    with broker() as running, RawClient(running.bootstrap) as client:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[topic]))
        assert move(client, [0]) is ErrorCode.NONE
        assert move(client, [1]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert move(client, []) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert move(client, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert move(client, [0, 1], may_grow=False) is ErrorCode.INVALID_REPLICATION_FACTOR
        for topics in (
            None,
            [ListPartitionReassignmentsTopics(name=TOPIC, partition_indexes=[0, 7])],
            [ListPartitionReassignmentsTopics(name="unknown", partition_indexes=[0])],
        ):
            listed = client.ask(
                ApiKey.LIST_PARTITION_REASSIGNMENTS,
                ListPartitionReassignmentsRequest(topics=topics),
            )
            assert (listed.error_code, listed.topics) == (ErrorCode.NONE, [])


def test_a_single_node_needs_no_election() -> None:
    with broker() as running, RawClient(running.bootstrap) as client:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[topic]))
        for kind in (0, 1):
            everything = ElectLeadersRequest(election_type=kind, topic_partitions=None)
            answer = client.ask(ApiKey.ELECT_LEADERS, everything)
            assert (answer.error_code, answer.replica_election_results) == (ErrorCode.NONE, [])
            one = ElectLeadersRequest(
                election_type=kind,
                topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[0, 5])],
            )
            (result,) = client.ask(ApiKey.ELECT_LEADERS, one).replica_election_results
            assert [each.error_code for each in result.partition_result] == [
                ErrorCode.ELECTION_NOT_NEEDED,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
        refused = client.ask(ApiKey.ELECT_LEADERS, ElectLeadersRequest(election_type=9))
        assert refused.error_code == ErrorCode.INVALID_REQUEST
