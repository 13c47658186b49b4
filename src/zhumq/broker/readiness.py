"""Whether a broker can serve clients: the obstacles that /readyz names, one line each."""

from collections.abc import Mapping, Sequence

from zhumq.broker.metrics import PROBLEMS_MAX, offline_partitions
from zhumq.model.ids import TopicPartition
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.storage.disk_room import DiskRoom


def obstacles_to_service(
    replicas: ReplicaManager,
    disk_room: DiskRoom,
    unserved: Sequence[TopicPartition],
    loading: Mapping[str, int],
) -> list[str]:
    """Why a produce or a fetch sent to this broker would fail. Empty: it would succeed.

    Without ZooKeeper a broker goes on serving, so a suspended session is none. Neither is a partition whose log is
    offline: only an operator repairs it, and all others are served.
    """
    found = []
    if not replicas.lifecycle.is_active:
        found.append("this broker is not registered in its cluster")
    if disk_room.is_full:
        found.append(f"no room on the disk: {disk_room.usage.free_bytes} bytes free")
    elif disk_room.refusal:
        found.append(disk_room.refusal)
    found += [
        f"{count} partitions of {topic} are led here and not loaded yet"
        for topic, count in loading.items()
        if count
    ]
    offline = offline_partitions(replicas)
    waiting = [each for each in unserved if each not in offline]
    if waiting:
        some = ", ".join(str(each) for each in waiting[:PROBLEMS_MAX])
        found.append(f"{len(waiting)} partitions are led here and not served yet: {some}")
    return found
