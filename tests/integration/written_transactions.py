"""Transactions for tests: open, prepared, and one that its coordinator has forgotten."""

import time
from pathlib import Path

import confluent_kafka

from zhumq.client.wire import Connection
from zhumq.host.clock import SystemClock
from zhumq.host.disk import SystemDisk
from zhumq.model.address import parse_addresses
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.groups import FindCoordinatorRequest
from zhumq.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from zhumq.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.storage.log_config import LogConfig
from zhumq.storage.segmented_log import SegmentedLog

SECONDS_MAX = 30.0
HOUR_MS = 3_600_000
FORGOTTEN_PRODUCER = 4_711


def append_forgotten_transaction(data_dir: Path, topic: str) -> int:
    """Append a batch of a transaction that no coordinator knows to the log of a stopped broker. Returns its offset.

    Brokers before KIP-890 let such batches in: a late one, after the end of its transaction.
    """
    log = SegmentedLog.open(
        str(data_dir / f"{topic}-0"),
        TopicPartition(topic, 0),
        LogConfig(),
        disk=SystemDisk(),
        clock=SystemClock(),
        recovery_point=0,
    )
    producers = log.producer_state
    producers.allow_transaction(FORGOTTEN_PRODUCER, 0, producers.verification(FORGOTTEN_PRODUCER))
    offset = log.log_end_offset
    # Longer ago than any timeout, and not so long that retention deletes it.
    sent_ms = time.time_ns() // 1_000_000 - HOUR_MS
    data = build_batch(
        [Record(timestamp=sent_ms, value=b"forgotten")],
        producer_id=FORGOTTEN_PRODUCER,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    log.append(data, leader_epoch=0, now_ms=sent_ms)
    log.close()
    return offset


def connect(bootstrap: str) -> Connection:
    return Connection.open(
        parse_addresses(bootstrap, default_port=9092),
        client_id="test",
        request_seconds=SECONDS_MAX,
    )


def prepare_two_phase(
    bootstrap: str, name: str, topic: str, value: bytes
) -> InitProducerIdResponse:
    """A two-phase producer writes a message and dies before it ends the transaction. Returns its id and epoch."""
    coordinator = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
    with connect(bootstrap) as connection:
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            connection.ask(ApiKey.FIND_COORDINATOR, coordinator)
            producer: InitProducerIdResponse = connection.ask(
                ApiKey.INIT_PRODUCER_ID,
                InitProducerIdRequest(transactional_id=name, enable2_pc=True),
            )
            if producer.error_code == ErrorCode.NONE:
                break
            assert time.monotonic() < deadline, ErrorCode(producer.error_code)
        batch = build_batch(
            [Record(timestamp=int(time.time() * 1000), value=value)],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=int(SECONDS_MAX * 1000),
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
                )
            ],
        )
        answer = connection.ask(ApiKey.PRODUCE, request, 12)
        code = answer.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.NONE, ErrorCode(code)
        return producer


class Transactions:
    """Messages of a topic in committed, aborted and open transactions, by a real client; `commit` ends the open one."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._plain = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
        self._send(self._plain, b"plain")
        first, second = self._begin("first"), self._begin("second")
        self._send(first, b"committed 1")
        self._send(second, b"aborted 1")
        self._send(first, b"committed 2")
        second.abort_transaction(SECONDS_MAX)
        first.commit_transaction(SECONDS_MAX)
        self._open = self._begin("third")
        second.begin_transaction()
        self._send(second, b"committed 3")
        second.commit_transaction(SECONDS_MAX)
        self._send(self._open, b"open")
        self._send(self._plain, b"behind")
        self.visible = {
            "read_committed": [b"plain", b"committed 1", b"committed 2", b"committed 3"],
            "read_uncommitted": [
                b"plain", b"committed 1", b"aborted 1", b"committed 2", b"committed 3", b"open", b"behind",
            ],
        }  # fmt: skip
        self.visible_later = {"read_committed": [b"open", b"behind"], "read_uncommitted": []}

    def commit(self) -> None:
        self._open.commit_transaction(SECONDS_MAX)

    def end(self) -> None:
        """Send a last message, with which a reader stops."""
        self._send(self._plain, b"last")

    def _begin(self, name: str) -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": f"{self._topic}-{name}",
                "log_level": 0,
            }
        )
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
        return producer

    def _send(self, producer: confluent_kafka.Producer, value: bytes) -> None:
        producer.produce(self._topic, value, partition=0)
        assert producer.flush(SECONDS_MAX) == 0
