"""Topic ids and names, and the old and new forms of OffsetFetch."""

import uuid

from zhumq.groups.consumer_topics import TopicShape
from zhumq.groups.topic_names import name_commit, name_fetch, unname_fetch
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

KNOWN = uuid.UUID(int=1)
UNKNOWN = uuid.UUID(int=2)


class OneTopic:
    """Knows the topic "known" only."""

    def topic_id(self, name: str) -> uuid.UUID | None:
        return KNOWN if name == "known" else None

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return "known" if topic_id == KNOWN else None

    def shape(self, name: str) -> TopicShape | None:
        topic_id = self.topic_id(name)
        return None if topic_id is None else TopicShape(topic_id, 5)


def commit(*topics: OffsetCommitRequestTopic) -> OffsetCommitRequest:
    for topic in topics:
        topic.partitions = [OffsetCommitRequestPartition(partition_index=4, committed_offset=1)]
    return OffsetCommitRequest(group_id="g", member_id="m", topics=list(topics))


def test_a_commit_by_id_reaches_the_shard_by_name() -> None:
    message = commit(
        OffsetCommitRequestTopic(topic_id=KNOWN), OffsetCommitRequestTopic(topic_id=UNKNOWN)
    )
    named = name_commit(message, 10, OneTopic())
    assert [(topic.name, topic.topic_id) for topic in named.message.topics] == [("known", KNOWN)]
    assert (named.message.group_id, named.message.member_id) == ("g", "m")
    (refused,) = named.refused
    assert refused.topic_id == UNKNOWN
    assert refused.partitions[0].partition_index == 4
    assert refused.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_commit_for_a_topic_that_does_not_exist_is_refused() -> None:
    message = commit(OffsetCommitRequestTopic(name="gone"), OffsetCommitRequestTopic(name="known"))
    named = name_commit(message, 9, OneTopic())
    assert [topic.name for topic in named.message.topics] == ["known"]
    error = named.refused[0].partitions[0].error_code
    assert error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_old_fetch_is_one_group() -> None:
    message = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[1, 2])]
    )
    (group,) = name_fetch(message, 5, OneTopic())
    assert group.group_id == "g"
    assert group.topics == [OffsetFetchRequestTopic(name="t", partition_indexes=[1, 2])]
    (everything,) = name_fetch(OffsetFetchRequest(group_id="g", topics=None), 5, OneTopic())
    assert everything.topics is None


def test_the_answer_to_an_old_fetch_has_its_form() -> None:
    found = OffsetFetchResponseGroup(
        group_id="g",
        topics=[
            OffsetFetchResponseTopic(
                name="t",
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=1,
                        committed_offset=7,
                        committed_leader_epoch=2,
                        metadata="m",
                    )
                ],
            )
        ],
    )
    response = unname_fetch(OffsetFetchRequest(group_id="g"), [found], 5, OneTopic())
    (topic,) = response.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index, partition.committed_offset) == ("t", 1, 7)
    assert (partition.metadata, partition.committed_leader_epoch) == ("m", 2)
    assert response.groups == []


def test_an_error_of_the_group_is_the_answers_or_before_version_2_every_partitions() -> None:
    message = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[1, 2])]
    )
    refused = OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.NOT_COORDINATOR)
    new = unname_fetch(message, [refused], 2, OneTopic())
    assert (new.error_code, new.topics) == (ErrorCode.NOT_COORDINATOR, [])
    old = unname_fetch(message, [refused], 1, OneTopic())
    errors = [partition.error_code for partition in old.topics[0].partitions]
    assert errors == [ErrorCode.NOT_COORDINATOR] * 2


def test_a_fetch_by_id_is_answered_by_id() -> None:
    message = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id="g",
                topics=[
                    OffsetFetchRequestTopic(topic_id=KNOWN, partition_indexes=[0]),
                    OffsetFetchRequestTopic(topic_id=UNKNOWN, partition_indexes=[0]),
                ],
            )
        ]
    )
    (group,) = name_fetch(message, 10, OneTopic())
    assert group.topics is not None
    assert [topic.name for topic in group.topics] == ["known", ""]
    found = OffsetFetchResponseGroup(
        group_id="g",
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[OffsetFetchResponsePartition(partition_index=0, committed_offset=5)],
            )
            for topic in group.topics
        ],
    )
    response = unname_fetch(message, [found], 10, OneTopic())
    known, unknown = response.groups[0].topics
    assert (known.topic_id, known.partitions[0].committed_offset) == (KNOWN, 5)
    assert unknown.topic_id == UNKNOWN
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert unknown.partitions[0].committed_offset == -1


def test_of_all_topics_only_those_that_still_have_an_id_are_answered_by_id() -> None:
    message = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    found = OffsetFetchResponseGroup(
        group_id="g",
        topics=[OffsetFetchResponseTopic(name="known"), OffsetFetchResponseTopic(name="gone")],
    )
    assert found.topics[0].topic_id == ZERO_UUID
    response = unname_fetch(message, [found], 10, OneTopic())
    assert [topic.topic_id for topic in response.groups[0].topics] == [KNOWN]
