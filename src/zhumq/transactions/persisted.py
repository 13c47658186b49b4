"""The records of `__transaction_state`, in Kafka's format: encoding and decoding."""

import functools
from collections import defaultdict
from typing import Final

from zhumq.model.errors import MalformedFrame
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import StateRecord
from zhumq.protocol.messages.coordinator_records import decode_versioned, encode_versioned
from zhumq.protocol.messages.transactions import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from zhumq.transactions.transaction import NO_PARTITIONS, Transaction, TransactionState

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1
KEYS_REMEMBERED_MAX: Final = 4_096  # each transaction of an id has two records
STATUS_OF: Final = {
    TransactionState.EMPTY: 0,
    TransactionState.ONGOING: 1,
    TransactionState.PREPARE_COMMIT: 2,
    TransactionState.PREPARE_ABORT: 3,
    TransactionState.COMPLETE_COMMIT: 4,
    TransactionState.COMPLETE_ABORT: 5,
}
STATE_OF: Final = {status: state for state, status in STATUS_OF.items()}


def transaction_record(transaction: Transaction) -> StateRecord:
    """The record that sets the state of a transactional id."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in transaction.partitions:
        topics[topic].append(partition)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        next_producer_epoch=transaction.next_producer_epoch,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=STATUS_OF[transaction.state],
        # As Kafka writes it: null where there can be none.
        transaction_partitions=(
            None
            if transaction.state is TransactionState.EMPTY
            else [
                PartitionsSchema(topic=topic, partition_ids=sorted(topics[topic]))
                for topic in sorted(topics)
            ]
        ),
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
        last_producer_epoch=transaction.last_producer_epoch,
    )
    return StateRecord(
        key=_key(transaction.transactional_id), value=encode_versioned(value, VALUE_VERSION)
    )


def tombstone(transactional_id: str) -> StateRecord:
    """The record that removes a transactional id."""
    return StateRecord(key=_key(transactional_id), value=None)


def decode_key(key: bytes) -> str | None:
    """The transactional id; None for keys that this version does not know."""
    try:
        return decode_versioned(TransactionLogKey, key)[1].transactional_id
    except MalformedFrame:
        return None


def decode_transaction(transactional_id: str, value: bytes) -> Transaction | None:
    """The state in a record; None if it cannot be read."""
    try:
        _, found = decode_versioned(TransactionLogValue, value)
    except MalformedFrame:
        return None
    state = STATE_OF.get(found.transaction_status)
    if state is None:
        return None
    return Transaction(
        transactional_id=transactional_id,
        producer_id=found.producer_id,
        previous_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        next_producer_epoch=found.next_producer_epoch,
        producer_epoch=found.producer_epoch,
        last_producer_epoch=found.last_producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        state=state,
        partitions=_partitions(found),
        start_ms=found.transaction_start_timestamp_ms,
        update_ms=found.transaction_last_update_timestamp_ms,
        client_version=found.client_transaction_version,
    )


def _partitions(found: TransactionLogValue) -> frozenset[TopicPartition]:
    if not found.transaction_partitions:
        return NO_PARTITIONS
    return frozenset(
        TopicPartition(each.topic, partition)
        for each in found.transaction_partitions
        for partition in each.partition_ids
    )


@functools.lru_cache(maxsize=KEYS_REMEMBERED_MAX)
def _key(transactional_id: str) -> bytes:
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)
