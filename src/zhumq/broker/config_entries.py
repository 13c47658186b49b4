"""Settings as DescribeConfigs shows them: value, source, and the synonyms behind it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from zhumq.broker.settings import BROKER_SETTINGS
from zhumq.metadata.image import ALL_BROKERS, ClusterImage, Topic
from zhumq.model.ids import BrokerId
from zhumq.model.settings import Setting, Settings, SettingType
from zhumq.model.topic_config import TOPIC_SETTINGS, broker_setting_for


class ConfigSource(IntEnum):
    """Where a value comes from, in DescribeConfigs' codes."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_ALL_BROKERS = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One source of a setting, with its value there."""

    name: str
    value: str | None  # None: a secret, which is never shown
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting. The first of its synonyms is in force."""

    name: str
    value: str | None  # None: a secret, which is never shown
    source: ConfigSource
    type: SettingType
    documentation: str
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_sensitive(self) -> bool:
        return self.type is SettingType.PASSWORD


class ConfigEntries:
    """Describes the settings of topics and of the broker."""

    def __init__(self, broker: Settings, bound: Mapping[str, str] | None = None) -> None:
        self._given = broker.given
        # Values that the broker chose at start, such as a free port.
        self._bound = bound if bound is not None else {}

    def of_topic(self, topic: Topic, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """The topic's settings by name; with `names`, only those of them that exist."""
        requested = set(TOPIC_SETTINGS.by_name) if names is None else set(names)
        return [
            self._topic_entry(topic, setting)
            for name, setting in TOPIC_SETTINGS.by_name.items()
            if name in requested
        ]

    def of_broker(
        self, image: ClusterImage, broker_id: BrokerId, names: Iterable[str] | None = None
    ) -> list[ConfigEntry]:
        requested = set(BROKER_SETTINGS.by_name) if names is None else set(names)
        dynamic = {
            ConfigSource.DYNAMIC_BROKER: image.broker_settings.get(str(broker_id), {}),
            ConfigSource.DYNAMIC_ALL_BROKERS: image.broker_settings.get(ALL_BROKERS, {}),
        }
        return [
            _entry(
                setting,
                (
                    *(
                        ConfigSynonym(name, texts[name], source)
                        for source, texts in dynamic.items()
                        if name in texts
                    ),
                    *self._broker_synonyms(name),
                ),
                read_only=not setting.changes_while_running,
            )
            for name, setting in BROKER_SETTINGS.by_name.items()
            if name in requested
        ]

    def of_all_brokers(
        self, image: ClusterImage, names: Iterable[str] | None = None
    ) -> list[ConfigEntry]:
        """The dynamic settings for all brokers, and no others."""
        texts = image.broker_settings.get(ALL_BROKERS, {})
        source = ConfigSource.DYNAMIC_ALL_BROKERS
        return [
            _entry(
                BROKER_SETTINGS.setting(name), (ConfigSynonym(name, text, source),), read_only=False
            )
            for name, text in texts.items()
            if names is None or name in names
        ]

    def _topic_entry(self, topic: Topic, setting: Setting) -> ConfigEntry:
        synonyms = self._broker_synonyms(broker_setting_for(setting.name))
        own = topic.settings.get(setting.name)
        if own is not None:
            synonyms = (ConfigSynonym(setting.name, own, ConfigSource.DYNAMIC_TOPIC), *synonyms)
        return _entry(setting, synonyms, read_only=False)

    def _broker_synonyms(self, name: str) -> tuple[ConfigSynonym, ...]:
        default = ConfigSynonym(name, BROKER_SETTINGS.by_name[name].default, ConfigSource.DEFAULT)
        given = self._given.get(name) or self._bound.get(name)
        if given is None:
            return (default,)
        return (ConfigSynonym(name, given, ConfigSource.STATIC_BROKER), default)


def _entry(
    setting: Setting, synonyms: tuple[ConfigSynonym, ...], *, read_only: bool
) -> ConfigEntry:
    if setting.is_sensitive:
        # As in Kafka: null, also in the synonyms, whether the secret is set or not.
        synonyms = tuple(replace(synonym, value=None) for synonym in synonyms)
    return ConfigEntry(
        name=setting.name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        type=setting.type,
        documentation=setting.documentation,
        read_only=read_only,
        synonyms=synonyms,
    )
