"""Creates the topics that a pipeline writes to, and reads their retention."""

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from zhumq.model.errors import ZhumqError
from zhumq.spark.cluster_client import ClusterClient

REACH_SECONDS_MAX = 10.0
REQUEST_SECONDS_MAX = 30.0
BROKERS_DEFAULT = -1  # the broker's default number of partitions and replicas


class TopicFailed(ZhumqError):
    """A topic that could not be created, or whose settings could not be read."""


def check_broker(bootstrap: str) -> None:
    """Raise ClusterFailed early if no broker answers."""
    with ClusterClient(bootstrap, retry_seconds_max=REACH_SECONDS_MAX) as client:
        client.partitions([])


def make_topics(bootstrap: str, names: Iterable[str]) -> list[str]:
    """Create those of the topics that do not exist, and return their names."""
    targets = sorted(set(names))
    if not targets:
        return []
    with ClusterClient(bootstrap, retry_seconds_max=REACH_SECONDS_MAX) as client:
        existing = client.partitions(targets)
    missing = [name for name in targets if name not in existing]
    if not missing:
        return []
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [NewTopic(name, BROKERS_DEFAULT, BROKERS_DEFAULT) for name in missing]
    for name, future in admin.create_topics(topics, request_timeout=REQUEST_SECONDS_MAX).items():
        try:
            future.result(REQUEST_SECONDS_MAX * 2)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicFailed(
                    f"cannot create the topic {name!r}: {error.args[0].str()}"
                ) from None
    return missing


def retention_ms_of(bootstrap: str, topic: str) -> int | None:
    """How long a topic keeps a record after its timestamp; None if retention does not depend on it."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    described = admin.describe_configs([resource], request_timeout=REQUEST_SECONDS_MAX)
    try:
        settings = described[resource].result(REQUEST_SECONDS_MAX * 2)
    except KafkaException as error:
        raise TopicFailed(
            f"cannot read the settings of the topic {topic!r}: {error.args[0].str()}"
        ) from None
    values = {name: each.value for name, each in settings.items()}
    deletes = "delete" in values.get("cleanup.policy", "delete").split(",")
    by_own_time = values.get("message.timestamp.type", "CreateTime") == "CreateTime"
    retention_ms = int(values.get("retention.ms", -1))
    return retention_ms if deletes and by_own_time and retention_ms >= 0 else None
