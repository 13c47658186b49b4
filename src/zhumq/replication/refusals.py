"""Why a replica does not serve a request: it does not lead, or the client knows another leader epoch."""

from zhumq.model.errors import (
    BrokerError,
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
)
from zhumq.replication.driver import ReplicaDriver


def not_leader(driver: ReplicaDriver, *, is_sole: bool, is_isolated: bool) -> BrokerError:
    """Why this broker does not serve a partition."""
    name, failure, leader_id = driver.topic_partition, driver.failure, driver.core.leader_id
    if failure is not None:
        if is_sole:
            return failure  # No other broker can serve the partition.
        return NotLeaderOrFollower(f"{name}: {failure}")
    if is_isolated:
        return NotLeaderOrFollower(
            f"{name}: this broker has no session with ZooKeeper, and no in-sync follower fetches from"
            " it: another broker may lead"
        )
    known = "it has no leader yet" if leader_id is None else f"its leader is broker {leader_id}"
    return NotLeaderOrFollower(f"this broker does not serve {name}: {known}")


def another_epoch(driver: ReplicaDriver, known_epoch: int, leader_epoch: int) -> BrokerError:
    """The client knows an older leader epoch than this replica, or a newer one."""
    name = driver.topic_partition
    if known_epoch < leader_epoch:
        return FencedLeaderEpoch(f"{name}: epoch {known_epoch} is over, now {leader_epoch}")
    return UnknownLeaderEpoch(f"{name}: epoch {known_epoch} is not known, now {leader_epoch}")
