"""The owner of a data folder, and the partition of each folder name in it."""

import base64
import uuid

from zhumq.host.disk import TEMPORARY_SUFFIX, Disk, DiskLock
from zhumq.model.errors import BrokerError, DataDirUnusable, StorageFailed
from zhumq.model.ids import TopicPartition
from zhumq.storage.checkpoints import LOCK_FILE, META_FILE, MetaProperties, read_meta, write_meta


def parse_folder_name(name: str) -> TopicPartition | None:
    """The partition whose folder has this name; None if the name is not that of a partition folder."""
    topic, dash, partition = name.rpartition("-")
    if not topic or not dash or not (partition.isascii() and partition.isdigit()):
        return None
    if str(int(partition)) != partition:
        return None
    return TopicPartition(topic, int(partition))


def lock_data_dir(
    data_dir: str, broker_id: int, cluster_id: str | None, disk: Disk
) -> tuple[MetaProperties, DiskLock]:
    """Lock the folder, and create it if it is missing, without a look at its logs. Raises DataDirUnusable."""
    try:
        disk.make_directory(data_dir)
    except BrokerError as error:
        raise DataDirUnusable(str(error)) from error
    lock = disk.lock(f"{data_dir}/{LOCK_FILE}")
    try:
        return _claim(data_dir, broker_id, cluster_id, disk), lock
    except BaseException:
        lock.release()
        raise


def _claim(data_dir: str, broker_id: int, cluster_id: str | None, disk: Disk) -> MetaProperties:
    """Read the folder's owner, or make this broker the owner of a new folder. Removes files that a
    crash left half written. Raises DataDirUnusable if the folder belongs to another broker."""
    path = f"{data_dir}/{META_FILE}"
    try:
        meta = read_meta(disk, path)
        if meta is None:
            new_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
            meta = MetaProperties(broker_id=broker_id, cluster_id=cluster_id or new_id)
            write_meta(disk, path, meta)
    except StorageFailed as error:
        raise DataDirUnusable(str(error)) from error
    if meta.broker_id != broker_id:
        raise DataDirUnusable(
            f"{data_dir} belongs to broker {meta.broker_id}, this is broker {broker_id}"
        )
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise DataDirUnusable(f"{data_dir} belongs to cluster {meta.cluster_id}, not {cluster_id}")
    _remove_leftovers(data_dir, disk)
    return meta


def _remove_leftovers(data_dir: str, disk: Disk) -> None:
    """Remove files of the folder itself that a crash left half written."""
    for entry in disk.list_directory(data_dir):
        if entry.name.endswith(TEMPORARY_SUFFIX) and not entry.is_directory:
            disk.unlink(f"{data_dir}/{entry.name}")
