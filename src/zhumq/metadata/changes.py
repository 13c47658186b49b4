"""All changes of the metadata image, each a value with a JSON form."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, assert_never, cast

from zhumq.metadata.image import Broker, ClusterImage, Endpoint, PartitionState, Topic
from zhumq.metadata.security import (
    AclsChanged,
    CredentialsChanged,
    QuotasChanged,
    SecurityChange,
    apply_security_changes,
    security_change_from_json,
    security_change_to_json,
    security_changes_of,
)
from zhumq.model.ids import BrokerId, LeaderEpoch
from zhumq.model.replication_mode import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCreated:
    """A topic was created, with all its partitions placed."""

    topic: Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    """A topic was deleted with its data."""

    name: str
    topic_id: uuid.UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAdded:
    """These partitions were added to a topic, after the existing ones."""

    name: str
    partitions: tuple[PartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettingsChanged:
    """These settings replace all explicit settings of a topic."""

    name: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettingsChanged:
    """These settings replace all dynamic settings of one broker or of all brokers."""

    # A broker id, or ALL_BROKERS.
    who: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsAllocated:
    """All producer ids below this one are allocated to brokers."""

    next_producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChanged:
    """This state replaces the state of a partition."""

    name: str
    partition: int
    state: PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistered:
    """A broker registered with these listeners. It ends an earlier registration of the broker."""

    broker: Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGone:
    """A broker's session ended. It counts as dead until it registers again."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerElected:
    """This broker became the controller."""

    broker_id: BrokerId
    epoch: int


Change = (
    TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | TopicSettingsChanged
    | BrokerSettingsChanged
    | ProducerIdsAllocated
    | PartitionChanged
    | BrokerRegistered
    | BrokerGone
    | ControllerElected
    | SecurityChange
)


class Draft:
    """A draft of the next metadata image. All changes work on one copy, so many cost little more than one."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self.brokers = dict(image.brokers)
        self.topics = dict(image.topics)
        self.topics_by_id = dict(image.topics_by_id)
        self.partition_count = image.partition_count
        self.broker_settings = dict(image.broker_settings)
        self._next_producer_id = image.next_producer_id
        self._controller = (image.controller_id, image.controller_epoch)
        self._security_changes: list[SecurityChange] = []

    def apply(self, change: Change) -> None:
        """Apply one change, which was decided on this draft."""
        match change:
            case TopicCreated():
                self._put(change.topic)
            case TopicDeleted():
                self.partition_count -= len(self.topics.pop(change.name).partitions)
                del self.topics_by_id[change.topic_id]
            case PartitionsAdded():
                topic = self.topics[change.name]
                self._put(replace(topic, partitions=topic.partitions + change.partitions))
            case TopicSettingsChanged():
                self._put(replace(self.topics[change.name], settings=change.settings))
            case BrokerSettingsChanged():
                self.broker_settings.pop(change.who, None)
                if change.settings:
                    self.broker_settings[change.who] = change.settings
            case ProducerIdsAllocated():
                self._next_producer_id = change.next_producer_id
            case PartitionChanged():
                self.change_partitions(change.name, [change])
            case BrokerRegistered():
                self.brokers[change.broker.broker_id] = change.broker
            case BrokerGone():
                self.brokers.pop(change.broker_id, None)
            case ControllerElected():
                self._controller = (change.broker_id, change.epoch)
            case AclsChanged() | CredentialsChanged() | QuotasChanged():
                self._security_changes.append(change)
            case _:
                assert_never(change)

    def change_partitions(self, name: str, changes: Sequence[PartitionChanged]) -> None:
        """Apply many changes of one topic's partitions at the cost of one."""
        topic = self.topics[name]
        partitions = list(topic.partitions)
        for change in changes:
            partitions[change.partition] = change.state
        self._put(replace(topic, partitions=tuple(partitions)))

    def finish(self) -> ClusterImage:
        """The finished image. Do not use the draft after this."""
        controller_id, controller_epoch = self._controller
        return replace(
            self._image,
            version=self._image.version + 1,
            topics=self.topics,
            topics_by_id=self.topics_by_id,
            partition_count=self.partition_count,
            next_producer_id=self._next_producer_id,
            brokers=self.brokers,
            broker_settings=self.broker_settings,
            controller_id=controller_id,
            controller_epoch=controller_epoch,
            security=apply_security_changes(self._image.security, self._security_changes),
        )

    def _put(self, topic: Topic) -> None:
        before = self.topics.get(topic.name)
        self.partition_count += len(topic.partitions) - (len(before.partitions) if before else 0)
        self.topics[topic.name] = topic
        self.topics_by_id[topic.topic_id] = topic


