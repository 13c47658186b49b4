"""Plans topic creation, growth, deletion and settings: a change, or an error with the reason. Pure."""

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from zhumq.metadata.changes import (
    BrokerSettingsChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
    TopicSettingsChanged,
)
from zhumq.metadata.image import ALL_BROKERS, NO_BROKER, ClusterView, PartitionState, Topic
from zhumq.metadata.placement import VIRTUAL_NODES, place
from zhumq.model.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    SettingInvalid,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from zhumq.model.ids import INTERNAL_TOPICS, BrokerId, LeaderEpoch
from zhumq.model.replication_mode import Mode
from zhumq.model.settings import SettingsTable, SettingType
from zhumq.model.topic_config import TOPIC_SETTINGS

TOPIC_NAME_LENGTH_MAX: Final = 249
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
MODE_SETTING: Final = "replication.mode"
FIRST_LEADER_EPOCH = LeaderEpoch(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLimits:
    """The operator's limits for topics, and the defaults where a client gives no value."""

    default_partitions: int
    default_replication_factor: int
    partitions_per_topic_max: int
    partitions_in_all_max: int
    virtual_nodes: int = VIRTUAL_NODES
    # The mode of a topic without the setting.
    default_mode: Mode = Mode.RAFT


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create. -1 means the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    # Partition index -> brokers. It replaces both counts.
    assignment: Mapping[int, Sequence[int]] | None = None
    settings: Mapping[str, str | None] | None = None
    # The operator's limits are for clients. A coordinator's topic takes its partition count from its
    # own setting; refusing it would stop all consumers.
    is_internal: bool = False


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic unless the name is valid. A valid name is also safe as a directory name."""
    if not name:
        raise InvalidTopic("a topic name cannot be empty")
    if name in (".", ".."):
        raise InvalidTopic("a topic name cannot be '.' or '..'")
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopic(f"a topic name has at most {TOPIC_NAME_LENGTH_MAX} characters")
    if not _TOPIC_NAME.fullmatch(name):
        raise InvalidTopic(f"topic name {name!r} has characters other than a-z A-Z 0-9 . _ -")


def plan_topic(
    image: ClusterView, new_topic: NewTopic, topic_id: uuid.UUID, limits: TopicLimits
) -> TopicCreated:
    """Create a topic and place its partitions."""
    check_topic_name(new_topic.name)
    if new_topic.name in image.topics:
        raise TopicAlreadyExists(f"topic {new_topic.name!r} already exists")
    settings = check_topic_settings(new_topic.settings or {})
    if new_topic.assignment:
        if new_topic.partitions != -1 or new_topic.replication_factor != -1:
            raise InvalidRequest(
                "give either an assignment or the numbers of partitions and replicas, not both"
            )
        replicas = _check_assignment(image, new_topic.assignment, first_partition=0)
        _check_partition_count(image, new_topic.name, len(replicas), len(replicas), limits)
    else:
        count = limits.default_partitions if new_topic.partitions == -1 else new_topic.partitions
        copies = new_topic.replication_factor
        copies = limits.default_replication_factor if copies == -1 else copies
        if not new_topic.is_internal:
            _check_partition_count(image, new_topic.name, count, count, limits)
        replicas = _place(image, new_topic.name, (), count, copies, limits)
    topic = Topic(
        name=new_topic.name,
        topic_id=topic_id,
        partitions=tuple(_new_partition(image, each, settings, limits) for each in replicas),
        settings=settings,
    )
    return TopicCreated(topic=topic)


def plan_more_partitions(
    image: ClusterView,
    name: str,
    count: int,
    assignment: Sequence[Sequence[int]] | None,
    limits: TopicLimits,
) -> PartitionsAdded:
    """Grow a topic to `count` partitions in total."""
    topic = existing_topic(image, name)
    present = len(topic.partitions)
    if count == present:
        raise InvalidPartitions(f"topic {name!r} already has {count} partitions")
    if count < present:
        raise InvalidPartitions(
            f"topic {name!r} has {present} partitions; the number can only grow, not become {count}"
        )
    _check_partition_count(image, name, count, count - present, limits)
    if assignment is None:
        copies = len(topic.partitions[0].target_replicas)
        replicas = _place(image, name, topic.partitions, count, copies, limits)
    else:
        if len(assignment) != count - present:
            raise InvalidReplicaAssignment(
                f"{count - present} partitions are new, but the assignment has {len(assignment)}"
            )
        by_index = {present + index: brokers for index, brokers in enumerate(assignment)}
        replicas = _check_assignment(image, by_index, first_partition=present)
    partitions = tuple(_new_partition(image, each, topic.settings, limits) for each in replicas)
    return PartitionsAdded(name=name, partitions=partitions)


def plan_deletion(image: ClusterView, name: str) -> TopicDeleted:
    """Delete a topic."""
    topic = existing_topic(image, name)
    if name in INTERNAL_TOPICS:
        raise InvalidTopic(f"{name!r} is internal and cannot be deleted")
    return TopicDeleted(name=name, topic_id=topic.topic_id)


def plan_settings(
    image: ClusterView, name: str, settings: Mapping[str, str | None]
) -> TopicSettingsChanged:
    """Replace the settings of a topic."""
    existing_topic(image, name)
    return TopicSettingsChanged(name=name, settings=check_topic_settings(settings))


def plan_broker_settings(
    who: str, settings: Mapping[str, str | None], table: SettingsTable
) -> BrokerSettingsChanged:
    """Replace the dynamic settings of one broker or of all brokers."""
    if who != ALL_BROKERS and not who.isdecimal():
        raise InvalidRequest(f"{who!r} is not a broker id")
    kept = _check_settings(settings, table, "brokers")
    for name in kept:
        if not table.setting(name).changes_while_running:
            raise InvalidConfig(
                f"{name} cannot change while a broker runs: set it at start with --set NAME=VALUE"
                " or in the TOML file"
            )
    return BrokerSettingsChanged(who=who, settings=kept)


def append_to_list_setting(name: str, present: str, value: str) -> str:
    """The list setting with these elements added."""
    elements = _list_elements(name, present)
    return ",".join([*elements, *(each for each in value.split(",") if each not in elements)])


def subtract_from_list_setting(name: str, present: str, value: str) -> str:
    """The list setting without these elements."""
    gone = value.split(",")
    return ",".join(each for each in _list_elements(name, present) if each not in gone)


def check_topic_settings(settings: Mapping[str, str | None]) -> dict[str, str]:
    """The settings as text, without those given as null. Raises InvalidConfig."""
    return _check_settings(settings, TOPIC_SETTINGS, "topics")


def _check_settings(
    settings: Mapping[str, str | None], table: SettingsTable, whose: str
) -> dict[str, str]:
    kept: dict[str, str] = {}
    for name, value in settings.items():
        if name not in table.by_name:
            raise InvalidConfig(f"{whose} have no setting named {name!r}")
        if value is None:
            continue
        try:
            table.setting(name).parse(value)
        except SettingInvalid as reason:
            raise InvalidConfig(str(reason)) from None
        kept[name] = value
    return kept


def existing_topic(image: ClusterView, name: str) -> Topic:
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"there is no topic {name!r}")
    return topic


def _list_elements(name: str, present: str) -> list[str]:
    setting = TOPIC_SETTINGS.by_name.get(name)
    if setting is None:
        raise InvalidConfig(f"topics have no setting named {name!r}")
    if setting.type is not SettingType.LIST:
        raise InvalidConfig(f"{name} is not a list: set it, do not append or subtract")
    return [element.strip() for element in present.split(",") if element.strip()]


def _check_partition_count(
    image: ClusterView, name: str, count: int, new: int, limits: TopicLimits
) -> None:
    if count <= 0:
        raise InvalidPartitions(f"topic {name!r} needs at least one partition, not {count}")
    if count > limits.partitions_per_topic_max:
        raise InvalidPartitions(
            f"{count} partitions are more than topic.partitions.max={limits.partitions_per_topic_max}"
        )
    internal = sum(
        len(image.topics[each].partitions) for each in INTERNAL_TOPICS if each in image.topics
    )
    if image.partition_count - internal + new > limits.partitions_in_all_max:
        raise PolicyViolation(
            f"the cluster would have more than cluster.partitions.max={limits.partitions_in_all_max}"
            " partitions"
        )


def _place(
    image: ClusterView,
    name: str,
    present: Sequence[PartitionState],
    count: int,
    copies: int,
    limits: TopicLimits,
) -> list[tuple[BrokerId, ...]]:
    if copies <= 0:
        raise InvalidReplicationFactor(f"a partition needs at least one replica, not {copies}")
    if copies > len(image.brokers):
        raise InvalidReplicationFactor(
            f"{copies} replicas need as many brokers, and {len(image.brokers)} are alive"
        )
    return place(
        image.brokers.values(),
        name,
        count,
        copies,
        present=[state.target_replicas for state in present],
        virtual_nodes=limits.virtual_nodes,
    )


def _check_assignment(
    image: ClusterView, assignment: Mapping[int, Sequence[int]], *, first_partition: int
) -> list[tuple[BrokerId, ...]]:
    if sorted(assignment) != list(range(first_partition, first_partition + len(assignment))):
        raise InvalidReplicaAssignment("partitions must be numbered without a gap or a repetition")
    replicas = []
    for index in sorted(assignment):
        brokers = tuple(BrokerId(broker) for broker in assignment[index])
        if not brokers or len(set(brokers)) != len(brokers):
            raise InvalidReplicaAssignment(f"partition {index} has no broker, or one twice")
        unknown = [broker for broker in brokers if broker not in image.brokers]
        if unknown:
            raise InvalidReplicaAssignment(f"partition {index} names unknown brokers {unknown}")
        replicas.append(brokers)
    if len({len(brokers) for brokers in replicas}) != 1:
        raise InvalidReplicaAssignment("all partitions need the same number of replicas")
    return replicas


def _new_partition(
    image: ClusterView,
    replicas: tuple[BrokerId, ...],
    settings: Mapping[str, str],
    limits: TopicLimits,
) -> PartitionState:
    led = PartitionState(
        replicas=replicas,
        leader=replicas[0],
        leader_epoch=FIRST_LEADER_EPOCH,
        in_sync=replicas,
        leader_broker_epoch=image.brokers[replicas[0]].epoch,
    )
    mode = Mode(settings.get(MODE_SETTING, limits.default_mode))
    if mode is Mode.FETCH:
        return replace(led, mode=mode)
    # The replicas will elect their first leader.
    return replace(led, mode=mode, leader=NO_BROKER, leader_broker_epoch=0)
