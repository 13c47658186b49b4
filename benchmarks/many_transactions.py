"""Very many transactional ids, and one very large transaction, on a real broker: memory, times, the restart.

    python -m benchmarks.many_transactions --ids 1000000 --partitions 10000

Prints one line for each figure.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.cluster_size import cpu_seconds
from benchmarks.lookup import rss_mb
from zhumq import Admin, TransactionalProducer
from zhumq.admin.transactions import list_transactions
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.producers import InitProducerIdRequest
from zhumq.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from zhumq.testing.process import BrokerProcess, broker_process
from zhumq.testing.raw_client import RawClient

TOPIC: Final = "many"
SECONDS_MAX: Final = 600.0  # for one answer
IN_FLIGHT: Final = 1_000
TIMEOUT_MS: Final = 60_000
OLDER_CLIENTS: Final = (
    3  # the version of AddPartitionsToTxn and EndTxn with which clients add partitions
)


def id_of(number: int) -> str:
    return f"shop-order-service-{number:09}"


def begin_all(client: RawClient, ids: int) -> None:
    """InitProducerId for each transactional id, many requests in flight."""
    sent = received = 0
    while received < ids:
        while sent < min(ids, received + IN_FLIGHT):
            request = InitProducerIdRequest(
                transactional_id=id_of(sent), transaction_timeout_ms=TIMEOUT_MS
            )
            client.send(ApiKey.INIT_PRODUCER_ID, request)
            sent += 1
        code = client.receive(ApiKey.INIT_PRODUCER_ID).error_code
        if code != ErrorCode.NONE:
            raise RuntimeError(f"{id_of(received)}: error {ErrorCode(code).name}")
        received += 1


@contextmanager
def timed(broker: BrokerProcess, what: str) -> Iterator[None]:
    cpu, begun = cpu_seconds(broker.pid), time.perf_counter()
    yield
    took, cpu = time.perf_counter() - begun, cpu_seconds(broker.pid) - cpu
    print(f"{what}: {took:.2f} s, {cpu:.2f} s of CPU, memory {rss_mb(broker.pid)} MB", flush=True)


def commit_once(broker: BrokerProcess) -> None:
    with (
        TransactionalProducer(broker.bootstrap, transactional_id=id_of(0)) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(TOPIC, b"after all of them")


def wait_until_loaded(client: RawClient) -> None:
    while True:
        request = InitProducerIdRequest(
            transactional_id=id_of(1), transaction_timeout_ms=TIMEOUT_MS
        )
        code = client.ask(ApiKey.INIT_PRODUCER_ID, request).error_code
        if code == ErrorCode.NONE:
            return
        time.sleep(0.1)


def many_ids(broker: BrokerProcess, ids: int) -> None:
    commit_once(broker)  # makes the topic of the states
    before = rss_mb(broker.pid)
    with RawClient(broker.bootstrap, seconds_max=SECONDS_MAX) as client:
        client.negotiate()
        with timed(broker, f"{ids:,} transactional ids"):
            begin_all(client, ids)
    growth = rss_mb(broker.pid) - before
    print(f"memory: {growth} MB more, {growth * 2**20 / ids:.0f} bytes for each id")
    with timed(broker, "a transaction of one message beside them"):
        commit_once(broker)
    with Admin(broker.bootstrap) as admin, timed(broker, "the list of all open transactions"):
        print(f"open: {len(list_transactions(admin, states=['Ongoing']))}")
    broker.kill()
    broker.start()
    with RawClient(broker.bootstrap, seconds_max=SECONDS_MAX) as client:
        client.negotiate()
        with timed(broker, "after kill -9: until a transactional id is served"):
            wait_until_loaded(client)
    with timed(broker, "a transaction of one message after that"):
        commit_once(broker)


def large_transaction(broker: BrokerProcess, partitions: int) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic("wide", partitions=partitions)
    with RawClient(broker.bootstrap, seconds_max=SECONDS_MAX) as client:
        client.negotiate()
        request = InitProducerIdRequest(
            transactional_id="wide", transaction_timeout_ms=10 * TIMEOUT_MS
        )
        producer = client.ask(ApiKey.INIT_PRODUCER_ID, request)
        adding = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="wide",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name="wide", partitions=list(range(partitions)))
            ],
        )
        with timed(broker, f"{partitions:,} partitions added to one transaction"):
            answer = client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, adding, version=OLDER_CLIENTS)
        codes = {
            result.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }
        ending = EndTxnRequest(
            transactional_id="wide",
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )
        with timed(broker, "its commit"):
            code = client.ask(ApiKey.END_TXN, ending, version=OLDER_CLIENTS).error_code
        with timed(broker, "until its markers are written"):
            again = ErrorCode.CONCURRENT_TRANSACTIONS
            while again == ErrorCode.CONCURRENT_TRANSACTIONS:
                time.sleep(0.05)
                again = client.ask(ApiKey.INIT_PRODUCER_ID, request).error_code
    print(f"errors: adding {sorted(codes)}, commit {code}, the next producer {again}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ids", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="zhumq-many-") as folder,
        broker_process(Path(folder) / "data") as broker,
    ):
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1)
        print(f"memory at the start: {rss_mb(broker.pid)} MB")
        many_ids(broker, given.ids)
        large_transaction(broker, given.partitions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
