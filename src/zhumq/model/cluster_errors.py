"""Errors of cluster operations: elections, in-sync replicas, reassignments, controller epochs."""

from zhumq.model.errors import BrokerError, ErrorCode


class NotController(BrokerError):
    """This broker's metadata image is older than the one that the request was made on."""

    code = ErrorCode.NOT_CONTROLLER


class StaleBrokerEpoch(BrokerError):
    """The request carries an earlier epoch of the broker than the registered one."""

    code = ErrorCode.STALE_BROKER_EPOCH


class NoReassignmentInProgress(BrokerError):
    """The partition has no reassignment to cancel."""

    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class PreferredLeaderNotAvailable(BrokerError):
    """The first replica is not alive or not in sync."""

    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class EligibleLeadersNotAvailable(BrokerError):
    """No replica that may lead is alive."""

    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class ElectionNotNeeded(BrokerError):
    """The partition already has the requested leader."""

    code = ErrorCode.ELECTION_NOT_NEEDED


class InvalidUpdateVersion(BrokerError):
    """The in-sync replicas have changed since the request was made."""

    code = ErrorCode.INVALID_UPDATE_VERSION


class IneligibleReplica(BrokerError):
    """A replica that is not alive cannot be in sync."""

    code = ErrorCode.INELIGIBLE_REPLICA
