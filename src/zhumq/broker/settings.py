"""The settings of a broker: Kafka's names where Kafka has them, with what each does."""

from typing import Final

from zhumq.broker.delivery_settings import DELIVERY_SETTINGS
from zhumq.metadata.placement import VIRTUAL_NODES
from zhumq.model.settings import Setting, SettingsTable, SettingType
from zhumq.model.topic_config import TOPIC_SETTINGS, broker_setting_for
from zhumq.replication.move_throttle import UNLIMITED

_HOUR_MS = 3_600_000
# Kafka's name; which replicas it is about need not be said here.
MOVE_RATE_SETTING: Final = "leader.replication.throttled.rate"


def _integer(
    name: str, default: int, documentation: str, *, minimum: int = 0, maximum: int | None = None
) -> Setting:
    return Setting(
        name=name,
        type=SettingType.INT if abs(default) < 2**31 else SettingType.LONG,
        default=str(default),
        documentation=documentation,
        minimum=minimum,
        maximum=maximum,
    )


def _long(name: str, default: int, documentation: str, *, minimum: int = 0) -> Setting:
    return Setting(
        name=name,
        type=SettingType.LONG,
        default=str(default),
        documentation=documentation,
        minimum=minimum,
    )


def _boolean(name: str, default: bool, documentation: str) -> Setting:
    return Setting(
        name=name,
        type=SettingType.BOOLEAN,
        default=str(default).lower(),
        documentation=documentation,
    )


_TOPIC_DEFAULTS = [
    Setting(
        name=broker_setting_for(setting.name),
        type=setting.type,
        default=setting.default,
        documentation=f"Default of the topic setting {setting.name}. {setting.documentation}",
        minimum=setting.minimum,
        maximum=setting.maximum,
        allowed=setting.allowed,
    )
    for setting in TOPIC_SETTINGS.by_name.values()
]

