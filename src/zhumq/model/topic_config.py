"""The settings of a topic, each with the broker setting that gives its default."""

from collections.abc import Mapping
from typing import Final

from zhumq.model.replication_mode import Mode
from zhumq.model.settings import Setting, Settings, SettingsTable, SettingType

_HOUR_MS = 3_600_000

TOPIC_SETTINGS: Final = SettingsTable(
    Setting(
        name="cleanup.policy",
        type=SettingType.LIST,
        default="delete",
        allowed=("delete", "compact"),
        documentation="What happens to old segments: delete them, compact them by key, or both.",
    ),
    Setting(
        name="compression.type",
        type=SettingType.STRING,
        default="producer",
        allowed=("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        documentation="Batches are stored as the producer compressed them.",
    ),
    Setting(
        name="delay.enable",
        type=SettingType.BOOLEAN,
        default="false",
        documentation="Whether the headers zhumq-deliver-at, zhumq-delay-ms and zhumq-delay-level delay a message."
        " Without it they mean nothing.",
    ),
    Setting(
        name="delete.retention.ms",
        type=SettingType.LONG,
        default=str(24 * _HOUR_MS),
        minimum=0,
        documentation="How long a tombstone of a compacted topic stays readable.",
    ),
    Setting(
        name="file.delete.delay.ms",
        type=SettingType.LONG,
        default="60000",
        minimum=0,
        documentation="How long a deleted segment's file stays on disk.",
    ),
    Setting(
        name="flush.messages",
        type=SettingType.LONG,
        default=str(2**63 - 1),
        minimum=1,
        documentation="After so many messages that are not on the disk, an append with acks=1 is answered when its"
        " leader has it there; 1: every one. acks=-1 always waits for the disk.",
    ),
    Setting(
        name="flush.ms",
        type=SettingType.LONG,
        default=str(2**63 - 1),
        minimum=0,
        documentation="How long a message with acks=1 may be in the leader's log before the leader flushes it to the"
        " disk. Nothing waits for that flush.",
    ),
    *(
        Setting(
            name=f"{side}.replication.throttled.replicas",
            type=SettingType.LIST,
            default="",
            documentation="Accepted for kafka-reassign-partitions --throttle: here the replicas that"
            " move are the ones that are throttled.",
        )
        for side in ("follower", "leader")
    ),
    Setting(
        name="index.interval.bytes",
        type=SettingType.INT,
        default="4096",
        minimum=0,
        documentation="How many bytes of log lie between two entries of the offset index.",
    ),
    Setting(
        name="index.keys",
        type=SettingType.BOOLEAN,
        default="false",
        documentation="Whether to keep an index of message keys and tags, for `zhumq lookup`. It is built"
        " in the background, also of what the topic holds already.",
    ),
    Setting(
        name="max.compaction.lag.ms",
        type=SettingType.LONG,
        default=str(2**63 - 1),
        minimum=1,
        documentation="Accepted for compatibility: compaction does not wait this long.",
    ),
    Setting(
        name="max.message.bytes",
        type=SettingType.INT,
        default="1048588",
        minimum=0,
        documentation="The largest record batch the topic accepts.",
    ),
    Setting(
        name="message.timestamp.after.max.ms",
        type=SettingType.LONG,
        default=str(_HOUR_MS),
        minimum=0,
        documentation="How far in the future a record's timestamp may lie.",
    ),
    Setting(
        name="message.timestamp.before.max.ms",
        type=SettingType.LONG,
        default=str(2**63 - 1),
        minimum=0,
        documentation="How far in the past a record's timestamp may lie.",
    ),
    Setting(
        name="message.timestamp.type",
        type=SettingType.STRING,
        default="CreateTime",
        allowed=("CreateTime", "LogAppendTime"),
        documentation="Whose clock a record's timestamp is: the producer's or the broker's.",
    ),
    Setting(
        name="min.cleanable.dirty.ratio",
        type=SettingType.DOUBLE,
        default="0.5",
        minimum=0,
        maximum=1,
        documentation="How much of a compacted log must be uncleaned before it is cleaned.",
    ),
    Setting(
        name="min.compaction.lag.ms",
        type=SettingType.LONG,
        default="0",
        minimum=0,
        documentation="How long a record stays uncompacted at the least.",
    ),
    Setting(
        name="min.insync.replicas",
        type=SettingType.INT,
        default="1",
        minimum=1,
        documentation="How many replicas must have a record before acks=-1 is answered.",
    ),
    Setting(
        name="preallocate",
        type=SettingType.BOOLEAN,
        default="false",
        documentation="Accepted for compatibility: segment files grow as they are written.",
    ),
    Setting(
        name="record.validation",
        type=SettingType.STRING,
        default="lengths",
        allowed=("lengths", "full"),
        documentation="What the broker checks in a batch. lengths: the number of records matches the"
        " header. full: every field of every record, which takes many times the CPU.",
    ),
    Setting(
        name="replication.mode",
        type=SettingType.STRING,
        default=Mode.RAFT,
        allowed=tuple(Mode),
        documentation="How replicas agree. raft: elections and majorities. fetch: a leader that the"
        " controller names, and in-sync replicas. Can be changed while the topic is in use.",
    ),
    Setting(
        name="retention.bytes",
        type=SettingType.LONG,
        default="-1",
        minimum=-1,
        documentation="The size of a partition above which old segments are deleted; -1: no limit.",
    ),
    Setting(
        name="retention.ms",
        type=SettingType.LONG,
        default=str(72 * _HOUR_MS),
        minimum=-1,
        documentation="How long records are kept; -1: for ever.",
    ),
    Setting(
        name="schema.validation",
        type=SettingType.STRING,
        default="none",
        allowed=("none", "key", "value", "both"),
        documentation="Which part of a message has to begin with the id of a schema that is registered for it, as"
        " serializers with a schema registry write it. Others are refused; a part that is null needs none.",
    ),
    Setting(
        name="schema.validation.subject",
        type=SettingType.STRING,
        default="topic",
        allowed=("topic", "any"),
        documentation="Where schema.validation looks for an id: in the subjects TOPIC-key and TOPIC-value, or in all"
        " subjects, for producers that name subjects after records.",
    ),
    Setting(
        name="segment.bytes",
        type=SettingType.INT,
        default=str(1 << 30),
        minimum=14,
        documentation="The size at which a new segment starts.",
    ),
    Setting(
        name="segment.index.bytes",
        type=SettingType.INT,
        default=str(10 << 20),
        minimum=4,
        documentation="The size of an offset index at which a new segment starts.",
    ),
    Setting(
        name="segment.jitter.ms",
        type=SettingType.LONG,
        default="0",
        minimum=0,
        documentation="Accepted for compatibility: segments roll without jitter.",
    ),
    Setting(
        name="segment.ms",
        type=SettingType.LONG,
        default=str(168 * _HOUR_MS),
        minimum=1,
        documentation="The age at which a new segment starts.",
    ),
    Setting(
        name="unclean.leader.election.enable",
        type=SettingType.BOOLEAN,
        default="false",
        documentation="Whether a replica that is not in sync may lead when no other is left.",
    ),
)

# The broker setting that gives a topic setting its default, where the names differ by more than "log.".
_BROKER_NAMES: Final[Mapping[str, str]] = {
    "compression.type": "compression.type",
    "follower.replication.throttled.replicas": "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas": "leader.replication.throttled.replicas",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "record.validation": "record.validation",
    "replication.mode": "replication.mode",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}


def broker_setting_for(topic_setting: str) -> str:
    """The broker-wide name of a topic setting: `retention.ms` is `log.retention.ms`."""
    return _BROKER_NAMES.get(topic_setting, f"log.{topic_setting}")


def topic_settings(overrides: Mapping[str, str], broker: Settings) -> Settings:
    """The effective values of a topic: its own, else the broker's, else the defaults."""
    texts = {
        name: overrides.get(name, broker.text(broker_setting_for(name)))
        for name in TOPIC_SETTINGS.by_name
    }
    return Settings(TOPIC_SETTINGS, texts)
