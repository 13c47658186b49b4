import socket
from pathlib import Path

import pytest

from zhumq.broker.config import BrokerConfig
from zhumq.broker.config_entries import ConfigEntries, ConfigSource
from zhumq.broker.settings import BROKER_SETTINGS
from zhumq.metadata.image import Topic
from zhumq.model.address import Address
from zhumq.model.errors import SettingInvalid
from zhumq.model.ids import ZERO_UUID
from zhumq.model.topic_config import TOPIC_SETTINGS, broker_setting_for
from zhumq.storage.log_config import CleanupPolicy, LogConfig


def load(**settings: str) -> BrokerConfig:
    return BrokerConfig.load(settings={key.replace("_", "."): v for key, v in settings.items()})


def test_the_defaults_of_settings_and_of_the_log_are_the_same() -> None:
    assert load().partition_settings({}).log_config == LogConfig()


def test_every_default_is_a_legal_value() -> None:
    for table in (BROKER_SETTINGS, TOPIC_SETTINGS):
        table.check({name: setting.default for name, setting in table.by_name.items()})


def test_every_topic_setting_has_a_broker_setting_behind_it() -> None:
    for name in TOPIC_SETTINGS.by_name:
        assert broker_setting_for(name) in BROKER_SETTINGS.by_name


def test_a_topic_setting_wins_over_the_brokers() -> None:
    config = load(log_retention_ms="7", log_cleanup_policy="compact")
    assert config.partition_settings({}).log_config.retention_ms == 7
    own = config.partition_settings({"retention.ms": "8", "cleanup.policy": "compact,delete"})
    assert own.log_config.retention_ms == 8
    assert own.log_config.cleanup_policy == {CleanupPolicy.COMPACT, CleanupPolicy.DELETE}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.hours": "2", "log.retention.ms": "9"}, 9),
    ],
)
def test_coarser_spellings_are_understood_and_the_finest_wins(
    settings: dict[str, str], expected: int
) -> None:
    config = BrokerConfig.load(settings=settings)
    assert config.partition_settings({}).log_config.retention_ms == expected


def test_a_file_and_set_are_put_together(tmp_path: Path) -> None:
    file = tmp_path / "zhumq.toml"
    file.write_text(
        '"num.partitions" = 3\nauto.create.topics.enable = false\n[log]\nsegment.bytes = 2048\n'
    )
    config = BrokerConfig.load(config_file=file, settings={"num.partitions": "5"})
    assert config.settings.integer("num.partitions") == 5
    assert config.settings.boolean("auto.create.topics.enable") is False
    assert config.partition_settings({}).log_config.segment_bytes == 2048


@pytest.mark.parametrize("flag", ["listen", "http", "push"])
@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "host:70000"])
def test_a_listener_that_makes_no_sense_is_refused_with_its_flag(flag: str, text: str) -> None:
    with pytest.raises(SettingInvalid, match=f"--{flag} "):
        BrokerConfig.load(**{flag: text})  # type: ignore[arg-type]


def test_kafkas_listener_settings_are_understood() -> None:
    config = BrokerConfig.load(
        settings={
            "listeners": "PLAINTEXT://127.0.0.1:19092",
            "advertised.listeners": "PLAINTEXT://broker.example:9092",
        }
    )
    assert config.listeners[0].bind == Address("127.0.0.1", 19092)
    assert config.listeners[0].advertised == Address("broker.example", 9092)


def test_the_flag_wins_over_the_listeners_of_a_file() -> None:
    settings = {"listeners": "127.0.0.1:2"}
    (first,) = BrokerConfig.load(listen="127.0.0.1:1", settings=settings).listeners
    assert first.bind == first.advertised == Address("127.0.0.1", 1)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_every_interface_is_never_advertised(host: str) -> None:
    """As in Kafka: `advertised.listeners cannot use the nonroutable meta-address 0.0.0.0`."""
    with pytest.raises(SettingInvalid, match=r"--set advertised\.listeners=HOST:PORT"):
        BrokerConfig.load(listen=f"{host}:9092", insecure=True)
    for name in ("advertised.listeners", "inter.broker.advertised", "advertised.push.listener"):
        for text in (f"{host}:9092", f"PLAINTEXT://{host}:9092"):
            with pytest.raises(SettingInvalid, match=f"{name} .*cannot connect"):
                BrokerConfig.load(settings={name: text})


@pytest.mark.parametrize("text", ["host:0", "host", ":9092", "SSL://host:9093", "a:1,b:2"])
def test_what_cannot_be_dialled_is_not_advertised(text: str) -> None:
    for name in ("advertised.listeners", "inter.broker.advertised", "advertised.push.listener"):
        with pytest.raises(SettingInvalid, match=name):
            BrokerConfig.load(settings={name: text})


def test_a_listener_without_a_host_advertises_the_name_of_the_machine() -> None:
    """As in Kafka, where the canonical host name stands in for a host that is left out."""
    config = BrokerConfig.load(listen=":9092", insecure=True)
    assert config.listeners[0].bind == Address("0.0.0.0", 9092)
    assert config.listeners[0].advertised == Address(socket.getfqdn(), 9092)
    assert config.push is not None
    assert config.push.advertised == Address(socket.getfqdn(), 9094)


def test_behind_every_interface_brokers_and_push_consumers_get_the_host_advertised_to_clients() -> (
    None
):
    config = BrokerConfig.load(
        listen="0.0.0.0:9092", settings={"advertised.listeners": "h:1"}, insecure=True
    )
    assert config.push is not None
    assert config.push.advertised == Address("h", 9094)
    assert config.inter_broker.advertised == Address("h", 0)
    assert config.inter_broker.bind == Address("0.0.0.0", 0)
    own = {"advertised.listeners": "h:1", "advertised.push.listener": "p:2"}
    config = BrokerConfig.load(listen="0.0.0.0:9092", settings=own, insecure=True)
    assert config.push is not None
    assert config.push.advertised == Address("p", 2)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "example.org"])
def test_other_machines_can_connect_only_with_insecure(host: str) -> None:
    settings = {"advertised.listeners": "host:9092"}
    with pytest.raises(SettingInvalid, match="--insecure"):
        BrokerConfig.load(listen=f"{host}:9092", settings=settings)
    config = BrokerConfig.load(listen=f"{host}:9092", settings=settings, insecure=True)
    assert config.listeners[0].bind.host == host


def test_a_setting_has_the_source_of_its_value() -> None:
    entries = ConfigEntries(load(log_retention_ms="7").settings)
    topic = Topic(name="t", topic_id=ZERO_UUID, partitions=(), settings={"segment.bytes": "99"})
    described = {entry.name: entry for entry in entries.of_topic(topic)}
    assert described["segment.bytes"].source is ConfigSource.DYNAMIC_TOPIC
    assert described["retention.ms"].source is ConfigSource.STATIC_BROKER
    assert [each.source for each in described["retention.ms"].synonyms] == [
        ConfigSource.STATIC_BROKER,
        ConfigSource.DEFAULT,
    ]
    assert described["cleanup.policy"].source is ConfigSource.DEFAULT
    assert [entry.name for entry in entries.of_topic(topic, ["retention.ms", "nope"])] == [
        "retention.ms"
    ]
