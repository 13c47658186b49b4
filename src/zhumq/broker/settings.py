"""The settings of a broker with their documentation, under Kafka's names where Kafka has them."""

from functools import partial
from typing import Final

from zhumq.broker.audit_settings import AUDIT_SETTINGS
from zhumq.broker.authorizer_settings import AUTHORIZER_SETTINGS
from zhumq.broker.delay_settings import DELAY_SETTINGS
from zhumq.broker.delivery_settings import DELIVERY_SETTINGS
from zhumq.broker.half_message_settings import HALF_MESSAGE_SETTINGS
from zhumq.broker.listener_settings import LISTENER_SETTINGS
from zhumq.broker.quota_settings import QUOTA_SETTINGS
from zhumq.broker.retention_settings import RETENTION_SETTINGS
from zhumq.broker.sasl_settings import SASL_SETTINGS
from zhumq.broker.tls_settings import TLS_SETTINGS
from zhumq.broker.transaction_settings import TRANSACTION_SETTINGS
from zhumq.broker.zookeeper_settings import ZOOKEEPER_SETTINGS
from zhumq.metadata.placement import VIRTUAL_NODES
from zhumq.model.settings import Setting, SettingsTable, SettingType, integer_setting
from zhumq.model.topic_config import TOPIC_SETTINGS, broker_setting_for
from zhumq.replication.move_throttle import UNLIMITED

_HOUR_MS = 3_600_000
# Kafka's name; here it throttles all replicas that move, so no list of them is needed.
MOVE_RATE_SETTING: Final = "leader.replication.throttled.rate"
# The values of `replica.selector.class` that send consumers to a replica in their rack.
RACK_SELECTORS: Final = ("rack", "org.apache.kafka.common.replica.RackAwareReplicaSelector")


