"""Settings: of a topic, of a share group, of a broker, and of all brokers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import NotFound, Refused

# The protocol's codes.
_TOPIC: Final = 2
_BROKER: Final = 4
_ALL_BROKERS: Final = ""
_SET: Final = 0
_DELETE: Final = 1
_TOPICS_AT_ONCE: Final = 500  # in one request


class Origin(StrEnum):
    """Where the value of a setting comes from."""

    OWN = "own"  # It was set for this topic or group.
    BROKER = "broker"  # It was set for a broker while that was running.
    ALL_BROKERS = "all-brokers"
    FILE = "file"  # the settings that the broker was started with
    DEFAULT = "default"


# DescribeConfigs' codes.
_ORIGINS: Final = {
    1: Origin.OWN,
    2: Origin.BROKER,
    3: Origin.ALL_BROKERS,
    4: Origin.FILE,
    5: Origin.DEFAULT,
    8: Origin.OWN,  # of a group
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting of a topic or a group, and what it is if none is set anywhere."""

    value: str | None
    default: str | None
    origin: Origin

    @property
    def is_own(self) -> bool:
        """It was set for this one, and is not a default."""
        return self.origin is Origin.OWN


def topic_settings(connection: ClusterConnection, topic: str) -> dict[str, Setting]:
    """All settings of a topic by name, also the defaults."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    # ConfigEntry declares another type of `source` than it has.
    found: dict[str, Any] = connection.ask(
        f"read the settings of {topic!r}", AdminClient.describe_configs, [resource]
    )
    return {name: _setting(entry) for name, entry in found.items()}


def broker_settings(connection: ClusterConnection, broker: int) -> dict[str, Setting]:
    """All settings of a broker by name, as it has them, also the defaults. Secrets have no value. Raises NotFound."""
    if broker not in connection.broker_addresses():
        raise NotFound(f"there is no broker {broker}", "see `zhumq cluster status`")
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    found: dict[str, Any] = connection.ask(
        f"read the settings of broker {broker}", AdminClient.describe_configs, [resource]
    )
    return {name: _setting(entry) for name, entry in found.items()}


def topics_with(
    connection: ClusterConnection, topics: Sequence[str], name: str, value: str
) -> list[str]:
    """Those of the topics whose setting has this value. Topics whose settings may not be read are left out."""
    # Imported here, as the connection does: most operations do without the codecs.
    from zhumq.protocol.api import ApiKey  # noqa: PLC0415
    from zhumq.protocol.messages.configs import (  # noqa: PLC0415
        DescribeConfigsRequest,
        DescribeConfigsResource,
    )

    found = []
    for first in range(0, len(topics), _TOPICS_AT_ONCE):
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=_TOPIC, resource_name=topic, configuration_keys=[name]
                )
                for topic in topics[first : first + _TOPICS_AT_ONCE]
            ]
        )
        answer = connection.request(ApiKey.DESCRIBE_CONFIGS, request)
        found += [
            each.resource_name
            for each in answer.results
            if any(config.name == name and config.value == value for config in each.configs)
        ]
    return found


def alter_topic_settings(
    connection: ClusterConnection,
    topic: str,
    changes: Mapping[str, str],
    unset: Iterable[str] = (),
) -> None:
    """Change settings of a topic, and reset those of `unset` to their defaults."""
    known = topic_settings(connection, topic) if unset else {}
    _check_known(unset, known, "topics")
    _alter(connection, ConfigResource(ResourceType.TOPIC, topic), changes, unset)


def group_settings(connection: ClusterConnection, group: str) -> dict[str, Setting]:
    """All settings of a share group by name, also the defaults."""
    resource = ConfigResource(ResourceType.GROUP, group)
    found: dict[str, Any] = connection.ask(
        f"read the settings of {group!r}", AdminClient.describe_configs, [resource]
    )
    return {name: _setting(entry) for name, entry in found.items()}


def alter_group_settings(
    connection: ClusterConnection,
    group: str,
    changes: Mapping[str, str],
    unset: Iterable[str] = (),
) -> None:
    """Change settings of a share group, and reset those of `unset` to their defaults."""
    known = group_settings(connection, group) if unset else {}
    _check_known(unset, known, "groups")
    _alter(connection, ConfigResource(ResourceType.GROUP, group), changes, unset)


def _check_known(unset: Iterable[str], known: Mapping[str, Setting], of_what: str) -> None:
    for name in unset:
        # Brokers ignore the deletion of an unknown setting, as Kafka does.
        if name not in known:
            raise Refused(f"cannot unset {name!r}: {of_what} have no such setting")


def _setting(entry: Any) -> Setting:
    origin = _ORIGINS.get(entry.source, Origin.DEFAULT)
    defaults = [
        each.value
        for each in (entry.synonyms or {}).values()
        if _ORIGINS.get(each.source) is Origin.DEFAULT
    ]
    if origin is Origin.DEFAULT:
        return Setting(value=entry.value, default=entry.value, origin=origin)
    return Setting(value=entry.value, default=defaults[0] if defaults else None, origin=origin)


def _alter(
    connection: ClusterConnection,
    resource: ConfigResource,
    changes: Mapping[str, str],
    unset: Iterable[str],
) -> None:
    for name, value in changes.items():
        resource.add_incremental_config(
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        )
    for name in unset:
        resource.add_incremental_config(
            ConfigEntry(name, "", incremental_operation=AlterConfigOpType.DELETE)
        )
    doing = f"change the settings of {resource.name!r}"
    connection.ask(doing, AdminClient.incremental_alter_configs, [resource])


def broker_setting(connection: ClusterConnection, name: str) -> str:
    """The value of a setting that all brokers share, as one of them has it."""

    def request(admin: AdminClient, seconds: float) -> str:
        # A broker that is alive now: the client's metadata may name a dead one.
        alive = admin.describe_cluster(request_timeout=seconds).result().nodes
        resource = ConfigResource(ResourceType.BROKER, str(alive[0].id))
        futures = admin.describe_configs([resource], request_timeout=seconds)
        return str(futures[resource].result()[name].value)

    return connection.ask_with("read the settings of a broker", request)


def alter_setting_of_all_brokers(
    connection: ClusterConnection, name: str, value: str | None
) -> None:
    """Set a setting of all brokers; None resets it to its default."""
    # Imported here: most operations do not need the codecs, which take time to load.
    from zhumq.model.errors import ErrorCode  # noqa: PLC0415
    from zhumq.protocol.api import ApiKey  # noqa: PLC0415
    from zhumq.protocol.messages import configs  # noqa: PLC0415

    change = configs.IncrementalAlterConfigsAlterableConfig(
        name=name, config_operation=_DELETE if value is None else _SET, value=value
    )
    resource = configs.IncrementalAlterConfigsResource(
        resource_type=_BROKER, resource_name=_ALL_BROKERS, configs=[change]
    )
    answer = connection.request(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        configs.IncrementalAlterConfigsRequest(resources=[resource]),
    )
    for response in answer.responses:
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode(response.error_code).name
            raise Refused(f"cannot set {name}: {response.error_message or code}", code=code)
