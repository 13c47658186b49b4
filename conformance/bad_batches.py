"""Sends invalid batches to zhumq and Apache Kafka, and prints both answers: `python -m conformance.bad_batches`."""

import sys
import tempfile
import time
from pathlib import Path

from benchmarks.kafka_peer import prepare_kafka
from benchmarks.zhumq_server import prepare_zhumq

from conformance.invalid_batches import BadBatch, bad_batches
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from zhumq.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from zhumq.testing.raw_client import RawClient

PRODUCE_VERSION = 9
TOPICS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "validated": {"record.validation": "full"},  # zhumq's own
}
KINDS = {"kafka": prepare_kafka, "zhumq": prepare_zhumq}


def create_topics(client: RawClient) -> None:
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in each.items()],
        )
        for name, each in TOPICS.items()
    ]
    client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)


def send(bootstrap: str, bad: BadBatch, topic: str) -> str:
    """The name of the error code in the response, or that the broker closed the connection."""
    data = PartitionProduceData(index=0, records=bad.data)
    request = ProduceRequest(
        acks=1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    try:
        with RawClient(bootstrap) as client:
            answer = client.ask(ApiKey.PRODUCE, request, PRODUCE_VERSION)
    except (ConnectionError, TimeoutError) as error:
        return type(error).__name__
    return ErrorCode(answer.responses[0].partition_responses[0].error_code).name


def answers(kind: str, now_ms: int) -> dict[str, list[str]]:
    """The broker's answers for each case; for zhumq also with record.validation=full."""
    with (
        tempfile.TemporaryDirectory(prefix="bad-batches-") as folder,
        KINDS[kind](Path(folder)).start() as server,
    ):
        with RawClient(server.bootstrap) as client:
            create_topics(client)
        time.sleep(2)  # Before leaders are elected, batches are refused for another reason.
        return {
            bad.name: [
                send(server.bootstrap, bad, topic)
                for topic in ([bad.topic] if kind == "kafka" else [bad.topic, "validated"])
            ]
            for bad in bad_batches(now_ms)
        }


def main() -> None:
    now_ms = int(time.time() * 1000)
    found = {kind: answers(kind, now_ms) for kind in KINDS}
    wrong = 0
    print(f"{'what is wrong':46}{'Apache Kafka':40}{'zhumq':32}record.validation=full")
    for bad in bad_batches(now_ms):
        row = [*found["kafka"][bad.name], *found["zhumq"][bad.name]]
        mark = (
            ""
            if row == [bad.kafka.name, bad.zhumq.name, bad.validated.name]
            else "  <- not as in the table"
        )
        wrong += bool(mark)
        print(f"{bad.name:46}{row[0]:40}{row[1]:32}{row[2]}{mark}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
