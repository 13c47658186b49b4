"""The bytes of nodes: small ones are readable, large ones compressed, damaged ones named in errors."""

import json
import uuid
import zlib

import pytest

from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster.store import StoreUnusable
from zhumq.cluster.znodes import Check, Create, Delete, SetData
from zhumq.metadata.changes import (
    BrokerGone,
    BrokerRegistered,
    BrokerSettingsChanged,
    Change,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
    TopicSettingsChanged,
    apply_changes,
)
from zhumq.metadata.image import Broker, ClusterImage, PartitionState, Topic
from zhumq.metadata.security import AclsChanged
from zhumq.model.errors import PolicyViolation
from zhumq.model.ids import BrokerId, LeaderEpoch
from zhumq.security.acl import AclEntry, Operation, Permission, ResourcePattern, ResourceType

EMPTY = ClusterImage(
    version=0,
    cluster_id="c",
    controller_id=BrokerId(-1),
    brokers={},
    topics={},
    topics_by_id={},
)
STATE = PartitionState(
    replicas=(BrokerId(1),),
    leader=BrokerId(1),
    leader_epoch=LeaderEpoch(0),
    in_sync=(BrokerId(1),),
)
BROKER = Broker(broker_id=BrokerId(1), host="h", port=1, rack="r", epoch=4)


def topic(name: str, partitions: int = 1) -> Topic:
    return Topic(name=name, topic_id=uuid.uuid4(), partitions=(STATE,) * partitions)


def operations(before: ClusterImage, *changes: Change) -> list[object]:
    after = apply_changes(before, changes)
    return list(layout.transaction(before, after, changes, mark="m", version_token=7))


def test_a_change_raises_the_version_adds_an_entry_and_touches_its_own_nodes_only() -> None:
    created = topic("a")
    first, entry, node = operations(EMPTY, TopicCreated(topic=created))
    assert isinstance(first, SetData)
    assert (first.path, first.version) == ("/version", 7)
    assert layout.decode_counters(first.data) == layout.Counters(version=1, next_producer_id=0)
    assert isinstance(entry, Create)
    assert entry.path == "/changes/0000000000000001"
    decoded = layout.decode_entry(entry.path, entry.data)
    assert decoded == layout.Entry(mark="m", changes=(TopicCreated(topic=created),))
    assert isinstance(node, Create)
    assert node.path == "/topics/a"
    assert layout.decode_topic(node.path, node.data) == created


def test_a_topics_node_is_created_written_and_deleted_with_the_topic() -> None:
    created = topic("a")
    image = apply_changes(EMPTY, [TopicCreated(topic=created)])
    changed = TopicSettingsChanged(name="a", settings={"k": "v"})
    assert [type(each) for each in operations(image, changed)[2:]] == [SetData]
    deleted = TopicDeleted(name="a", topic_id=created.topic_id)
    assert operations(image, deleted)[2:] == [Delete(path="/topics/a")]
    again = TopicCreated(topic=topic("a"))
    assert [type(each) for each in operations(image, deleted, again)[2:]] == [SetData]
    assert operations(EMPTY, TopicCreated(topic=created), deleted)[2:] == []


def test_a_broker_is_written_when_it_registers_and_removed_when_it_is_gone() -> None:
    registered = BrokerRegistered(broker=BROKER)
    (node,) = operations(EMPTY, registered)[2:]
    assert isinstance(node, Create)
    assert layout.decode_broker(node.path, node.data) == BROKER
    image = apply_changes(EMPTY, [registered])
    gone = BrokerGone(broker_id=BrokerId(1))
    assert operations(image, gone)[2:] == [Delete(path="/brokers/1")]
    guards = layout.gone_guards([gone])
    assert [type(each) for each in guards] == [Create, Delete]
    assert {each.path for each in guards} == {"/live/1"}


def test_broker_settings_are_one_node_that_is_deleted_with_the_last_setting() -> None:
    first = BrokerSettingsChanged(who="", settings={"k": "v"})
    (node,) = operations(EMPTY, first)[2:]
    assert isinstance(node, Create)
    assert layout.decode_settings(node.data) == {"": {"k": "v"}}
    image = apply_changes(EMPTY, [first])
    second = BrokerSettingsChanged(who="3", settings={"k": "w"})
    (node,) = operations(image, second)[2:]
    assert isinstance(node, SetData)
    assert layout.decode_settings(node.data) == {"": {"k": "v"}, "3": {"k": "w"}}
    taken_back = BrokerSettingsChanged(who="", settings={})
    assert operations(image, taken_back)[2:] == [Delete(path="/settings")]
    assert layout.subject_of(first) is None


