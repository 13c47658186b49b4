"""The epochs of producers: the one that a producer begins with, and requests that were answered before."""

from typing import NamedTuple

from zhumq.transactions.requests import EndTransaction, InitProducer
from zhumq.transactions.transaction import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
    is_exhausted,
)

State = TransactionState


class Bump(NamedTuple):
    """The epoch with which a producer begins, and the one that a repeated request of it has."""

    epoch: int
    last_epoch: int
    is_exhausted: bool = False  # It needs another id.


def next_epoch(request: InitProducer, current: Transaction) -> Bump | None:
    """None: another instance has replaced the producer."""
    epoch = current.client_producer_epoch
    is_new_instance = request.producer_id == NO_PRODUCER_ID
    if is_new_instance or (request.producer_id, request.producer_epoch) == (
        current.client_producer_id,
        epoch,
    ):
        last_epoch = NO_EPOCH if is_new_instance else epoch
        if current.is_epoch_exhausted:
            return Bump(0, last_epoch, is_exhausted=True)
        return Bump(epoch + 1, last_epoch)
    # KIP-360: repeated after a lost answer. A new instance would have removed the last epoch.
    is_repeated = request.producer_epoch == current.last_producer_epoch and (
        request.producer_id == current.client_producer_id
        or (
            request.producer_id == current.previous_producer_id
            and is_exhausted(request.producer_epoch)
        )
    )
    if is_repeated and (current.state is not State.ONGOING or current.is_kept):
        if epoch == EPOCH_MAX:  # It was raised for fencing, and no client may have it.
            return Bump(0, current.last_producer_epoch, is_exhausted=True)
        return Bump(epoch, current.last_producer_epoch)
    return None


def is_repeated_end(current: Transaction, request: EndTransaction) -> bool:
    """Whether this end of version 2 is done: the producer has the next epoch, or another id."""
    if not current.bumps_epochs or current.state not in (
        State.COMPLETE_COMMIT,
        State.COMPLETE_ABORT,
    ):
        return False
    if current.producer_id == request.producer_id:
        return current.producer_epoch == request.producer_epoch + 1
    return (
        current.previous_producer_id == request.producer_id
        and request.producer_epoch == EPOCH_MAX - 1
        and current.producer_epoch == 0
    )