BROKER_SETTINGS: Final = SettingsTable(
    *_TOPIC_DEFAULTS,
    Setting(
        name="listeners",
        type=SettingType.STRING,
        default="",
        documentation="PLAINTEXT://HOST:PORT or HOST:PORT where Kafka clients connect; --listen wins"
        " over it. One listener, and no protocol other than PLAINTEXT.",
    ),
    Setting(
        name="advertised.listeners",
        type=SettingType.STRING,
        default="",
        documentation="PLAINTEXT://HOST:PORT or HOST:PORT that clients are told to connect to; empty:"
        " where it listens, or this machine's name where --listen has no host.",
    ),
    # Topics
    _boolean(
        "auto.create.topics.enable", True, "Whether an unknown topic is created on first use."
    ),
    _boolean("delete.topic.enable", True, "Whether topics can be deleted."),
    _integer("num.partitions", 1, "Partitions of a topic that does not say.", minimum=1),
    _integer("default.replication.factor", 1, "Replicas of a topic that does not say.", minimum=1),
    _integer(
        "topic.partitions.max",
        10_000,
        "The most partitions a topic of clients may have.",
        minimum=1,
    ),
    _integer(
        "cluster.partitions.max",
        100_000,
        "The most partitions of all topics of clients together.",
        minimum=1,
    ),
    # The cluster
    Setting(
        name="inter.broker.listener",
        type=SettingType.STRING,
        default="",
        documentation="HOST:PORT where the other brokers connect; empty: the host of --listen, and"
        " any free port.",
    ),
    Setting(
        name="inter.broker.advertised",
        type=SettingType.STRING,
        default="",
        documentation="HOST:PORT that the other brokers are told to connect to; empty: where it"
        " listens for them; if that is every interface, the host of advertised.listeners.",
    ),
    _integer(
        "zookeeper.session.timeout.ms",
        2_000,
        "After how long a silent broker is taken for dead. ZooKeeper takes no less than two of its"
        " ticks (tickTime), and needs up to one more to notice.",
        minimum=100,
    ),
    _integer(
        "zookeeper.connection.timeout.ms",
        10_000,
        "How long a starting broker waits for an ensemble that does not answer.",
        minimum=1,
    ),
    _boolean(
        "zookeeper.chroot.create",
        False,
        "Whether a path at the end of --zookeeper that is not there is made, not refused.",
    ),
    _integer(
        "placement.virtual.nodes",
        VIRTUAL_NODES,
        "At how many places of the hash ring each broker stands. The same on every broker.",
        minimum=1,
        maximum=10_000,
    ),
    _integer(
        "replica.lag.time.max.ms",
        3_000,
        "In fetch mode: after how long a follower that has not caught up counts as out of sync.",
        minimum=100,
    ),
    _integer(
        "replica.election.timeout.ms",
        1_500,
        "In raft mode: a follower that hears nothing for this long, up to twice as long, campaigns.",
        minimum=1_000,
    ),
    Setting(
        name=MOVE_RATE_SETTING,
        type=SettingType.LONG,
        default=str(UNLIMITED),
        documentation="How many bytes a second each broker sends to replicas that move to another"
        " broker. Can be changed while running.",
        minimum=1,
        changes_while_running=True,
    ),
    Setting(
        name="follower.replication.throttled.rate",
        type=SettingType.LONG,
        default=str(UNLIMITED),
        documentation="Accepted for kafka-reassign-partitions --throttle, which sets it together with"
        " the leaders' rate. Leaders hold back what they send; followers need not.",
        minimum=1,
        changes_while_running=True,
    ),
    # The push door
    Setting(
        name="advertised.push.listener",
        type=SettingType.STRING,
        default="",
        documentation="HOST:PORT that push consumers are told to connect to; empty: where it listens"
        " (--push); if that is every interface, the host of advertised.listeners.",
    ),
    _integer("push.ping.interval.ms", 5_000, "How often push consumers are pinged.", minimum=10),
    _integer(
        "push.ping.timeout.ms",
        15_000,
        "After how long a push consumer that says nothing, not even to pings, is lost.",
        minimum=20,
    ),
    _integer(
        "push.ack.timeout.ms",
        30_000,
        "How long a push consumer that does not say may take to answer a delivery.",
        minimum=10,
    ),
    _integer(
        "push.retries.max",
        5,
        "How often a consumer that does not answer is tried again before its session is parked.",
        minimum=1,
    ),
    _integer(
        "push.retry.backoff.ms",
        1_000,
        "How long the first of these tries waits; each one after it twice as long.",
        minimum=1,
    ),
    _integer("push.retry.backoff.max.ms", 60_000, "The longest wait between two tries.", minimum=1),
    _integer("push.max.streams", 10_000, "The most push consumers connected at once.", minimum=1),
    _boolean(
        "auto.leader.rebalance.enable",
        True,
        "Whether leadership goes back by itself to the first replica of each partition.",
    ),
    _integer(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often that is looked at.",
        minimum=1,
    ),
    _integer(
        "leader.imbalance.per.broker.percentage",
        10,
        "How many of the partitions that a broker is first for may be led by others.",
        maximum=100,
    ),
    # The log
    _long(
        "log.retention.check.interval.ms",
        10_000,
        "How often expired segments are looked for.",
        minimum=1,
    ),
    _long(
        "log.flush.offset.checkpoint.interval.ms",
        1_000,
        "How often recovery points are written: what a crash leaves to be scanned.",
        minimum=1,
    ),
    _boolean("log.cleaner.enable", True, "Whether compacted topics are compacted."),
    _long("log.cleaner.backoff.ms", 15_000, "How often compaction looks for work.", minimum=1),
    _long(
        "log.scrub.bytes.per.second",
        8 * 1024 * 1024,
        "How fast flushed segments are read again to find damage; 0: not at all.",
        minimum=0,
    ),
    _long(
        "log.scrub.interval.ms",
        24 * _HOUR_MS,
        "How long after the beginning of one such pass the next one begins.",
        minimum=1,
    ),
    _integer(
        "producer.id.expiration.ms",
        24 * _HOUR_MS,
        "How long an idempotent producer that is silent is remembered.",
        minimum=1,
    ),
    # Groups
    _integer(
        "offsets.topic.num.partitions",
        50,
        "Partitions of __consumer_offsets, fixed when it is first created.",
        minimum=1,
    ),
    _integer(
        "offsets.topic.replication.factor",
        3,
        "Replicas of __consumer_offsets; as many as brokers are alive if those are fewer.",
        minimum=1,
    ),
    _integer(
        "offsets.topic.segment.bytes",
        100 << 20,
        "The size of a segment of __consumer_offsets.",
        minimum=1024,
    ),
    _integer(
        "offsets.retention.minutes",
        7 * 24 * 60,
        "How long the offsets of an empty group are kept.",
        minimum=1,
    ),
    _long(
        "offsets.retention.check.interval.ms",
        600_000,
        "How often expired offsets are looked for.",
        minimum=1,
    ),
    _integer("offset.metadata.max.bytes", 4096, "The longest metadata of a committed offset."),
    _integer(
        "group.initial.rebalance.delay.ms",
        0,
        "How long a new group waits for more members before its first assignment.",
    ),
    _integer("group.min.session.timeout.ms", 6_000, "The shortest session a member may ask for."),
    _integer(
        "group.max.session.timeout.ms", 1_800_000, "The longest session a member may ask for."
    ),
    _integer("group.max.size", 10_000, "The most members of a group.", minimum=1),
    Setting(
        name="group.coordinator.rebalance.protocols",
        type=SettingType.LIST,
        default="classic,consumer",
        documentation="The protocols groups may use. The classic one cannot be left out.",
        allowed=("classic", "consumer"),
    ),
    _integer(
        "group.consumer.session.timeout.ms",
        45_000,
        "After how long a silent member of a consumer group is given up.",
        minimum=1,
    ),
    _integer(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "How often members of a consumer group are told to be heard.",
        minimum=1,
    ),
    _integer("group.consumer.max.size", 10_000, "The most members of a consumer group.", minimum=1),
    Setting(
        name="group.consumer.assignors",
        type=SettingType.LIST,
        default="uniform,range",
        documentation="The server-side assignors; the first one is for groups that do not choose.",
        allowed=("uniform", "range"),
    ),
    Setting(
        name="group.consumer.migration.policy",
        type=SettingType.STRING,
        default="bidirectional",
        documentation="Which way a group with members may change between the classic and the "
        "consumer protocol.",
        allowed=("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    *DELIVERY_SETTINGS,
    # Limits
    _integer(
        "socket.request.max.bytes", 100 << 20, "The largest request that is read.", minimum=1024
    ),
    _long(
        "queued.max.request.bytes",
        160 << 20,
        "The most bytes of requests being received or worked on, of all connections together.",
        minimum=1 << 20,
    ),
    _integer("max.connections", 20_000, "The most connections in all.", minimum=1),
    _integer("max.connections.per.ip", 20_000, "The most connections of one address.", minimum=1),
    _long(
        "connections.max.idle.ms", 600_000, "After how long a silent connection ends.", minimum=1
    ),
    _integer(
        "max.incremental.fetch.session.cache.slots",
        1_000,
        "How many incremental fetch sessions are remembered.",
    ),
    _integer(
        "fetch.max.bytes",
        55 << 20,
        "The largest answer to a fetch, whatever it asks.",
        minimum=1024,
    ),
    _integer("transaction.max.timeout.ms", 900_000, "The longest transaction timeout.", minimum=1),
)

# Kafka's coarser spellings of one setting, each with the factor to the finer one.
COARSER_NAMES: Final = {
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.retention.hours": ("log.retention.ms", _HOUR_MS),
    "log.roll.hours": ("log.roll.ms", _HOUR_MS),
}
