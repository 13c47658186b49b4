"""Errors of transactions: fenced coordinators."""

from zhumq.model.errors import BrokerError, ErrorCode


class TransactionCoordinatorFenced(BrokerError):
    """A newer transaction coordinator has written a marker: the one with this epoch is replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED
