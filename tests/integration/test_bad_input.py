"""A broker process with clients that send garbage, stall or do not read, beside a working client."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from zhumq.protocol.api import ApiKey, RequestHeader, encode_request
from zhumq.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from zhumq.protocol.messages.metadata import ApiVersionsRequest
from zhumq.testing.process import BrokerProcess, broker_process

TOPIC = "orders"
MESSAGES = 5_000
DEADLINE_SECONDS = 60.0
REQUEST_BYTES_TOTAL_MAX = 32 * 1024 * 1024
MEMORY_GROWTH_BYTES_MAX = 200 * 1024 * 1024

BAD_STREAMS = (
    struct.pack(">i", 0),
    struct.pack(">i", -1),
    struct.pack(">i", 2**31 - 1),
    struct.pack(">i", 12) + struct.pack(">hhih", 999, 0, 1, -1) + b"\x00\x00",
    struct.pack(">i", 15) + struct.pack(">hhih", 3, 9, 1, -1) + b"\xff" * 5,
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x00" * 1_000,
)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {"queued.max.request.bytes": str(REQUEST_BYTES_TOTAL_MAX)}
    with broker_process(tmp_path / "data", settings=settings) as process:
        yield process


def test_a_client_at_work_loses_nothing_while_others_send_rubbish(process: BrokerProcess) -> None:
    done = threading.Event()
    closed = 0

    def send_rubbish() -> None:
        nonlocal closed
        while not done.is_set():
            for stream in BAD_STREAMS:
                with connected(process) as peer:
                    with contextlib.suppress(ConnectionError):
                        peer.sendall(stream)
                    closed += is_closed(peer)

    rubbish = threading.Thread(target=send_rubbish)
    rubbish.start()
    try:
        produce(process, MESSAGES)
        values = consume(process, MESSAGES)
    finally:
        done.set()
        rubbish.join()
    assert values == [b"%d" % number for number in range(MESSAGES)]
    assert closed >= len(BAD_STREAMS)
    assert process.stop() == 0


def test_half_requests_stay_within_the_memory_for_requests(process: BrokerProcess) -> None:
    produce(process, 1)
    before = resident_bytes(process.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(60):
            peer = stack.enter_context(connected(process))
            peer.setblocking(False)
            pending = memoryview(struct.pack(">i", 90_000_000) + bytes(4_000_000))
            with contextlib.suppress(BlockingIOError):
                while pending:
                    pending = pending[peer.send(pending) :]
        assert answers(process)
        assert resident_bytes(process.pid) - before < MEMORY_GROWTH_BYTES_MAX
    produce(process, 1)
    assert process.stop() == 0


def test_readers_that_do_not_read_cost_no_memory(process: BrokerProcess) -> None:
    produce(process, 8, value=bytes(900_000))
    before = resident_bytes(process.pid)
    fetch = encode_request(
        RequestHeader(ApiKey.FETCH, 11, 1, "slow"),
        FetchRequest(
            max_wait_ms=1,
            min_bytes=1,
            max_bytes=50_000_000,
            topics=[
                FetchTopic(
                    topic=TOPIC,
                    partitions=[
                        FetchPartition(
                            partition=0, current_leader_epoch=-1, partition_max_bytes=50_000_000
                        )
                    ],
                )
            ],
        ),
    )
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            peer = stack.enter_context(connected(process))
            peer.sendall(fetch * 5)
        assert answers(process)
        assert resident_bytes(process.pid) - before < MEMORY_GROWTH_BYTES_MAX
    assert len(consume(process, 8)) == 8
    assert process.stop() == 0


@contextlib.contextmanager
def connected(process: BrokerProcess) -> Iterator[socket.socket]:
    host, _, port = process.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS) as peer:
        yield peer


def is_closed(peer: socket.socket) -> bool:
    """Waits for the broker to end the connection."""
    try:
        while peer.recv(65_536):
            pass
    except ConnectionError:
        pass
    return True


def answers(process: BrokerProcess) -> bool:
    with connected(process) as peer:
        peer.sendall(
            encode_request(
                RequestHeader(ApiKey.API_VERSIONS, 3, 1, "healthy"), ApiVersionsRequest()
            )
        )
        return len(peer.recv(4)) == 4


def produce(process: BrokerProcess, count: int, value: bytes | None = None) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": process.bootstrap, "acks": "all"})
    failures: list[object] = []
    for number in range(count):
        producer.produce(
            TOPIC,
            b"%d" % number if value is None else value,
            partition=0,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert not failures


def consume(process: BrokerProcess, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": process.bootstrap, "group.id": "readers"}
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    values: list[bytes] = []
    try:
        while len(values) < count:
            batch = consumer.consume(count - len(values), timeout=DEADLINE_SECONDS)
            assert batch, f"{len(values)} of {count} messages came"
            for message in batch:
                assert message.error() is None
                values.append(message.value() or b"")
    finally:
        consumer.close()
    return values


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)
