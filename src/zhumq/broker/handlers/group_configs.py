"""Settings of share groups in DescribeConfigs, IncrementalAlterConfigs and ListConfigResources."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.broker.handlers.configs import AlterOperation, ConfigsHandler
from zhumq.coordinators.delivery_service import DeliveryService
from zhumq.coordinators.delivery_settings import RETRY_SETTING
from zhumq.filters.filter import Filter, compile_filter
from zhumq.filters.invalid import FilterInvalid
from zhumq.model.errors import BrokerError, InvalidConfig, InvalidRequest, SettingInvalid
from zhumq.model.isolation import Isolation
from zhumq.model.settings import Setting, Settings, SettingsTable, SettingType
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.configs import (
    AlterConfigsResourceResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from zhumq.share.redelivery import RedeliveryPolicy
from zhumq.share.retry_schedule import ScheduleInvalid, with_schedule
from zhumq.share.share_partition import SharePartitionLimits
from zhumq.share.subscription import Start, StartKind

GROUP_RESOURCE: Final = 32
# Where a value comes from, in DescribeConfigs' codes.
_SOURCE_GROUP: Final = 8
_SOURCE_DEFAULT: Final = 5

FILTER_SETTING: Final = "zhumq.filter"

# A group's settings without a broker setting.
_OWN_SETTINGS: Final = (
    Setting(
        name="share.isolation.level",
        type=SettingType.STRING,
        default="read_uncommitted",
        documentation="Whether members get messages of open and of aborted transactions.",
        allowed=("read_uncommitted", "read_committed"),
    ),
    Setting(
        name=FILTER_SETTING,
        type=SettingType.STRING,
        default="",
        documentation="Members get only messages that pass this filter: tags (a || b) or a condition in SQL.",
    ),
    Setting(
        name=RETRY_SETTING,
        type=SettingType.STRING,
        default="",
        documentation="How long a message waits after each failure: 30s, or a list 10s,1m,10m, or doubled 1s..10m.",
    ),
)
# A group's setting, and the broker setting that is its default.
_BROKER_SETTINGS: Final = {
    "share.auto.offset.reset": "group.share.auto.offset.reset",
    "share.record.lock.duration.ms": "group.share.record.lock.duration.ms",
    "share.delivery.count.limit": "group.share.delivery.count.limit",
    "share.partition.max.record.locks": "group.share.partition.max.record.locks",
}


class ShareGroupSettings:
    """The settings of each share group: its own, else the broker's."""

    def __init__(
        self,
        broker: Settings,
        table: SettingsTable,
        deliveries: DeliveryService,
        list_groups: Callable[[], Awaitable[list[str]]],
    ) -> None:
        self._broker = broker
        self._deliveries = deliveries
        # Lists the groups that have settings of their own. Raises BrokerError.
        self.list_groups = list_groups
        self._table = SettingsTable(
            *(
                _renamed(table.setting(broker_name), name)
                for name, broker_name in _BROKER_SETTINGS.items()
            ),
            *_OWN_SETTINGS,
        )

    async def filter_of(self, group_id: str) -> Filter | None:
        """The filter of a group."""
        given = await self._deliveries.group_settings(group_id)
        text = given.get(FILTER_SETTING)
        return None if text is None else _compiled(text)

    async def of_group(self, group_id: str) -> tuple[SharePartitionLimits, Start]:
        """The limits of a group's share partitions, and where they start."""
        given = await self._deliveries.group_settings(group_id)
        settings = Settings(self._table, self._with_defaults(given))
        limits = SharePartitionLimits(
            in_flight_max=settings.integer("share.partition.max.record.locks"),
            lock_ms=settings.integer("share.record.lock.duration.ms"),
            redelivery=with_schedule(
                RedeliveryPolicy(max_deliveries=settings.integer("share.delivery.count.limit")),
                settings.text(RETRY_SETTING),
            ),
            isolation=Isolation.named(settings.text("share.isolation.level")),
        )
        return limits, Start(otherwise=StartKind(settings.text("share.auto.offset.reset")))

    async def describe(
        self, group_id: str, names: Iterable[str] | None, *, with_synonyms: bool
    ) -> list[DescribeConfigsResourceResult]:
        given = await self._deliveries.group_settings(group_id)
        in_force = self._with_defaults(given)
        requested = set(self._table.by_name) if names is None else set(names)
        return [
            DescribeConfigsResourceResult(
                name=name,
                value=in_force[name],
                config_source=_SOURCE_GROUP if name in given else _SOURCE_DEFAULT,
                synonyms=self._synonyms(name, given) if with_synonyms else [],
                config_type=setting.type,
                documentation=setting.documentation,
            )
            for name, setting in self._table.by_name.items()
            if name in requested
        ]

    async def alter(
        self,
        group_id: str,
        sets: Mapping[str, str],
        deletes: Iterable[str],
        *,
        validate_only: bool,
    ) -> None:
        """Set and delete settings of a group. Raises InvalidConfig."""
        try:
            self._table.check(sets)
        except SettingInvalid as reason:
            raise InvalidConfig(str(reason)) from None
        _compiled(sets.get(FILTER_SETTING, ""))
        try:
            with_schedule(RedeliveryPolicy(), sets.get(RETRY_SETTING, ""))
        except ScheduleInvalid as reason:
            raise InvalidConfig(f"{RETRY_SETTING}: {reason}") from None
        if not validate_only:
            await self._deliveries.group_settings(group_id, sets, list(deletes))

    def _synonyms(self, name: str, given: Mapping[str, str]) -> list[DescribeConfigsSynonym]:
        """The sources of a value; the first one is in force."""
        default = _BROKER_SETTINGS.get(name, name)
        text = self._default(name)
        synonyms = [DescribeConfigsSynonym(name=default, value=text, source=_SOURCE_DEFAULT)]
        if name in given:
            own = DescribeConfigsSynonym(name=name, value=given[name], source=_SOURCE_GROUP)
            synonyms.insert(0, own)
        return synonyms

    def _with_defaults(self, given: Mapping[str, str]) -> dict[str, str]:
        return {name: given.get(name, self._default(name)) for name in self._table.by_name}

    def _default(self, name: str) -> str:
        broker_name = _BROKER_SETTINGS.get(name)
        return (
            self._table.setting(name).default
            if broker_name is None
            else self._broker.text(broker_name)
        )


