"""Many produce requests in one write to the socket: each has its answer, in order, and the right one."""

from collections.abc import Sequence
from pathlib import Path

from zhumq.host.disk import DiskFile, SystemDisk, SystemFile
from zhumq.model.errors import ErrorCode, StorageFailed
from zhumq.protocol.api import APIS, ApiKey, RequestHeader, decode_response, encode_request
from zhumq.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from zhumq.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.raw_client import RawClient

VERSION = 12
NOW = 1_700_000_000_000


def batch(value: bytes, sequence: int = -1) -> bytes:
    producer = 5 if sequence >= 0 else -1
    return build_batch(
        [Record(timestamp=NOW, key=None, value=value)],
        producer_id=producer,
        producer_epoch=min(producer, 0),
        base_sequence=sequence,
    )


def produce(client: RawClient, all_records: Sequence[bytes], acks: int) -> None:
    """Sends all requests in one write, numbered from 100 on."""
    frames = []
    for number, records in enumerate(all_records):
        data = PartitionProduceData(index=0, records=records)
        body = ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        header = RequestHeader(ApiKey.PRODUCE, VERSION, 100 + number, "raw")
        frames.append(encode_request(header, body))
    client.send_bytes(b"".join(frames))


def answers(client: RawClient, count: int) -> list[PartitionProduceResponse]:
    found = []
    for number in range(count):
        correlation_id, response = decode_response(ApiKey.PRODUCE, VERSION, client.receive_frame())
        assert correlation_id == 100 + number
        ((answer,),) = ([*topic.partition_responses] for topic in response.responses)
        found.append(answer)
    return found


def create_topic(client: RawClient) -> None:
    key = ApiKey.METADATA
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True
    )
    while client.ask(key, request, APIS[key].max_version).topics[0].error_code:
        pass


def test_each_request_has_its_own_offset_whatever_the_acks(zhumq_broker: RunningBroker) -> None:
    with RawClient(zhumq_broker.bootstrap) as client:
        create_topic(client)
        for round_number, acks in enumerate((1, -1, 1)):
            produce(client, [batch(b"%d" % number) for number in range(50)], acks)
            found = answers(client, 50)
            assert [answer.error_code for answer in found] == [0] * 50
            first = 50 * round_number
            assert [answer.base_offset for answer in found] == list(range(first, first + 50))


def test_one_bad_request_is_refused_and_its_neighbours_are_not(
    zhumq_broker: RunningBroker,
) -> None:
    damaged = bytearray(batch(b"damaged"))
    damaged[-1] ^= 1
    with RawClient(zhumq_broker.bootstrap) as client:
        create_topic(client)
        produce(client, [batch(b"a"), batch(b"b"), bytes(damaged), batch(b"c")], acks=1)
        found = answers(client, 4)
    codes = [0, 0, ErrorCode.CORRUPT_MESSAGE, 0]
    assert [answer.error_code for answer in found] == codes
    assert [answer.base_offset for answer in found] == [0, 1, -1, 2]


def test_a_repeated_request_has_the_offset_of_the_first_one(zhumq_broker: RunningBroker) -> None:
    with RawClient(zhumq_broker.bootstrap) as client:
        create_topic(client)
        first = [batch(b"%d" % number, number) for number in range(4)]
        produce(client, [*first, first[2], first[3], batch(b"4", 4)], acks=-1)
        found = answers(client, 7)
    assert [answer.error_code for answer in found] == [0] * 7
    assert [answer.base_offset for answer in found] == [0, 1, 2, 3, 2, 3, 4]


class UnsyncedDisk(SystemDisk):
    """Logs can be written, but never reach the disk."""

    syncs_by_descriptor = False

    def open_file(self, path: str, *, create: bool = False) -> DiskFile:
        return UnsyncedFile(path, create=create)


class UnsyncedFile(SystemFile):
    __slots__ = ()

    def sync(self) -> None:
        if self.path.endswith(".log"):
            raise StorageFailed(f"cannot sync {self.path}: Input/output error")
        super().sync()


def test_none_of_them_is_acknowledged_when_the_flush_fails(tmp_path: Path) -> None:
    with (
        broker(data_dir=tmp_path, disk=UnsyncedDisk()) as running,
        RawClient(running.bootstrap) as client,
    ):
        create_topic(client)
        produce(client, [batch(b"%d" % number) for number in range(20)], acks=-1)
        found = answers(client, 20)
    assert all(answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR for answer in found)
    assert all(answer.base_offset == -1 for answer in found)