def test_security_is_kept_in_buckets_of_which_a_change_writes_its_own() -> None:
    def acls(name: str, *operations: Operation) -> AclsChanged:
        entries = [AclEntry("User:a", "*", each, Permission.ALLOW) for each in operations]
        resource = ResourcePattern(ResourceType.TOPIC, name)
        return AclsChanged(resource=resource, entries=frozenset(entries))

    many = [acls(f"t{index}", Operation.READ) for index in range(1_000)]
    image = apply_changes(EMPTY, many)
    assert len({change.bucket for change in many}) > 200
    changed = acls("t7", Operation.READ, Operation.WRITE)
    (node,) = operations(image, changed)[2:]
    assert isinstance(node, SetData)
    assert node.path == f"/security/{changed.bucket}"
    kept = layout.decode_bucket(node.path, node.data)
    assert changed in kept
    assert {each.bucket for each in kept} == {changed.bucket}
    assert len(kept) == sum(each.bucket == changed.bucket for each in many)
    alone = apply_changes(EMPTY, [changed])
    assert operations(alone, acls("t7"))[2:] == [Delete(path=f"/security/{changed.bucket}")]
    assert layout.subject_of(changed) is None


@pytest.mark.parametrize("data", [b"", b"[]", b'{"changes": 5}', b'{"changes": [{"change": "x"}]}'])
def test_a_damaged_bucket_is_refused_with_its_name(data: bytes) -> None:
    with pytest.raises(StoreUnusable, match="/security/acls-00"):
        layout.decode_bucket("/security/acls-00", data)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"1": 5}', b'{"1": "abc"}', b"\xff"])
def test_damaged_settings_are_refused_with_the_name_of_their_node(data: bytes) -> None:
    with pytest.raises(StoreUnusable, match="/settings"):
        layout.decode_settings(data)


def test_guards_come_before_everything_they_guard() -> None:
    after = apply_changes(EMPTY, [ProducerIdsAllocated(next_producer_id=1)])
    guard = Check(path="/controller", version=3)
    made = layout.transaction(EMPTY, after, [], mark="m", version_token=0, guards=[guard])
    assert made[0] == guard


def test_small_nodes_are_json_and_large_ones_are_packed() -> None:
    small, large = operations(EMPTY, TopicCreated(topic=topic("a")))[2], None
    assert isinstance(small, Create)
    assert json.loads(small.data)["name"] == "a"
    wide = topic("w", 10_000)
    large = operations(EMPTY, TopicCreated(topic=wide))[2]
    assert isinstance(large, Create)
    assert len(large.data) < 20_000
    assert layout.decode_topic(large.path, large.data) == wide


def test_a_transaction_too_large_for_zookeeper_is_refused_before_it_is_sent() -> None:
    with pytest.raises(PolicyViolation, match="request fewer topics or partitions"):
        operations(EMPTY, *(TopicCreated(topic=topic(f"t{n}")) for n in range(5_000)))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b"z", b"zx", b"z" + zlib.compress(b"{}")[:-1], b"\xff"]
)
def test_damaged_data_is_refused_with_the_name_of_its_node(data: bytes) -> None:
    with pytest.raises(StoreUnusable, match="/topics/t"):
        layout.decode_topic("/topics/t", data)
    with pytest.raises(StoreUnusable, match="/brokers/1"):
        layout.decode_broker("/brokers/1", data)
    with pytest.raises(StoreUnusable, match="/changes/1"):
        layout.decode_entry("/changes/1", data)
    with pytest.raises(StoreUnusable, match="/live/1"):
        layout.decode_registration("/live/1", data)
    with pytest.raises(StoreUnusable, match="/version"):
        layout.decode_counters(data)
    with pytest.raises(StoreUnusable, match="/controller"):
        layout.decode_controller(data)
    with pytest.raises(StoreUnusable):
        layout.decode_format(data)


def test_a_node_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "UNPACKED_BYTES_MAX", 1_000)
    bomb = b"z" + zlib.compress(b" " * 1_000_000)
    with pytest.raises(StoreUnusable, match="/topics/t"):
        layout.decode_topic("/topics/t", bomb)


def test_the_nodes_of_another_layout_are_refused() -> None:
    with pytest.raises(StoreUnusable, match="layout 2, and this release knows layout 1"):
        layout.decode_format(b'{"layout": 2, "cluster_id": "c"}')


def test_every_node_at_the_top_is_known_as_the_clusters_own() -> None:
    paths = {
        value
        for name, value in vars(layout).items()
        if name.isupper() and isinstance(value, str) and value.startswith("/")
    }
    assert paths == layout.OWN_NODES