def apply_changes(image: ClusterImage, changes: Sequence[Change]) -> ClusterImage:
    """The next metadata image. The changes were decided on this image, one after the other."""
    draft = Draft(image)
    for name, run in groupby(changes, key=_changed_partitions_topic):
        if name is None:
            for change in run:
                draft.apply(change)
        else:
            draft.change_partitions(
                name, [each for each in run if isinstance(each, PartitionChanged)]
            )
    return draft.finish()


def _changed_partitions_topic(change: Change) -> str | None:
    return change.name if isinstance(change, PartitionChanged) else None


def changes_of(image: ClusterImage) -> list[Change]:
    """A snapshot: the changes that lead from an empty cluster to this image."""
    changes: list[Change] = [TopicCreated(topic=topic) for topic in image.topics.values()]
    changes.append(ProducerIdsAllocated(next_producer_id=image.next_producer_id))
    for who, settings in image.broker_settings.items():
        changes.append(BrokerSettingsChanged(who=who, settings=settings))
    changes.extend(security_changes_of(image.security))
    return changes


def change_to_json(change: Change) -> dict[str, Any]:
    """The JSON form of a change."""
    match change:
        case TopicCreated():
            topic = change.topic
            return {
                "change": "topic_created",
                "name": topic.name,
                "topic_id": str(topic.topic_id),
                "partitions": [_partition_to_json(state) for state in topic.partitions],
                "settings": dict(topic.settings),
            }
        case TopicDeleted():
            return {
                "change": "topic_deleted",
                "name": change.name,
                "topic_id": str(change.topic_id),
            }
        case PartitionsAdded():
            partitions = [_partition_to_json(state) for state in change.partitions]
            return {"change": "partitions_added", "name": change.name, "partitions": partitions}
        case TopicSettingsChanged():
            settings = dict(change.settings)
            return {"change": "topic_settings_changed", "name": change.name, "settings": settings}
        case BrokerSettingsChanged():
            settings = dict(change.settings)
            return {"change": "broker_settings_changed", "who": change.who, "settings": settings}
        case ProducerIdsAllocated():
            return {"change": "producer_ids_allocated", "next": change.next_producer_id}
        case PartitionChanged():
            return {
                "change": "partition_changed",
                "name": change.name,
                "partition": change.partition,
                **_partition_to_json(change.state),
            }
        case BrokerRegistered():
            broker = change.broker
            return {
                "change": "broker_registered",
                "broker": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "epoch": broker.epoch,
                "replica_host": broker.replica_host,
                "replica_port": broker.replica_port,
                "push_address": broker.push_address,
                "replica_tls": broker.replica_tls,
                "endpoints": {
                    name: [each.host, each.port] for name, each in broker.endpoints.items()
                },
            }
        case BrokerGone():
            return {"change": "broker_gone", "broker": change.broker_id}
        case ControllerElected():
            return {
                "change": "controller_elected",
                "broker": change.broker_id,
                "epoch": change.epoch,
            }
        case AclsChanged() | CredentialsChanged() | QuotasChanged():
            return security_change_to_json(change)
        case _:
            assert_never(change)


