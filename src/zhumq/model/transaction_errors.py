"""Errors of transactions: fenced coordinators, and producers whose transaction cannot go on."""

from zhumq.model.errors import BrokerError, ErrorCode


class TransactionCoordinatorFenced(BrokerError):
    """A newer transaction coordinator has written a marker: the one with this epoch is replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class TransactionAbortable(BrokerError):
    """The producer has to abort its transaction, and may then begin the next one."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class ConcurrentTransactions(BrokerError):
    """The last transaction of the producer is being ended."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class InvalidProducerIdMapping(BrokerError):
    """The producer id does not belong to the transactional id."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