class GroupConfigsHandler:
    """Answers requests about group settings, and passes all other resources to ConfigsHandler."""

    def __init__(self, settings: ShareGroupSettings, others: ConfigsHandler) -> None:
        self._settings = settings
        self._others = others

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_CONFIGS: self.describe_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.incremental_alter_configs,
            ApiKey.LIST_CONFIG_RESOURCES: self.list_config_resources,
        }

    async def list_config_resources(
        self, context: RequestContext, request: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse:
        response = self._others.list_config_resources(context, request)
        if context.version > 0 and (
            not request.resource_types or GROUP_RESOURCE in request.resource_types
        ):
            response.config_resources.extend(
                ConfigResource(resource_name=group, resource_type=GROUP_RESOURCE)
                for group in await self._settings.list_groups()
            )
        return response

    async def describe_configs(
        self, context: RequestContext, request: DescribeConfigsRequest
    ) -> DescribeConfigsResponse:
        response = self._others.describe_configs(context, request)
        for resource, result in zip(request.resources, response.results, strict=True):
            if resource.resource_type == GROUP_RESOURCE:
                await self._describe(
                    resource.resource_name,
                    resource.configuration_keys,
                    result,
                    with_synonyms=request.include_synonyms,
                )
        return response

    async def _describe(
        self,
        group_id: str,
        names: Iterable[str] | None,
        result: DescribeConfigsResult,
        *,
        with_synonyms: bool,
    ) -> None:
        try:
            result.configs = await self._settings.describe(
                group_id, names, with_synonyms=with_synonyms
            )
        except BrokerError as reason:
            result.error_code, result.error_message = reason.code, str(reason)
        else:
            result.error_code, result.error_message = 0, None

    async def incremental_alter_configs(
        self, context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        response = await self._others.incremental_alter_configs(context, request)
        for resource, result in zip(request.resources, response.responses, strict=True):
            if resource.resource_type == GROUP_RESOURCE:
                await self._alter(resource, result, validate_only=request.validate_only)
        return response

    async def _alter(
        self,
        resource: IncrementalAlterConfigsResource,
        result: AlterConfigsResourceResponse,
        *,
        validate_only: bool,
    ) -> None:
        sets: dict[str, str] = {}
        deletes: list[str] = []
        try:
            if not resource.resource_name:
                raise InvalidRequest("the settings of a group need the name of the group")
            for operation in resource.configs:
                if operation.config_operation == AlterOperation.DELETE:
                    deletes.append(operation.name)
                elif (
                    operation.config_operation == AlterOperation.SET and operation.value is not None
                ):
                    sets[operation.name] = operation.value
                else:
                    raise InvalidRequest(f"{operation.name} can only be set or deleted")
            await self._settings.alter(
                resource.resource_name, sets, deletes, validate_only=validate_only
            )
        except BrokerError as reason:
            result.error_code, result.error_message = reason.code, str(reason)
        else:
            result.error_code, result.error_message = 0, None


def _compiled(text: str) -> Filter | None:
    try:
        return compile_filter(text)
    except FilterInvalid as reason:
        raise InvalidConfig(f"{FILTER_SETTING}: {reason}") from None


def _renamed(setting: Setting, name: str) -> Setting:
    return Setting(
        name=name,
        type=setting.type,
        default=setting.default,
        documentation=setting.documentation,
        minimum=setting.minimum,
        maximum=setting.maximum,
        allowed=setting.allowed,
    )