def change_from_json(data: Mapping[str, Any]) -> Change:
    """The change of a JSON form. Raises KeyError or ValueError on invalid data."""
    match data["change"]:
        case "topic_created":
            topic = Topic(
                name=data["name"],
                topic_id=uuid.UUID(data["topic_id"]),
                partitions=tuple(_partition_from_json(state) for state in data["partitions"]),
                settings=dict(data["settings"]),
            )
            return TopicCreated(topic=topic)
        case "topic_deleted":
            return TopicDeleted(name=data["name"], topic_id=uuid.UUID(data["topic_id"]))
        case "partitions_added":
            partitions = tuple(_partition_from_json(state) for state in data["partitions"])
            return PartitionsAdded(name=data["name"], partitions=partitions)
        case "topic_settings_changed":
            return TopicSettingsChanged(name=data["name"], settings=dict(data["settings"]))
        case "broker_settings_changed":
            return BrokerSettingsChanged(who=data["who"], settings=dict(data["settings"]))
        case "producer_ids_allocated":
            return ProducerIdsAllocated(next_producer_id=int(data["next"]))
        case "partition_changed":
            return PartitionChanged(
                name=data["name"],
                partition=int(data["partition"]),
                state=_partition_from_json(data),
            )
        case "broker_registered":
            broker = Broker(
                broker_id=BrokerId(int(data["broker"])),
                host=data["host"],
                port=int(data["port"]),
                rack=data["rack"],
                epoch=int(data["epoch"]),
                replica_host=data.get("replica_host", ""),
                replica_port=int(data.get("replica_port", 0)),
                push_address=data.get("push_address", ""),
                replica_tls=bool(data.get("replica_tls", False)),
                endpoints={
                    name: Endpoint(host=host, port=int(port))
                    for name, (host, port) in data.get("endpoints", {}).items()
                },
            )
            return BrokerRegistered(broker=broker)
        case "broker_gone":
            return BrokerGone(broker_id=BrokerId(int(data["broker"])))
        case "controller_elected":
            return ControllerElected(
                broker_id=BrokerId(int(data["broker"])), epoch=int(data["epoch"])
            )
        case _:
            return security_change_from_json(data)


def _partition_to_json(state: PartitionState) -> dict[str, Any]:
    data: dict[str, Any] = {
        "replicas": list(state.replicas),
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "in_sync": list(state.in_sync),
    }
    # Rare fields are left out, so that a topic of many partitions stays small.
    if state.partition_epoch:
        data["partition_epoch"] = state.partition_epoch
    if state.leader_broker_epoch:
        data["leader_broker_epoch"] = state.leader_broker_epoch
    if state.adding:
        data["adding"] = list(state.adding)
    if state.removing:
        data["removing"] = list(state.removing)
    if state.mode is not Mode.RAFT:
        data["mode"] = state.mode
    if state.changing_mode:
        data["handover"] = True
    if state.eligible:
        data["eligible"] = list(state.eligible)
    if state.planned_replicas:
        data["wanted_replicas"] = list(state.planned_replicas)
    if state.unclean_epoch >= 0:
        data["unclean_epoch"] = state.unclean_epoch
    return data


def _partition_from_json(data: Mapping[str, Any]) -> PartitionState:
    # A starting broker reads every partition of the cluster, and these two are nearly always equal.
    replicas = _brokers(data["replicas"])
    in_sync = replicas if data["in_sync"] == data["replicas"] else _brokers(data["in_sync"])
    return PartitionState(
        replicas=replicas,
        leader=BrokerId(int(data["leader"])),
        leader_epoch=LeaderEpoch(int(data["leader_epoch"])),
        in_sync=in_sync,
        partition_epoch=int(data.get("partition_epoch", 0)),
        leader_broker_epoch=int(data.get("leader_broker_epoch", 0)),
        adding=_brokers(data.get("adding", ())),
        removing=_brokers(data.get("removing", ())),
        mode=Mode(data.get("mode", Mode.RAFT)),
        changing_mode=bool(data.get("handover", False)),
        eligible=_brokers(data.get("eligible", ())),
        planned_replicas=_brokers(data.get("wanted_replicas", ())),
        unclean_epoch=int(data.get("unclean_epoch", -1)),
    )


def _brokers(data: Sequence[Any]) -> tuple[BrokerId, ...]:
    return cast("tuple[BrokerId, ...]", tuple(map(int, data)) if data else ())
