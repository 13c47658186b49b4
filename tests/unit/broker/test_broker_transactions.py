"""Transactions of brokers: a partition joins one while the marker of the last one is on its way."""

from collections.abc import Iterable, Mapping
from typing import cast

from one_broker import OneBroker, with_broker

from zhumq.broker.handlers.produce_verification import ProduceVerification
from zhumq.coordinators.broker_transactions import AppendRoute
from zhumq.coordinators.transaction_route import RoutedTransactions
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.protocol.messages.half_messages import AppendInTransactionRequest
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.records.control import EndMarker, MarkerType
from zhumq.replication.partition import Partition
from zhumq.storage.validator import AppendOrigin

PRODUCER = 5
PRODUCE_VERSION = 12  # of clients whose transactions have an epoch each


class LateMarker:
    """A coordinator that confirms a transaction, and whose marker of the one before comes during the first answer."""

    def __init__(self, partition: Partition, now_ms: int) -> None:
        self._partition = partition
        self._now_ms = now_ms
        self.joins = 0

    async def join(
        self,
        _transactional_id: str,
        _producer_id: int,
        _producer_epoch: int,
        _partitions: Iterable[TopicPartition],
        *,
        adds: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        assert adds
        self.joins += 1
        if self.joins == 1:
            self._partition.append_marker(
                EndMarker(marker_type=MarkerType.COMMIT, coordinator_epoch=0),
                producer_id=PRODUCER,
                producer_epoch=1,
                transaction_version=2,
                now_ms=self._now_ms,
            )
        return {}


def test_a_producers_batch_is_verified_again_if_the_last_marker_came_meanwhile() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await broker.create()
        now_ms = broker.clock.now_ms()
        partition.allow_transaction(PRODUCER, 0, partition.verification(PRODUCER))
        partition.append(batch_of(0), now_ms, origin=AppendOrigin.CLIENT)
        coordinator = LateMarker(partition, now_ms)
        verification = ProduceVerification(cast("RoutedTransactions", coordinator))
        written = [(partition, batch_of(1))]
        assert await verification.verify("t", written, PRODUCE_VERSION) == {}
        assert coordinator.joins == 2
        partition.append(batch_of(1), now_ms, origin=AppendOrigin.CLIENT)
        assert partition.has_transaction(PRODUCER, 1)

    with_broker(scenario)


def batch_of(epoch: int) -> bytes:
    return build_batch(
        [Record(value=b"v", timestamp=0)],
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=0,
        is_transactional=True,
    )


def test_a_partition_joins_again_if_the_last_marker_came_meanwhile() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await broker.create()
        now_ms = broker.clock.now_ms()
        partition.allow_transaction(PRODUCER, 0, partition.verification(PRODUCER))
        partition.append(batch_of(0), now_ms, origin=AppendOrigin.CLIENT)
        coordinator = LateMarker(partition, now_ms)
        route = AppendRoute(broker.replicas, cast("RoutedTransactions", coordinator), broker.clock)
        await route.answer(
            partition.topic_partition,
            AppendInTransactionRequest(
                transactional_id="t",
                producer_id=PRODUCER,
                producer_epoch=1,
                batches=batch_of(1),
            ),
        )
        assert coordinator.joins == 2
        assert partition.has_transaction(PRODUCER, 1)

    with_broker(scenario)
