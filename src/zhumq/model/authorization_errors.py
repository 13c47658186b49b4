"""Errors of a principal that may not do what it asks for, by the type of the resource."""

from zhumq.model.errors import BrokerError, ErrorCode


class TopicAuthorizationFailed(BrokerError):
    """The principal may not do this with the topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationFailed(BrokerError):
    """The principal may not do this with the group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationFailed(BrokerError):
    """The principal may not do this with the cluster."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class TransactionalIdAuthorizationFailed(BrokerError):
    """The principal may not do this with the transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
