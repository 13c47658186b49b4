"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from importlib import metadata

from zhumq.broker.config_entries import ConfigEntries, ConfigEntry, ConfigSource
from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.broker.settings import BROKER_SETTINGS
from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.metadata.image import ALL_BROKERS, Topic
from zhumq.metadata.topics import (
    append_to_list_setting,
    check_topic_name,
    existing_topic,
    subtract_from_list_setting,
)
from zhumq.model.broker_facts import VERSION_SETTING
from zhumq.model.errors import BrokerError, InvalidConfig, InvalidRequest
from zhumq.model.ids import BrokerId
from zhumq.model.replication_mode import MODES_SETTING, write_modes
from zhumq.model.settings import SettingType
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


class ResourceType(IntEnum):
    """The resource that a setting belongs to, in the protocol's codes."""

    TOPIC = 2
    BROKER = 4


class AlterOperation(IntEnum):
    """What IncrementalAlterConfigs does to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# From the settings that are set, and a lookup of values in force, to the changes; None deletes.
NewSettings = Callable[[Mapping[str, str], Callable[[str], str]], Mapping[str, str | None]]


class ConfigsHandler:
    """Describes and alters settings. All topic settings can change while running, few broker settings."""

    def __init__(
        self,
        broker_id: BrokerId,
        store: MetadataStore,
        metadata_client: MetadataClient,
        entries: ConfigEntries,
        *,
        has_modes: bool,
    ) -> None:
        self._broker_id = broker_id
        self._store = store
        self._metadata_client = metadata_client
        self._entries = entries
        # Whether partitions have a replication mode: on a single node they have none.
        self._has_modes = has_modes

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_CONFIGS: self.describe_configs,
            ApiKey.ALTER_CONFIGS: self.alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.incremental_alter_configs,
            ApiKey.LIST_CONFIG_RESOURCES: self.list_config_resources,
        }

    def describe_configs(
        self, _context: RequestContext, request: DescribeConfigsRequest
    ) -> DescribeConfigsResponse:
        response = DescribeConfigsResponse()
        for resource in request.resources:
            result = DescribeConfigsResult(
                resource_type=resource.resource_type, resource_name=resource.resource_name
            )
            response.results.append(result)
            try:
                entries = self._describe(resource)
            except BrokerError as reason:
                result.error_code = reason.code
                result.error_message = str(reason)
                continue
            result.configs = [
                _described(
                    entry,
                    with_synonyms=request.include_synonyms,
                    with_documentation=request.include_documentation,
                )
                for entry in entries
            ]
        return response

    def _describe(self, resource: DescribeConfigsResource) -> list[ConfigEntry]:
        names = resource.configuration_keys
        if resource.resource_type == ResourceType.TOPIC:
            check_topic_name(resource.resource_name)
            topic = existing_topic(self._store.image, resource.resource_name)
            entries = self._entries.of_topic(topic, names)
            if self._has_modes and (names is None or MODES_SETTING in names):
                entries.append(_modes_of(topic))
            return entries
        if resource.resource_type == ResourceType.BROKER:
            if resource.resource_name == ALL_BROKERS:
                return self._entries.of_all_brokers(self._store.image, names)
            if resource.resource_name != str(self._broker_id):
                raise InvalidRequest(
                    f"this is broker {self._broker_id}, not {resource.resource_name!r}"
                )
            entries = self._entries.of_broker(self._store.image, self._broker_id, names)
            # Not in the list of all settings, which Kafka's tools print: it is none.
            return entries if VERSION_SETTING not in (names or ()) else [*entries, _version()]
        raise InvalidRequest(f"resource type {resource.resource_type} has no settings here")

    async def alter_configs(
        self, _context: RequestContext, request: AlterConfigsRequest
    ) -> AlterConfigsResponse:
        """The deprecated API: the given settings replace all that were set before."""
        response = AlterConfigsResponse()
        for resource in request.resources:
            replacement = {config.name: config.value for config in resource.configs}

            def replace_all(
                _before: Mapping[str, str],
                _in_force: Callable[[str], str],
                replacement: Mapping[str, str | None] = replacement,
            ) -> Mapping[str, str | None]:
                return replacement

            response.responses.append(
                await self._alter(
                    resource.resource_type,
                    resource.resource_name,
                    replace_all,
                    validate_only=request.validate_only,
                )
            )
        return response

    async def incremental_alter_configs(
        self, _context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        response = IncrementalAlterConfigsResponse()
        for resource in request.resources:
            response.responses.append(
                await self._alter(
                    resource.resource_type,
                    resource.resource_name,
                    partial(_altered, resource.configs),
                    validate_only=request.validate_only,
                )
            )
        return response

    def list_config_resources(
        self, context: RequestContext, request: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse:
        if context.version == 0:
            return ListConfigResourcesResponse()  # KIP-714: it asks for client metrics alone.
        image = self._store.image
        requested = set(request.resource_types) or {ResourceType.TOPIC, ResourceType.BROKER}
        resources: list[ConfigResource] = []
        if ResourceType.TOPIC in requested:
            resources.extend(
                ConfigResource(resource_name=name, resource_type=ResourceType.TOPIC)
                for name in image.topics
            )
        if ResourceType.BROKER in requested:
            resources.extend(
                ConfigResource(resource_name=str(broker), resource_type=ResourceType.BROKER)
                for broker in image.brokers
            )
        return ListConfigResourcesResponse(config_resources=resources)

    async def _alter(
        self, resource_type: int, name: str, new_settings: NewSettings, *, validate_only: bool
    ) -> AlterConfigsResourceResponse:
        result = AlterConfigsResourceResponse(resource_type=resource_type, resource_name=name)
        try:
            if resource_type == ResourceType.BROKER:
                await self._alter_broker(name, new_settings, validate_only=validate_only)
            elif resource_type == ResourceType.TOPIC:
                await self._alter_topic(name, new_settings, validate_only=validate_only)
            else:
                raise InvalidRequest(f"resource type {resource_type} has no settings here")
        except BrokerError as reason:
            result.error_code = reason.code
            result.error_message = str(reason)
        return result

    async def _alter_topic(
        self, name: str, new_settings: NewSettings, *, validate_only: bool
    ) -> None:
        def alter(topic: Topic | None) -> Mapping[str, str | None]:
            if topic is None:
                return {}

            def in_force(setting: str) -> str:
                return _value_of(self._entries.of_topic(topic, [setting]))

            return new_settings(topic.settings, in_force)

        await self._metadata_client.change_settings(name, alter, validate_only=validate_only)

    async def _alter_broker(
        self, name: str, new_settings: NewSettings, *, validate_only: bool
    ) -> None:
        def in_force(setting: str) -> str:
            image = self._store.image
            return _value_of(self._entries.of_broker(image, self._broker_id, [setting]))

        await self._metadata_client.change_broker_settings(
            name,
            lambda before: new_settings(before, in_force),
            BROKER_SETTINGS,
            validate_only=validate_only,
        )


def _altered(
    operations: list[IncrementalAlterConfigsAlterableConfig],
    before: Mapping[str, str],
    in_force: Callable[[str], str],
) -> Mapping[str, str | None]:
    if len({operation.name for operation in operations}) != len(operations):
        raise InvalidRequest("a setting is twice in the request")
    settings: dict[str, str | None] = dict(before)
    for operation in operations:
        name, value = operation.name, operation.value
        match operation.config_operation:
            case AlterOperation.SET:
                if value is None:
                    raise InvalidConfig(f"{name} cannot be set to nothing; delete it instead")
                settings[name] = value
            case AlterOperation.DELETE:
                # As in Kafka: deleting what is not set, or does not exist, is no error.
                # kafka-reassign-partitions --verify clears throttles that this broker may not know.
                settings.pop(name, None)
            case AlterOperation.APPEND | AlterOperation.SUBTRACT:
                change = (
                    append_to_list_setting
                    if operation.config_operation == AlterOperation.APPEND
                    else subtract_from_list_setting
                )
                settings[name] = change(name, settings.get(name) or in_force(name), value or "")
            case unknown:
                raise InvalidRequest(f"there is no operation {unknown} on settings")
    return settings


def _modes_of(topic: Topic) -> ConfigEntry:
    """The replication modes that the partitions are in; a mode change moves them one by one."""
    value = write_modes([state.mode for state in topic.partitions])
    return ConfigEntry(
        name=MODES_SETTING,
        value=value,
        source=ConfigSource.DEFAULT,  # Kafka's tools show what was set: this was not.
        type=SettingType.STRING,
        documentation="The replication mode that each partition is in now. Cannot be set.",
        read_only=True,
        synonyms=(),
    )


def _version() -> ConfigEntry:
    """The version of this broker."""
    return ConfigEntry(
        name=VERSION_SETTING,
        value=metadata.version("zhumq"),
        source=ConfigSource.DEFAULT,
        type=SettingType.STRING,
        documentation="The version of zhumq that this broker runs. Cannot be set.",
        read_only=True,
        synonyms=(),
    )


def _value_of(entries: Sequence[ConfigEntry]) -> str:
    """The value of the only entry; empty if the setting does not exist or is a secret."""
    return (entries[0].value or "") if entries else ""


def _described(
    entry: ConfigEntry, *, with_synonyms: bool, with_documentation: bool
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in entry.synonyms
        ]
        if with_synonyms
        else [],
        config_type=entry.type,
        documentation=entry.documentation if with_documentation else None,
    )
