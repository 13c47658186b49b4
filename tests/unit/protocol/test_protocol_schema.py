"""Declarations make typed, slotted, keyword-only classes whose fields all have defaults."""

import copy
import uuid
from typing import Any

import pytest

from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.messages.fetch import FetchRequest, FetchTopic, PartitionData, ReplicaState
from zhumq.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from zhumq.protocol.messages.topics import CreateTopicsRequest
from zhumq.protocol.schema import (
    ALL_VERSIONS,
    NO_VERSIONS,
    ArrayOf,
    Fixed,
    Message,
    StructOf,
    VersionRange,
    field,
    fields_of,
    int32,
    is_flexible,
    parse_versions,
)


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("3-12", VersionRange(3, 12)),
        ("9+", VersionRange(9, 0x7FFF)),
        ("4", VersionRange(4, 4)),
        ("0+", ALL_VERSIONS),
        ("none", NO_VERSIONS),
    ],
)
def test_version_ranges_are_read_as_kafka_writes_them(text: str, versions: VersionRange) -> None:
    assert parse_versions(text) == versions


def test_no_version_is_in_none() -> None:
    assert all(version not in NO_VERSIONS for version in range(5))


def test_fields_have_kafkas_defaults() -> None:
    request = FetchRequest()
    assert request.cluster_id is None
    assert request.max_bytes == 2**31 - 1
    assert request.session_epoch == -1
    assert request.replica_state == ReplicaState(replica_id=-1, replica_epoch=-1)
    assert request.topics == []
    assert FetchTopic().topic_id == ZERO_UUID
    assert CreateTopicsRequest().timeout_ms == 60_000
    assert MetadataRequest().allow_auto_topic_creation is True


def test_every_instance_has_lists_and_structs_of_its_own() -> None:
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(FetchTopic())
    first.replica_state.replica_id = 9
    assert second.topics == []
    assert second.replica_state.replica_id == -1


def test_the_tagged_structs_of_the_hot_path_are_absent_by_default() -> None:
    assert PartitionData().current_leader is None
    assert PartitionData().records == b""


def test_fields_are_keywords_and_known_ones_only() -> None:
    anything: Any = MetadataRequestTopic
    with pytest.raises(TypeError):
        anything("topic")
    with pytest.raises(TypeError):
        anything(nome="topic")


def test_messages_have_no_room_for_other_attributes() -> None:
    topic: Any = MetadataRequestTopic()
    with pytest.raises(AttributeError):
        topic.partitions = []


def test_messages_are_equal_by_value_and_only_to_their_kind() -> None:
    assert MetadataRequestTopic(name="a") == MetadataRequestTopic(name="a")
    assert MetadataRequestTopic(name="a") != MetadataRequestTopic(name="b")
    assert MetadataRequestTopic() != FetchTopic()
    assert copy.deepcopy(FetchRequest()) == FetchRequest()


def test_a_message_can_be_changed_so_it_cannot_be_hashed() -> None:
    with pytest.raises(TypeError):
        hash(MetadataRequestTopic())


def test_a_message_says_what_it_holds() -> None:
    topic = MetadataRequestTopic(name="a")
    assert repr(topic) == f"MetadataRequestTopic(topic_id={ZERO_UUID!r}, name='a')"


def test_types_and_versions_are_resolved_for_the_compiler() -> None:
    topics, *_ = fields_of(MetadataRequest)
    assert topics.type == ArrayOf(StructOf(MetadataRequestTopic))
    assert topics.nullable == parse_versions("1+")
    topic_id, name = fields_of(MetadataRequestTopic)
    assert topic_id.type == Fixed("16s", 16)
    assert topic_id.versions == parse_versions("10+")
    assert name.nullable == parse_versions("10+")
    assert not is_flexible(MetadataRequest, 8)
    assert is_flexible(MetadataRequest, 9)


def test_a_message_without_fields_can_be_made() -> None:
    class Empty(Message):
        """Nothing in it."""

    assert Empty() == Empty()
    assert fields_of(Empty) == ()


def test_a_type_the_wire_cannot_carry_is_refused_by_name() -> None:
    class Wrong(Message):
        name: dict[str, int] = field()

    with pytest.raises(TypeError, match="dict"):
        fields_of(Wrong)


def test_a_plain_int_is_refused_because_it_has_no_width() -> None:
    class Wrong(Message):
        number: int = 0
        right: int32 = 0

    with pytest.raises(TypeError, match="int"):
        fields_of(Wrong)


def test_a_uuid_default_is_shared_and_zero() -> None:
    assert FetchTopic().topic_id is ZERO_UUID
    assert uuid.UUID(int=0) == ZERO_UUID
