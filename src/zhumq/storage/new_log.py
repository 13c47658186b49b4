"""The result of opening a log, and new logs, whose files are created with the first write."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from zhumq.host.disk import Disk
from zhumq.storage.checkpoints import PARTITION_FILE, write_topic_id
from zhumq.storage.index_cache import IndexCache
from zhumq.storage.leader_epochs import LeaderEpochs
from zhumq.storage.log_config import LogConfig
from zhumq.storage.producer_state import ProducerState
from zhumq.storage.segment import Segment
from zhumq.storage.transaction_index import TransactionIndexes


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """A log as read from the disk and, after a crash, recovered."""

    segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    leader_epochs: LeaderEpochs
    producer_state: ProducerState
    transaction_indexes: TransactionIndexes
    snapshot_offset: int  # of the newest snapshot on disk; -1 if there is none
    topic_id: uuid.UUID | None
    is_new: bool
    gaps_end: int = 0
    needs_manifest: bool = False
    key_index_names: Sequence[str] = ()  # of the key index files in the folder
    has_folder: bool = True  # False for a new log that was opened lazily


def new_log(
    directory: str,
    config: LogConfig,
    disk: Disk,
    cache: IndexCache,
    topic_id: uuid.UUID | None,
    *,
    lazily: bool,
) -> LoadedLog:
    """A new log. The first write creates its files, and, if lazily, its folder and topic id file:
    creating files takes most of the time when many logs are created."""

    def make_folder() -> None:
        disk.make_directory(directory)
        if topic_id is not None:
            write_topic_id(disk, f"{directory}/{PARTITION_FILE}", topic_id)

    if not lazily:
        make_folder()
    segment = Segment.create(
        directory,
        0,
        disk=disk,
        cache=cache,
        index_interval_bytes=config.index_interval_bytes,
        make_folder=make_folder if lazily else lambda: None,
    )
    return LoadedLog(
        segments=[segment],
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        leader_epochs=LeaderEpochs(),
        producer_state=ProducerState(),
        transaction_indexes=TransactionIndexes(directory, disk, ()),
        snapshot_offset=-1,
        topic_id=topic_id,
        is_new=True,
        has_folder=not lazily,
    )
