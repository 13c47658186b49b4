"""The records of `__transaction_state`: Kafka's bytes, and what is read back."""

from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import StateRecord
from zhumq.transactions.persisted import (
    decode_key,
    decode_transaction,
    tombstone,
    transaction_record,
)
from zhumq.transactions.transaction import Transaction, TransactionState

OPEN = Transaction(
    transactional_id="pay",
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
    start_ms=5,
    update_ms=6,
)


def test_a_record_has_kafkas_bytes() -> None:
    record = transaction_record(OPEN)
    # | version i16 | length i16 | id |
    assert record.key == b"\0\0" + b"\0\3pay"
    assert record.value == b"".join(
        (
            b"\0\1",  # version
            (7).to_bytes(8, "big"),  # producer id
            (3).to_bytes(2, "big"),  # producer epoch
            (60_000).to_bytes(4, "big"),  # timeout
            b"\1",  # Ongoing
            b"\2" + b"\2t" + b"\3" + bytes(4) + b"\0\0\0\1" + b"\0",  # t: 0, 1
            (6).to_bytes(8, "big"),  # last update
            (5).to_bytes(8, "big"),  # start
            b"\0",  # no tagged fields
        )
    )


def test_what_kip_890_added_is_in_tagged_fields() -> None:
    record = transaction_record(
        Transaction(
            transactional_id="pay",
            producer_id=7,
            producer_epoch=3,
            timeout_ms=1,
            update_ms=6,
            previous_producer_id=4,
            next_producer_id=9,
            client_version=2,
        )
    )
    assert record.value is not None
    tags = record.value[2 + 8 + 2 + 4 + 1 + 1 + 8 + 8 :]
    assert tags == b"\3" + b"\0\x08" + bytes(7) + b"\4" + b"\1\x08" + bytes(7) + b"\t" + b"\2\2\0\2"
    # Empty: null, not an empty list.
    assert record.value[17] == 0


def test_the_pair_of_kip_939_is_in_kafkas_tagged_fields() -> None:
    kept = OPEN._replace(partitions=frozenset(), next_producer_id=9, next_producer_epoch=5)
    value = transaction_record(kept).value
    assert value is not None
    # | tag 1 | 8 bytes | id |, | tag 3 | 2 bytes | epoch |
    tags = value[2 + 8 + 2 + 4 + 1 + 1 + 8 + 8 :]
    assert tags == b"\2" + b"\1\x08" + bytes(7) + b"\t" + b"\3\2\0\5"


def test_every_state_is_read_as_it_was_written() -> None:
    for state in TransactionState:
        for partitions in (frozenset[TopicPartition](), OPEN.partitions):
            if state is TransactionState.EMPTY and partitions:
                continue
            written = Transaction(
                transactional_id="ä",
                producer_id=2**62,
                producer_epoch=2**15 - 1,
                timeout_ms=2**31 - 1,
                state=state,
                partitions=partitions,
                start_ms=-1,
                update_ms=1,
                last_producer_epoch=12,
                previous_producer_id=3,
                next_producer_id=4,
                next_producer_epoch=5,
                client_version=2,
            )
            record = transaction_record(written)
            assert record.value is not None
            assert decode_key(record.key) == "ä"
            assert decode_transaction("ä", record.value) == written


def test_records_of_older_and_newer_brokers_are_read_or_left_alone() -> None:
    value = transaction_record(OPEN).value or b""
    # Version 0 is not flexible: lengths of 16 and 32 bits, and no tagged fields.
    old = (
        b"\0\0"
        + value[2:17]
        + b"\0\0\0\1"
        + b"\0\1t"
        + b"\0\0\0\2"
        + bytes(4)
        + b"\0\0\0\1"
        + (6).to_bytes(8, "big")
        + (5).to_bytes(8, "big")
    )
    assert decode_transaction("pay", old) == OPEN
    assert decode_transaction("pay", b"\0\2" + value[2:]) is None
    assert decode_transaction("pay", value[:-3]) is None
    assert decode_transaction("pay", b"") is None
    dead = bytearray(value)
    dead[16] = 6
    assert decode_transaction("pay", bytes(dead)) is None
    assert decode_key(b"\0\1\0\3pay") is None
    assert decode_key(b"") is None
    assert tombstone("pay") == StateRecord(key=b"\0\0\0\3pay", value=None)
