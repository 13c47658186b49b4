"""The small text files of a data folder: checkpoints, leader epochs, partition and broker identity."""

import base64
import binascii
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zhumq.host.disk import Disk
from zhumq.model.errors import DataDirUnusable
from zhumq.model.ids import TopicPartition
from zhumq.records.codecs import crc32c
from zhumq.storage.leader_epochs import EpochStart, LeaderEpochs

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANER_FILE = "cleaner-offset-checkpoint"
META_FILE = "meta.properties"
LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
PARTITION_FILE = "partition.metadata"
CORRUPT_RANGES_FILE = "corrupt-ranges"
SUSPECT_FILE = "suspect-offset"

CHECKPOINT_VERSION = "0"
META_VERSION = "1"


class CheckpointCorrupt(ValueError):
    """The file does not have the format of a checkpoint."""


def encode_lines(lines: Iterable[str]) -> bytes:
    """Kafka's checkpoint format: a version, the number of lines, the lines."""
    content = list(lines)
    return "\n".join([CHECKPOINT_VERSION, str(len(content)), *content, ""]).encode()


def decode_lines(data: bytes, fields_count: int) -> list[list[str]]:
    """The fields of each line of a checkpoint."""
    try:
        lines = data.decode().split("\n")
        count = int(lines[1])
    except (UnicodeDecodeError, ValueError, IndexError):
        raise CheckpointCorrupt("no version and number of lines at its head") from None
    fields = [line.split() for line in lines[2:] if line]
    if lines[0] != CHECKPOINT_VERSION or len(fields) != count:
        raise CheckpointCorrupt(f"version {lines[0]} with {len(fields)} of {count} lines")
    if any(len(line) != fields_count for line in fields):
        raise CheckpointCorrupt(f"a line does not have {fields_count} fields")
    return fields


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """One offset for each partition."""
    return encode_lines(
        f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()
    )


def decode_offsets(data: bytes | None) -> dict[TopicPartition, int]:
    """The offset of each partition; empty if there is no file. Raises CheckpointCorrupt."""
    if data is None:
        return {}
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partition, offset in decode_lines(data, 3)
        }
    except ValueError as error:
        raise CheckpointCorrupt(str(error)) from None


def encode_leader_epochs(epochs: LeaderEpochs) -> bytes:
    """The content of a leader epoch file."""
    return encode_lines(f"{epoch} {start_offset}" for epoch, start_offset in epochs.entries)


def read_leader_epochs(disk: Disk, path: str) -> LeaderEpochs | None:
    """The epochs of one log; None if there is no file or it cannot be parsed."""
    data = disk.read_file(path)
    if data is None:
        return None
    try:
        return LeaderEpochs(
            [EpochStart(int(epoch), int(start)) for epoch, start in decode_lines(data, 2)]
        )
    except ValueError:
        return None


def write_topic_id(disk: Disk, path: str, topic_id: uuid.UUID) -> None:
    """Write the topic id of a partition's folder."""
    text = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
    disk.write_file(path, f"version: 0\ntopic_id: {text}".encode(), sync=False)


def read_topic_id(disk: Disk, path: str) -> uuid.UUID | None:
    """The topic id of a partition's folder; None if there is no file or it holds no topic id."""
    data = disk.read_file(path)
    if data is None:
        return None
    try:
        fields = dict(line.split(": ", 1) for line in data.decode().splitlines() if line)
        return uuid.UUID(bytes=base64.urlsafe_b64decode(fields["topic_id"] + "=="))
    except (ValueError, KeyError, binascii.Error):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The broker and the cluster that a data folder belongs to."""

    broker_id: int
    cluster_id: str


def write_meta(disk: Disk, path: str, meta: MetaProperties) -> None:
    """Write the owner of the data folder."""
    lines = [
        "#",
        f"version={META_VERSION}",
        f"node.id={meta.broker_id}",
        f"broker.id={meta.broker_id}",
        f"cluster.id={meta.cluster_id}",
        "",
    ]
    disk.write_file(path, "\n".join(lines).encode(), sync=True)


def read_meta(disk: Disk, path: str) -> MetaProperties | None:
    """The owner of the data folder; None if it has no owner yet."""
    data = disk.read_file(path)
    if data is None:
        return None
    try:
        lines = data.decode().splitlines()
        fields = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        broker_id = int(fields.get("node.id", fields.get("broker.id", "")))
        return MetaProperties(broker_id=broker_id, cluster_id=fields["cluster.id"])
    except (ValueError, KeyError):
        raise DataDirUnusable(
            f"{path} names no broker id and cluster id: restore it, or use another data folder"
        ) from None


def read_suspect_offset(disk: Disk, directory: str, log_start_offset: int) -> int | None:
    """The offset from which a log is not trusted; None if it is. All of it if the file is damaged."""
    data = disk.read_file(f"{directory}/{SUSPECT_FILE}")
    if data is None:
        return None
    offset, _, checksum = data.partition(b" ")
    if checksum and checksum != b"%08x" % crc32c(offset):
        return log_start_offset
    try:
        return int(offset)
    except ValueError:
        return log_start_offset


def write_suspect_offset(disk: Disk, directory: str, offset: int) -> None:
    """Persist the offset from which a log is not trusted."""
    text = b"%d" % offset
    data = b"%s %08x" % (text, crc32c(text))
    disk.write_file(f"{directory}/{SUSPECT_FILE}", data, sync=True)
