"""How the replicas of a partition agree: by votes, or by a leader that the controller names."""

from enum import StrEnum


class Mode(StrEnum):
    """How a partition is replicated; a topic's setting `replication.mode`."""

    RAFT = "raft"
    FETCH = "fetch"
