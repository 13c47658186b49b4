"""The ways a cluster says no: elections, in-sync sets, moves of replicas, who may decide."""

from zhumq.model.errors import BrokerError, ErrorCode


class NotController(BrokerError):
    """The picture this broker decides on is older than the one the request was made on."""

    code = ErrorCode.NOT_CONTROLLER


class StaleBrokerEpoch(BrokerError):
    """The request comes from an earlier life of the broker."""

    code = ErrorCode.STALE_BROKER_EPOCH


class ReassignmentInProgress(BrokerError):
    """The partition is on its way to other brokers."""

    code = ErrorCode.REASSIGNMENT_IN_PROGRESS


class NoReassignmentInProgress(BrokerError):
    """There is no move of the partition that could be cancelled."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class PreferredLeaderNotAvailable(BrokerError):
    """The first replica is not alive or not in sync."""

    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class EligibleLeadersNotAvailable(BrokerError):
    """No replica that may lead is alive."""

    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class ElectionNotNeeded(BrokerError):
    """The partition has the leader that was asked for."""

    code = ErrorCode.ELECTION_NOT_NEEDED


class InvalidUpdateVersion(BrokerError):
    """The in-sync set has changed since the request was made."""

    code = ErrorCode.INVALID_UPDATE_VERSION


class IneligibleReplica(BrokerError):
    """A replica that is not alive cannot be in sync."""

    code = ErrorCode.INELIGIBLE_REPLICA
