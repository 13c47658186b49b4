"""Topics: create, list, describe, grow, release and delete them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, TopicDescription

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import NotFound, kafka_errors
from zhumq.admin.offsets import known_ends, known_starts
from zhumq.admin.settings import topic_settings
from zhumq.admin.subscriptions import known_subscriptions
from zhumq.model.replication_mode import MODES_SETTING, read_modes

BROKER_DEFAULT: Final = -1  # the protocol's value for the broker's default


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    """A topic of a listing. `replicas` is the largest number that a partition has."""

    topic: str
    partitions: int
    replicas: int

    @property
    def is_internal(self) -> bool:
        return self.topic.startswith("__")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition. Without a leader its offsets are unknown."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    mode: str | None  # None, as is the next: the brokers have no replication modes
    wanted_mode: str | None  # another one while the mode changes
    earliest: int | None
    latest: int | None
    messages: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The group that reads a topic point-to-point, and its mode."""

    group: str
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic with its partitions, and the settings that differ from the defaults."""

    topic: str
    topic_id: str
    point_to_point: Claim | None
    settings: dict[str, str | None]
    partitions: tuple[Partition, ...]
    warning: str | None  # why the claim is unknown


def create_topic(
    connection: ClusterConnection,
    name: str,
    *,
    partitions: int = BROKER_DEFAULT,
    replicas: int = BROKER_DEFAULT,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Create a topic. Raises AlreadyExists."""
    doing = f"create {name!r}"
    with kafka_errors(doing):
        topic = NewTopic(name, partitions, replicas, config=dict(settings or {}))
    connection.change(doing, AdminClient.create_topics, [topic])


def list_topics(connection: ClusterConnection) -> list[TopicSummary]:
    """All topics by name, also the internal ones."""
    return [
        TopicSummary(
            topic=name,
            partitions=len(topic.partitions),
            replicas=max((len(each.replicas) for each in topic.partitions.values()), default=0),
        )
        for name, topic in sorted(connection.metadata().topics.items())
    ]


def describe_new_topic(connection: ClusterConnection, name: str) -> Topic:
    """A topic that was just created, as soon as the brokers that serve it know it."""
    for is_last in connection.attempts():
        try:
            return describe_topic(connection, name)
        except NotFound:
            if is_last:
                raise
    raise AssertionError("the last attempt returns or raises")


def describe_topic(connection: ClusterConnection, name: str) -> Topic:
    """A topic with the state and the offsets of its partitions. Raises NotFound."""
    found = topic_description(connection, name)
    numbers = [each.id for each in found.partitions]
    # The offsets of a partition are its leader's to give, and it may lose its leader at any moment.
    led = [(name, each.id) for each in found.partitions if each.leader is not None]
    earliest, latest = known_starts(connection, led), known_ends(connection, led)
    settings = topic_settings(connection, name)
    modes = partition_modes({key: each.value for key, each in settings.items()}, numbers)
    partitions = []
    for each in sorted(found.partitions, key=lambda each: each.id):
        mode, wanted_mode = modes[each.id]
        first, end = earliest.get((name, each.id)), latest.get((name, each.id))
        partitions.append(
            Partition(
                partition=each.id,
                leader=each.leader.id if each.leader is not None else None,
                replicas=tuple(node.id for node in each.replicas),
                in_sync=tuple(node.id for node in each.isr),
                mode=mode,
                wanted_mode=wanted_mode,
                earliest=first,
                latest=end,
                messages=None if first is None or end is None else end - first,
            )
        )
    subscriptions, warning = known_subscriptions(connection)
    claims = [
        Claim(group=each.group, mode=each.mode or "")
        for each in subscriptions.values()
        if name in each.claims
    ]
    return Topic(
        topic=name,
        # Kafka's tools write an id in the URL-safe base64 alphabet.
        topic_id=str(found.topic_id).replace("+", "-").replace("/", "_"),
        point_to_point=claims[0] if claims else None,
        settings={key: each.value for key, each in sorted(settings.items()) if each.is_own},
        partitions=tuple(partitions),
        warning=warning,
    )


def topic_partitions(connection: ClusterConnection, name: str) -> list[int]:
    """The partitions of a topic. Raises NotFound."""
    return sorted(each.id for each in topic_description(connection, name).partitions)


def partition_leaders(connection: ClusterConnection, name: str) -> dict[int, int | None]:
    """The leader of each partition of a topic. Raises NotFound."""
    return {
        each.id: each.leader.id if each.leader is not None else None
        for each in sorted(topic_description(connection, name).partitions, key=lambda each: each.id)
    }


def led_partitions(connection: ClusterConnection, name: str) -> list[int]:
    """The partitions of a topic that have a leader, which knows their offsets. Raises NotFound."""
    return [
        each.id
        for each in topic_description(connection, name).partitions
        if each.leader is not None
    ]


def led_places(connection: ClusterConnection, names: Collection[str]) -> set[tuple[str, int]]:
    """The partitions of topics that have a leader, by one request. A topic that was deleted has none."""
    return {
        (name, each.id)
        for name, topic in topic_descriptions(connection, names).items()
        for each in topic.partitions
        if each.leader is not None
    }


def topic_descriptions(
    connection: ClusterConnection, names: Collection[str]
) -> dict[str, TopicDescription]:
    """Topics by name, by one request. Those that do not exist, or that the caller may not see, are left out."""
    if not names:
        return {}
    topics = TopicCollection(sorted(names))
    return connection.ask_each(
        lambda admin, seconds: admin.describe_topics(topics, request_timeout=seconds)
    )


def add_partitions(connection: ClusterConnection, name: str, total: int) -> None:
    """Raise the number of a topic's partitions."""
    more = [NewPartitions(name, total)]
    connection.change(f"add partitions to {name!r}", AdminClient.create_partitions, more)


def delete_topic(connection: ClusterConnection, name: str) -> None:
    """Delete a topic with all its messages."""
    connection.change(f"delete {name!r}", AdminClient.delete_topics, [name])


def partition_modes(
    settings: Mapping[str, str | None], partitions: Sequence[int]
) -> dict[int, tuple[str | None, str | None]]:
    """The current and the target mode of each partition; None if the broker reports none."""
    described = settings.get(MODES_SETTING)
    if described is None:
        return dict.fromkeys(partitions, (None, None))
    modes = read_modes(described)
    target = settings["replication.mode"]
    # A partition that was just added is not described yet.
    return {each: (modes[each] if each < len(modes) else target, target) for each in partitions}


def topic_description(connection: ClusterConnection, name: str) -> TopicDescription:
    """A topic as Kafka's client library describes it. Asking never creates it. Raises NotFound."""
    names = TopicCollection([name])
    try:
        found: TopicDescription = connection.ask(
            f"describe {name!r}", AdminClient.describe_topics, names
        )
    except NotFound as error:
        raise NotFound(
            f"there is no topic {name!r}",
            f"see `zhumq topic list`, or create it with `zhumq topic create {name}`",
            code=error.code,
        ) from error
    return found
