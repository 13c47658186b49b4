"""Follower reads (KIP-392): the replica that a consumer reads from, in its own rack if one is there."""

from collections.abc import Mapping
from typing import Final

from zhumq.replication.driver import ReplicaDriver
from zhumq.replication.partition import Partition

LEADER: Final = -1  # the protocol's value for: read from the leader


def read_replica(
    partition: Partition, offset: int, rack: str, racks: Mapping[int, str | None], now_ms: int
) -> int:
    """The replica that a consumer in this rack reads the partition from; LEADER: this broker."""
    leader_id = partition.leader_id
    if not partition.leads or leader_id is None or offset < partition.log_start_offset:
        return LEADER
    followers = readable_followers(partition.driver, offset, now_ms)
    return nearest_replica(rack, leader_id, followers, racks)


def readable_followers(driver: ReplicaDriver, offset: int, now_ms: int) -> dict[int, int]:
    """The followers of a leader that have everything below the offset and fetch from it, with their fetch offsets."""
    contact_ms_min = now_ms - driver.core.settings.replica_lag_max_ms
    found: dict[int, int] = {}
    for broker_id, state in driver.fetch_states.items():
        fetch = state.fetch
        if (
            fetch is not None
            and not fetch.recovering
            and fetch.epoch == driver.core.epoch
            and fetch.fetch_offset >= offset
            and state.session.session_contact_ms >= contact_ms_min
        ):
            found[broker_id] = fetch.fetch_offset
    return found


def nearest_replica(
    rack: str, leader_id: int, followers: Mapping[int, int], racks: Mapping[int, str | None]
) -> int:
    """The follower in the rack of the consumer that has most of the log; LEADER if the leader is there, or none is."""
    if not rack or racks.get(leader_id) == rack:
        return LEADER
    near = [(offset, -each) for each, offset in followers.items() if racks.get(each) == rack]
    return -max(near)[1] if near else LEADER
