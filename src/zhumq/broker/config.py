"""The configuration of a broker, read once at start from flags, `--set` and a TOML file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from zhumq.broker.given_settings import read_settings
from zhumq.broker.listener_config import (
    DEFAULT_LISTEN,
    HTTP_NAME,
    PUSH_NAME,
    ListenerConfig,
    advertised_address,
    check_exposure,
    check_overrides,
    other_listener,
    parse_one_listener,
    read_kafka_listeners,
)
from zhumq.broker.tls_settings import has_key_store
from zhumq.model.address import Address, parse_listener
from zhumq.model.errors import SettingInvalid
from zhumq.model.ids import BrokerId
from zhumq.model.password import Password
from zhumq.model.security_protocol import SecurityProtocol
from zhumq.model.settings import Settings
from zhumq.model.topic_config import topic_settings
from zhumq.records.batch import TimestampType
from zhumq.replication.replication import PartitionSettings
from zhumq.storage.log_config import CleanupPolicy, LogConfig, SchemaRule

DEFAULT_HTTP = "127.0.0.1:9080"
DEFAULT_PUSH_PORT = 9094
PUSH_OFF = "off"
DEFAULT_DATA_DIR = Path("zhumq-data")
_TIMESTAMP_TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Everything the composition root needs. Parts receive plain values from it."""

    # Where Kafka clients connect; never empty.
    listeners: tuple[ListenerConfig, ...]
    http: ListenerConfig
    data_dir: Path
    broker_id: BrokerId
    rack: str | None
    settings: Settings
    # The ensemble as HOST:PORT,.../CHROOT; None: a single node with a local store.
    zookeeper: str | None = None
    # Where this broker listens for the other brokers.
    inter_broker: ListenerConfig
    # Where it listens for push consumers; None: push is off.
    push: ListenerConfig | None
    # About the settings, for the log.
    warnings: tuple[str, ...] = ()
    # Created at the start with this password unless it exists.
    admin_user: str | None = None
    admin_password: Password | None = None

    @classmethod
    def load(
        cls,
        *,
        config_file: Path | None = None,
        settings: Mapping[str, str] | None = None,
        listen: str | None = None,
        http: str = DEFAULT_HTTP,
        data_dir: Path = DEFAULT_DATA_DIR,
        broker_id: int = 0,
        rack: str | None = None,
        insecure: bool = False,
        zookeeper: str | None = None,
        push: str | None = None,
        admin_user: str | None = None,
        admin_password: Password | None = None,
    ) -> Self:
        """Merge the sources; `--set` overrides the file. Raises SettingInvalid."""
        if broker_id < 0:
            raise SettingInvalid(f"--broker-id {broker_id} is negative")
        loaded, warnings = read_settings(config_file, settings or {})
        kafka = read_kafka_listeners(listen, loaded, insecure=insecure)
        first = kafka.clients[0]
        http_address = parse_one_listener(http, "--http")
        http_protocol = SecurityProtocol(loaded.text("http.security.protocol"))
        http_listener = other_listener(
            loaded,
            name=HTTP_NAME,
            setting="--http",
            bind=http_address,
            advertised=http_address,
            has_tls=http_protocol.uses_tls,
            has_sasl=http_protocol.uses_sasl,
        )
        push_listener = _push_listener(push, loaded, first)
        served = [*kafka.clients, http_listener]
        served += [push_listener] if push_listener is not None else []
        check_overrides(loaded, [*served, kafka.inter_broker])
        served += [kafka.inter_broker] if zookeeper is not None else []
        exposed = check_exposure(served, insecure=insecure)
        if zookeeper is not None and not zookeeper.partition("/")[0].strip():
            raise SettingInvalid(f"--zookeeper {zookeeper!r} is not HOST:PORT,...")
        return cls(
            listeners=tuple(each.to_bind() for each in kafka.clients),
            http=http_listener.to_bind(),
            data_dir=data_dir,
            broker_id=BrokerId(broker_id),
            rack=rack or loaded.text("broker.rack") or None,
            settings=loaded,
            warnings=(*warnings, *exposed),
            admin_user=admin_user,
            admin_password=admin_password,
            zookeeper=zookeeper,
            inter_broker=kafka.inter_broker.to_bind(),
            push=None if push_listener is None else push_listener.to_bind(),
        )

    def partition_settings(self, topic_overrides: Mapping[str, str]) -> PartitionSettings:
        """Settings of a topic's partitions: the topic's own, else the broker's defaults."""
        topic = topic_settings(topic_overrides, self.settings)
        return PartitionSettings(
            log_config=self._log_config(topic),
            min_in_sync_replicas=topic.integer("min.insync.replicas"),
        )

    @property
    def _delay_max_ms(self) -> int:
        return self.settings.integer("delayed.message.delay.max.ms")

    def _log_config(self, topic: Settings) -> LogConfig:
        return LogConfig(
            segment_bytes=topic.integer("segment.bytes"),
            segment_ms=topic.integer("segment.ms"),
            index_interval_bytes=topic.integer("index.interval.bytes"),
            index_keys=topic.boolean("index.keys"),
            delay_max_ms=self._delay_max_ms if topic.boolean("delay.enable") else 0,
            retention_ms=topic.integer("retention.ms"),
            retention_bytes=topic.integer("retention.bytes"),
            max_message_bytes=topic.integer("max.message.bytes"),
            message_timestamp_type=_TIMESTAMP_TYPES[topic.text("message.timestamp.type")],
            message_timestamp_before_max_ms=topic.integer("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms=topic.integer("message.timestamp.after.max.ms"),
            cleanup_policy=frozenset(
                CleanupPolicy(policy) for policy in topic.elements("cleanup.policy")
            ),
            delete_retention_ms=topic.integer("delete.retention.ms"),
            min_compaction_lag_ms=topic.integer("min.compaction.lag.ms"),
            max_compaction_lag_ms=topic.integer("max.compaction.lag.ms"),
            min_cleanable_dirty_ratio=topic.number("min.cleanable.dirty.ratio"),
            file_delete_delay_ms=topic.integer("file.delete.delay.ms"),
            producer_id_expiration_ms=self.settings.integer("producer.id.expiration.ms"),
            flush_messages=topic.integer("flush.messages"),
            flush_ms=topic.integer("flush.ms"),
            schema_rule=_schema_rule(topic),
            validates_records=topic.text("record.validation") == "full",
        )


def _schema_rule(topic: Settings) -> SchemaRule | None:
    parts = topic.text("schema.validation")
    if parts == "none":
        return None
    return SchemaRule(
        keys=parts in ("key", "both"),
        values=parts in ("value", "both"),
        any_subject=topic.text("schema.validation.subject") == "any",
    )


def _push_listener(
    text: str | None, settings: Settings, first: ListenerConfig
) -> ListenerConfig | None:
    """The push listener. Default: port 9094 if Kafka has its default port, else a free one."""
    if text == PUSH_OFF:
        return None
    if text is not None:
        bind = parse_one_listener(text, "--push")
    else:
        default_port = parse_listener(DEFAULT_LISTEN).port
        port = DEFAULT_PUSH_PORT if first.bind.port == default_port else 0
        bind = Address(first.bind.host, port)
    given = settings.text("push.security.protocol")
    protocol = SecurityProtocol(given) if given else first.protocol
    return other_listener(
        settings,
        name=PUSH_NAME,
        setting="--push",
        bind=bind,
        advertised=advertised_address(settings, "advertised.push.listener", bind, first.advertised),
        has_tls=protocol.uses_tls and (bool(given) or has_key_store(settings, PUSH_NAME)),
        has_sasl=protocol.uses_sasl,
    )
