"""Bad batches sent to a real broker: refused with the code of the table, which has Kafka's beside it."""

import time
from collections.abc import Iterator

import pytest
from conformance.invalid_batches import BadBatch, bad_batches, batch, record

from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from zhumq.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from zhumq.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from zhumq.records.batch import batches
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.raw_client import RawClient

TOPICS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "validated": {"record.validation": "full"},
}
NOW_MS = int(time.time() * 1000)
CASES = bad_batches(NOW_MS)
each_case = pytest.mark.parametrize("bad", CASES, ids=lambda bad: bad.name)


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as running, RawClient(running.bootstrap) as client:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig(name=key, value=value) for key, value in each.items()
                ],
            )
            for name, each in TOPICS.items()
        ]
        client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
        yield running


@pytest.fixture
def client(running: RunningBroker) -> Iterator[RawClient]:
    with RawClient(running.bootstrap) as client:
        yield client


def send(client: RawClient, topic: str, data: bytes) -> ErrorCode:
    partition = PartitionProduceData(index=0, records=data)
    request = ProduceRequest(
        acks=1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
    )
    answer = client.ask(ApiKey.PRODUCE, request, 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def end_offset(client: RawClient, topic: str) -> int:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
                ],
            )
        ],
    )
    answer = client.ask(ApiKey.FETCH, request, 11)
    high_watermark = answer.responses[0].partitions[0].high_watermark
    assert isinstance(high_watermark, int)
    return high_watermark


@each_case
def test_it_is_answered_as_the_table_says(client: RawClient, bad: BadBatch) -> None:
    before = end_offset(client, bad.topic)
    assert send(client, bad.topic, bad.data) == bad.zhumq
    stored = end_offset(client, bad.topic) - before
    assert stored == (0 if bad.zhumq else sum(b.header.records_count for b in batches(bad.data)))


@each_case
def test_it_is_answered_as_the_table_says_where_every_record_is_validated(
    client: RawClient, bad: BadBatch
) -> None:
    assert send(client, "validated", bad.data) == bad.validated


def test_a_bad_batch_does_not_affect_the_next_batch(client: RawClient) -> None:
    lie = next(bad.data for bad in CASES if bad.name == "gzip: 2^31-1 records")
    good = batch(record(), now_ms=NOW_MS)
    before = end_offset(client, "plain")
    assert send(client, "plain", lie * 4 + good) == ErrorCode.INVALID_RECORD
    assert end_offset(client, "plain") == before
    assert send(client, "plain", good) == ErrorCode.NONE
    assert end_offset(client, "plain") == before + 1