_integer = partial(integer_setting, minimum=0)


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
    *LISTENER_SETTINGS,
    *TLS_SETTINGS,
    # Topics
    _boolean(
        "auto.create.topics.enable", True, "Whether an unknown topic is created on first use."
    ),
    _boolean("delete.topic.enable", True, "Whether topics can be deleted."),
    _integer("num.partitions", 1, "Default number of partitions of a topic.", minimum=1),
    _integer("default.replication.factor", 1, "Default number of replicas of a topic.", minimum=1),
    _integer(
        "topic.partitions.max",
        10_000,
        "The most partitions of one topic; internal topics are exempt.",
        minimum=1,
    ),
    _integer(
        "cluster.partitions.max",
        100_000,
        "The most partitions of all topics together; internal topics are exempt.",
        minimum=1,
    ),
    _boolean(
        "history.enable",
        True,
        "Whether this broker keeps a history of its traffic and lag for the last day, in at most 15 MB of the data folder.",
    ),
    # The cluster
    _integer(
        "zookeeper.session.timeout.ms",
        2_000,
        "The session timeout: a broker without contact for this long counts as dead. ZooKeeper accepts"
        " no less than two of its ticks (tickTime), and needs up to one more tick to expire a session.",
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
        "Whether a missing chroot path at the end of --zookeeper is created rather than refused.",
    ),
    *ZOOKEEPER_SETTINGS,
    Setting(
        name="broker.rack",
        type=SettingType.STRING,
        default="",
        documentation="The rack or availability zone of this broker; --rack overrides it.",
    ),
    Setting(
        name="replica.selector.class",
        type=SettingType.STRING,
        default="",
        documentation="rack, or Kafka's org.apache.kafka.common.replica.RackAwareReplicaSelector: a consumer with a"
        " client.rack reads from a follower in its rack (KIP-392). Empty: consumers read from leaders only.",
        allowed=("", *RACK_SELECTORS, "org.apache.kafka.common.replica.LeaderSelector"),
    ),
    _integer(
        "placement.virtual.nodes",
        VIRTUAL_NODES,
        "Virtual nodes of each broker on the hash ring. Has to be the same on every broker.",
        minimum=1,
        maximum=10_000,
    ),
    _integer(
        "replica.lag.time.max.ms",
        3_000,
        "In fetch mode: a follower that has not caught up for this long leaves the in-sync replicas.",
        minimum=100,
    ),
    _integer(
        "replica.election.timeout.ms",
        1_500,
        "In raft mode: a follower without contact to its leader for this long, up to twice as long,"
        " starts an election.",
        minimum=1_000,
    ),
    Setting(
        name=MOVE_RATE_SETTING,
        type=SettingType.LONG,
        default=str(UNLIMITED),
        documentation="Bytes a second that each broker sends to replicas that are being reassigned to"
        " another broker. Can be changed while running.",
        minimum=1,
        changes_while_running=True,
    ),
    Setting(
        name="follower.replication.throttled.rate",
        type=SettingType.LONG,
        default=str(UNLIMITED),
        documentation="Accepted for kafka-reassign-partitions --throttle, which sets it together with"
        " the leaders' rate. Only leaders throttle.",
        minimum=1,
        changes_while_running=True,
    ),
    # Push
    Setting(
        name="advertised.push.listener",
        type=SettingType.STRING,
        default="",
        documentation="HOST:PORT that is advertised to push consumers; empty: where the broker listens"
        " (--push); if that is every interface, the host of advertised.listeners.",
    ),
    _integer("push.ping.interval.ms", 5_000, "How often push consumers are pinged.", minimum=10),
    _integer(
        "push.ping.timeout.ms",
        15_000,
        "A push consumer that sends nothing for this long, not even pongs, counts as lost.",
        minimum=20,
    ),
    _integer(
        "push.ack.timeout.ms",
        30_000,
        "The ack deadline of a delivery, for push consumers that do not set their own.",
        minimum=10,
    ),
    _integer(
        "push.retries.max",
        5,
        "How often deliveries to a consumer that does not answer are retried before its session is"
        " parked.",
        minimum=1,
    ),
    _integer(
        "push.retry.backoff.ms",
        1_000,
        "The backoff before the first retry; doubled for each further one.",
        minimum=1,
    ),
    _integer(
        "push.retry.backoff.max.ms", 60_000, "The longest backoff between two retries.", minimum=1
    ),
    _integer("push.max.streams", 10_000, "The most push consumers connected at once.", minimum=1),
    _boolean(
        "auto.leader.rebalance.enable",
        True,
        "Whether preferred leaders are elected automatically.",
    ),
    _integer(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the controller checks for preferred leaders that do not lead.",
        minimum=1,
    ),
    _integer(
        "leader.imbalance.per.broker.percentage",
        10,
        "Percentage of a broker's preferred partitions that other brokers may lead.",
        maximum=100,
    ),
    # The log
    _long(
        "log.retention.check.interval.ms",
        10_000,
        "How often retention looks for segments to delete, and how full the disk is.",
        minimum=1,
    ),
    *RETENTION_SETTINGS,
    _long(
        "log.flush.offset.checkpoint.interval.ms",
        1_000,
        "How often recovery points are written; after a crash, recovery scans what lies behind them.",
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
        "From the start of one scrub pass to the start of the next.",
        minimum=1,
    ),
    _integer(
        "producer.id.expiration.ms",
        24 * _HOUR_MS,
        "How long the state of an idle idempotent producer is kept.",
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
        "Replicas of __consumer_offsets; fewer while fewer brokers are alive.",
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
        "How often the coordinator checks for expired offsets.",
        minimum=1,
    ),
    _integer("offset.metadata.max.bytes", 4096, "The longest metadata of a committed offset."),
    _integer(
        "group.initial.rebalance.delay.ms",
        0,
        "How long a new group waits for more members before its first assignment.",
    ),
    _integer("group.min.session.timeout.ms", 6_000, "The shortest session timeout of a member."),
    _integer("group.max.session.timeout.ms", 1_800_000, "The longest session timeout of a member."),
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
        "A member of a consumer group without a heartbeat for this long leaves the group.",
        minimum=1,
    ),
    _integer(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "The heartbeat interval of members of a consumer group.",
        minimum=1,
    ),
    _integer("group.consumer.max.size", 10_000, "The most members of a consumer group.", minimum=1),
    Setting(
        name="group.consumer.assignors",
        type=SettingType.LIST,
        default="uniform,range",
        documentation="The server-side assignors; the first one is the default of a group.",
        allowed=("uniform", "range"),
    ),
    Setting(
        name="group.consumer.migration.policy",
        type=SettingType.STRING,
        default="bidirectional",
        documentation="Direction in which a group with members may change between the classic and the"
        " consumer protocol.",
        allowed=("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    *DELIVERY_SETTINGS,
    *TRANSACTION_SETTINGS,
    *HALF_MESSAGE_SETTINGS,
    *DELAY_SETTINGS,
    *QUOTA_SETTINGS,
    *AUDIT_SETTINGS,
    *AUTHORIZER_SETTINGS,
    *SASL_SETTINGS,
    # Limits
    _integer(
        "socket.request.max.bytes", 100 << 20, "The largest request that is read.", minimum=1024
    ),
    _long(
        "queued.max.request.bytes",
        160 << 20,
        "The most bytes of requests being received or not answered yet, of all connections together.",
        minimum=1 << 20,
    ),
    _integer("max.connections", 20_000, "The most connections in all.", minimum=1),
    _integer("max.connections.per.ip", 20_000, "The most connections from one address.", minimum=1),
    _long(
        "connections.max.idle.ms",
        600_000,
        "An idle connection is closed after this time.",
        minimum=1,
    ),
    _integer(
        "max.incremental.fetch.session.cache.slots",
        1_000,
        "The most incremental fetch sessions.",
    ),
    _integer(
        "fetch.max.bytes",
        55 << 20,
        "The largest response to a fetch, whatever the request allows.",
        minimum=1024,
    ),
)

# Kafka's coarser spellings of one setting, each with the factor to the finer one.
COARSER_NAMES: Final = {
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.retention.hours": ("log.retention.ms", _HOUR_MS),
    "log.roll.hours": ("log.roll.ms", _HOUR_MS),
}
