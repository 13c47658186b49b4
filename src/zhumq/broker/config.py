"""The configuration of a broker, read once at start from flags, `--set` and a TOML file."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from zhumq.broker.given_settings import read_settings
from zhumq.model.address import Address, parse_address, parse_listener
from zhumq.model.errors import SettingInvalid
from zhumq.model.ids import BrokerId
from zhumq.model.settings import Settings
from zhumq.model.topic_config import topic_settings
from zhumq.records.batch import TimestampType
from zhumq.replication.replication import PartitionSettings
from zhumq.storage.log_config import CleanupPolicy, LogConfig

DEFAULT_LISTEN = "127.0.0.1:9092"
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

    listen: Address
    http: Address
    data_dir: Path
    broker_id: BrokerId
    rack: str | None
    settings: Settings
    # The ensemble as HOST:PORT,.../CHROOT; None: a single node with a local store.
    zookeeper: str | None = None
    # Where this broker listens for the other brokers.
    inter_broker: Address
    # Where it listens for push consumers; None: push is off.
    push: Address | None
    # Addresses advertised to clients, other brokers and push consumers. Port 0: the bound port.
    advertised: Address
    inter_broker_advertised: Address
    push_advertised: Address | None
    # About the settings, for the log.
    warnings: tuple[str, ...] = ()

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
    ) -> Self:
        """Merge the sources; `--set` overrides the file. Raises SettingInvalid."""
        if broker_id < 0:
            raise SettingInvalid(f"--broker-id {broker_id} is negative")
        loaded, warnings = read_settings(config_file, settings or {})
        kafka_name, kafka_text = _kafka_listener(listen, loaded)
        kafka_address = _listener(kafka_text, kafka_name)
        http_address = _listener(http, "--http")
        push_address = _push_address(push, kafka_address)
        inter_broker = Address(kafka_address.host, 0)
        if inter_broker_listener := loaded.text("inter.broker.listener"):
            inter_broker = _listener(inter_broker_listener, "inter.broker.listener")
        for flag, address in (
            (kafka_name, kafka_address),
            ("--http", http_address),
            ("inter.broker.listener", inter_broker),
            ("--push", push_address),
        ):
            if address is not None and not address.is_loopback and not insecure:
                raise SettingInvalid(
                    f"{flag} {address} can be reached from other machines, without encryption or"
                    " passwords: add --insecure to allow that"
                )
        advertised = _advertised_to_clients(loaded, kafka_name, kafka_address)
        if zookeeper is not None and not zookeeper.partition("/")[0].strip():
            raise SettingInvalid(f"--zookeeper {zookeeper!r} is not HOST:PORT,...")
        return cls(
            listen=kafka_address.to_bind(),
            http=http_address.to_bind(),
            data_dir=data_dir,
            broker_id=BrokerId(broker_id),
            rack=rack,
            settings=loaded,
            warnings=warnings,
            zookeeper=zookeeper,
            inter_broker=inter_broker.to_bind(),
            push=None if push_address is None else push_address.to_bind(),
            advertised=advertised,
            inter_broker_advertised=_advertised(
                loaded, "inter.broker.advertised", inter_broker, advertised
            ),
            push_advertised=None
            if push_address is None
            else _advertised(loaded, "advertised.push.listener", push_address, advertised),
        )

    def partition_settings(self, topic_overrides: Mapping[str, str]) -> PartitionSettings:
        """Settings of a topic's partitions: the topic's own, else the broker's defaults."""
        topic = topic_settings(topic_overrides, self.settings)
        return PartitionSettings(
            log_config=self._log_config(topic),
            min_in_sync_replicas=topic.integer("min.insync.replicas"),
        )

    def _log_config(self, topic: Settings) -> LogConfig:
        return LogConfig(
            segment_bytes=topic.integer("segment.bytes"),
            segment_ms=topic.integer("segment.ms"),
            index_interval_bytes=topic.integer("index.interval.bytes"),
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
            validates_records=topic.text("record.validation") == "full",
        )


def _push_address(text: str | None, listen: Address) -> Address | None:
    """Address of the push listener. Default: port 9094 if Kafka has its default port, else a free one."""
    if text == PUSH_OFF:
        return None
    if text is not None:
        return _listener(text, "--push")
    default_port = parse_listener(DEFAULT_LISTEN).port
    return Address(listen.host, DEFAULT_PUSH_PORT if listen.port == default_port else 0)


def _kafka_listener(flag: str | None, settings: Settings) -> tuple[str, str]:
    """Name and text of the setting that gives the Kafka listener. The flag overrides `listeners`."""
    text = settings.text("listeners")
    if flag is not None or not text:
        return "--listen", flag if flag is not None else DEFAULT_LISTEN
    if "," in text:
        raise SettingInvalid(f"listeners={text} names more than one listener: give one")
    return "listeners", text


def _listener(text: str, name: str) -> Address:
    return _parsed(parse_listener, text, name)


def _parsed(parse: Callable[[str], Address], text: str, name: str) -> Address:
    try:
        return parse(text)
    except ValueError as reason:
        raise SettingInvalid(f"{name} {reason}") from None


def _advertised_to_clients(settings: Settings, name: str, bound: Address) -> Address:
    """Kafka's rules: `advertised.listeners` if set; for a listener without a host the name of this
    machine; never an address that stands for every interface, which no client can connect to."""
    if not settings.text("advertised.listeners"):
        if not bound.host:
            return Address(socket.getfqdn(), bound.port)
        if bound.is_unspecified:
            raise SettingInvalid(
                f"{name} {bound} is every interface of this machine, which clients cannot connect to:"
                " add --set advertised.listeners=HOST:PORT as they reach it, or leave the host out"
                f" ({name} :{bound.port}) to advertise this machine's name, {socket.getfqdn()}"
            )
    return _advertised(settings, "advertised.listeners", bound, bound)


def _advertised(settings: Settings, name: str, bound: Address, beside: Address) -> Address:
    """The setting's address; else the bound one, with the host of `beside` in place of every interface."""
    if text := settings.text(name):
        address = _parsed(parse_address, text, name)
        if address.is_unspecified:
            raise SettingInvalid(
                f"{name} {text!r} is every interface of a machine, which clients cannot connect to:"
                " name the HOST:PORT under which this broker is reached"
            )
        return address
    return Address(beside.host, bound.port) if bound.is_unspecified else bound
