"""Requests about transactions, from the dispatcher to the logs of their partitions."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
from one_broker import TOPIC, OneBroker, with_broker
from tests.manual_time import START_MS, advance, until

from zhumq.broker.handlers.coordinators import (
    Coordinated,
    CoordinatorKind,
    FindCoordinatorHandler,
)
from zhumq.broker.handlers.producers import ProducersHandler
from zhumq.broker.handlers.transactions import TransactionsHandler
from zhumq.broker.wiring.group_coordinator import GroupCoordinator
from zhumq.broker.wiring.transaction_coordinator import open_markers
from zhumq.model.errors import ErrorCode
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages import transactions as messages
from zhumq.protocol.messages.groups import FindCoordinatorRequest
from zhumq.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from zhumq.protocol.messages.producers import InitProducerIdRequest
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch

ID = "payments"
GROUP = "g"
TIMEOUT_MS = 60_000
OLD_PRODUCE, NEW_PRODUCE = (
    11,
    12,
)  # the last one of transaction version 1, the first one of version 2
OLD_END, NEW_END = 4, 5


@dataclass
class Producer:
    """What a client remembers."""

    broker: OneBroker
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0

    async def begin(self, transactional_id: str = ID, **fields: int) -> int:
        """A new instance, or with its id and epoch the same one. Returns the error code."""
        body = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS, **fields
        )
        answer = await self.broker.ask(ApiKey.INIT_PRODUCER_ID, 5, body)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequence = 0
        code: int = answer.error_code
        return code

    async def add(self, partition: int = 0, topic: str = TOPIC) -> int:
        body = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                messages.AddPartitionsToTxnTopic(name=topic, partitions=[partition])
            ],
        )
        answer = await self.broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, body)
        (result,) = answer.results_by_topic_v3_and_below
        code: int = result.results_by_partition[0].partition_error_code
        return code

    def batch(self) -> ProduceRequest:
        records = [Record(timestamp=START_MS, value=b"%d" % self.sequence)]
        data = build_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=True,
        )
        self.sequence += 1
        partition = PartitionProduceData(index=0, records=data)
        return ProduceRequest(
            transactional_id=ID,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[partition])],
        )

    async def produce(self, version: int = NEW_PRODUCE) -> int:
        answer = await self.broker.ask(ApiKey.PRODUCE, version, self.batch())
        return code_of(answer)

    async def end(self, version: int = NEW_END, *, is_commit: bool = True) -> int:
        body = messages.EndTxnRequest(
            transactional_id=ID,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )
        answer = await self.broker.ask(ApiKey.END_TXN, version, body)
        if version >= NEW_END and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequence = 0
        code: int = answer.error_code
        return code


def code_of(answer: Any) -> int:
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


Scenario = Callable[[OneBroker, Producer], Coroutine[Any, Any, None]]


def with_transactions(scenario: Scenario) -> None:
    """Runs a test with a broker that coordinates transactions, a topic, and a producer that has begun."""

    async def with_coordinator(broker: OneBroker) -> None:
        base = broker.foundation({"offsets.topic.num.partitions": "1"})
        groups = GroupCoordinator(base, broker.transactions.routed)
        markers = open_markers(base, broker.transactions, {CONSUMER_OFFSETS_TOPIC: groups.runtime})
        service, topic = broker.transactions.service, broker.transactions.topic
        coordinated = Coordinated(
            noun="transactional id", topic=topic, partition_for=service.partition_for
        )
        families = (
            broker.produce_handler,
            FindCoordinatorHandler({CoordinatorKind.TRANSACTION: coordinated}, broker.store),
            ProducersHandler(broker.metadata_client, broker.replicas, service),
            TransactionsHandler(
                service,
                markers.appender,
                groups.topic,
                groups.service.partition_for,
                broker.store,
            ),
        )
        broker.dispatch({key: each for part in families for key, each in part.handlers().items()})
        await broker.create(partitions=2)
        body = FindCoordinatorRequest(key_type=CoordinatorKind.TRANSACTION, coordinator_keys=[ID])
        (found,) = (await broker.ask(ApiKey.FIND_COORDINATOR, 4, body)).coordinators
        assert found.error_code == 0
        await until(lambda: all(partition.is_current for partition in broker.replicas))
        await advance(1_000)  # The loops that write markers wait for the shards to be loaded.
        producer = Producer(broker)
        assert await producer.begin() == 0
        try:
            await scenario(broker, producer)
        finally:
            await markers.close()
            await groups.close()

    with_broker(with_coordinator)


async def state(broker: OneBroker, transactional_id: str = ID) -> Any:
    body = messages.DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (found,) = (await broker.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, body)).transaction_states
    return found


def last_stable(broker: OneBroker) -> tuple[int, int]:
    partition = broker.replicas.partition(TOPIC, 0)
    return partition.last_stable_offset, partition.log_end_offset


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_of_version_2_adds_its_partition_by_producing(is_commit: bool) -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        for round_ in range(3):
            assert await producer.produce() == 0
            assert await producer.produce() == 0
            assert last_stable(broker) == (3 * round_, 3 * round_ + 2)
            assert (await state(broker)).transaction_state == "Ongoing"
            assert await producer.end(is_commit=is_commit) == 0
            assert producer.epoch == round_ + 1
            await until(lambda end=3 * round_ + 3: last_stable(broker) == (end, end))
        partition = broker.replicas.partition(TOPIC, 0)
        aborted = partition.log.aborted_transactions(0, 9)
        assert len(aborted) == (0 if is_commit else 3)

    with_transactions(scenario)


def test_a_transaction_of_version_1_needs_its_partition_first() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        assert await producer.produce(OLD_PRODUCE - 1) == ErrorCode.INVALID_TXN_STATE
        assert await producer.produce(OLD_PRODUCE) == ErrorCode.TRANSACTION_ABORTABLE
        assert last_stable(broker) == (0, 0)
        producer.sequence = 0
        assert await producer.add() == 0
        assert await producer.produce(OLD_PRODUCE) == 0
        epoch = producer.epoch
        assert await producer.end(OLD_END) == 0
        assert producer.epoch == epoch
        await until(lambda: last_stable(broker) == (2, 2))
        # The same epoch goes on, in the next transaction.
        assert await producer.produce(OLD_PRODUCE) == ErrorCode.TRANSACTION_ABORTABLE
        producer.sequence -= 1
        assert await producer.add() == 0
        assert await producer.produce(OLD_PRODUCE) == 0
        assert last_stable(broker) == (2, 3)

    with_transactions(scenario)


def test_requests_sent_at_once_are_appended_in_their_order() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        bodies = [producer.batch() for _ in range(5)]
        answers = await broker.ask_all(ApiKey.PRODUCE, NEW_PRODUCE, *bodies)
        assert [code_of(each) for each in answers] == [0] * 5
        offsets = [each.responses[0].partition_responses[0].base_offset for each in answers]
        assert offsets == [0, 1, 2, 3, 4]

    with_transactions(scenario)


def test_the_next_transaction_waits_for_the_markers_of_the_last_one() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        assert await producer.produce() == 0
        ended = asyncio.ensure_future(producer.end())
        assert await ended == 0
        # Sent before the markers are written: not refused with CONCURRENT_TRANSACTIONS.
        assert await producer.produce() == 0
        assert last_stable(broker) == (2, 3)

    with_transactions(scenario)


def test_a_second_instance_aborts_the_transaction_and_fences_the_first() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        assert await producer.produce() == 0
        second = Producer(broker)
        assert await second.begin() == 0
        assert (second.producer_id, second.epoch) == (producer.producer_id, producer.epoch + 2)
        assert last_stable(broker) == (2, 2)
        assert await producer.produce() == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await producer.end() == ErrorCode.PRODUCER_FENCED
        assert await producer.end(1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await producer.add() == ErrorCode.PRODUCER_FENCED
        assert await second.produce() == 0

    with_transactions(scenario)


def test_a_silent_producer_is_aborted_when_its_time_is_up() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        assert await producer.produce() == 0
        await advance(TIMEOUT_MS - 1)
        assert last_stable(broker) == (0, 1)
        await advance(2)
        while (await state(broker)).transaction_state != "CompleteAbort":
            await asyncio.sleep(0)
        assert last_stable(broker) == (2, 2)
        assert await producer.end() == ErrorCode.INVALID_TXN_STATE
        assert await producer.produce() == ErrorCode.INVALID_PRODUCER_EPOCH

    with_transactions(scenario)


def test_a_batch_of_a_transaction_needs_a_transactional_id() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        assert await producer.produce() == 0
        for acks in (-1, 1):
            body = producer.batch()
            body.transactional_id, body.acks = None, acks
            answer = await broker.ask(ApiKey.PRODUCE, NEW_PRODUCE, body)
            assert code_of(answer) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert last_stable(broker) == (0, 1)

    with_transactions(scenario)


def test_a_batch_with_an_empty_transactional_id_is_an_invalid_request() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        for version in (OLD_PRODUCE, NEW_PRODUCE):
            body = producer.batch()
            body.transactional_id = ""
            answer = await broker.ask(ApiKey.PRODUCE, version, body)
            assert code_of(answer) == ErrorCode.INVALID_REQUEST
        assert last_stable(broker) == (0, 0)

    with_transactions(scenario)


def test_a_producer_cannot_write_with_the_id_of_another_one() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        assert await producer.produce() == 0
        foreign = Producer(broker, producer.producer_id + 1_000, 0)
        assert await foreign.produce() == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        future = Producer(broker, producer.producer_id, producer.epoch + 1)
        assert await future.produce() == ErrorCode.INVALID_PRODUCER_EPOCH
        assert last_stable(broker) == (0, 1)

    with_transactions(scenario)


def test_partitions_that_do_not_exist_or_are_internal_join_no_transaction() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        assert await producer.add(topic="nothing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await producer.add(partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        internal = await producer.add(topic=TRANSACTION_STATE_TOPIC)
        assert internal == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        body = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                messages.AddPartitionsToTxnTopic(name="nothing", partitions=[0]),
                messages.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0]),
            ],
        )
        answer = await broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, body)
        codes = {
            topic.name: topic.results_by_partition[0].partition_error_code
            for topic in answer.results_by_topic_v3_and_below
        }
        assert codes == {
            "nothing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            TOPIC: ErrorCode.OPERATION_NOT_ATTEMPTED,
        }
        assert (await state(broker)).transaction_state == "Empty"

    with_transactions(scenario)


def test_a_request_that_is_decoded_in_a_thread_is_answered_as_any_other() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        many = [0] * 10_000  # 40 KB
        body = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[messages.AddPartitionsToTxnTopic(name=TOPIC, partitions=many)],
        )
        answer = await broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, body)
        (result,) = answer.results_by_topic_v3_and_below
        assert [each.partition_error_code for each in result.results_by_partition] == [0]

    with_transactions(scenario)


def test_brokers_verify_several_transactions_at_once() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        assert await producer.add() == 0

        async def verify(version: int) -> list[int]:
            asked = messages.AddPartitionsToTxnTransaction(
                transactional_id=ID,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=True,
                topics=[messages.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0, 1])],
            )
            body = messages.AddPartitionsToTxnRequest(transactions=[asked])
            answer = await broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, body)
            (result,) = answer.results_by_transaction
            (topic,) = result.topic_results
            return [each.partition_error_code for each in topic.results_by_partition]

        assert await verify(4) == [0, ErrorCode.INVALID_TXN_STATE]
        assert await verify(5) == [0, ErrorCode.TRANSACTION_ABORTABLE]

    with_transactions(scenario)


def test_the_offsets_of_a_group_join_a_transaction() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        body = messages.AddOffsetsToTxnRequest(
            transactional_id=ID,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=GROUP,
        )
        answer = await broker.ask(ApiKey.ADD_OFFSETS_TO_TXN, 4, body)
        assert answer.error_code == 0
        (topic,) = (await state(broker)).topics
        assert (topic.topic, topic.partitions) == (CONSUMER_OFFSETS_TOPIC, [0])

    with_transactions(scenario)


def test_a_transaction_whose_topic_was_deleted_ends() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        assert await producer.produce() == 0
        await broker.metadata_client.delete_topics([TOPIC])
        assert await producer.end() == 0
        assert (await state(broker)).transaction_state == "PrepareCommit"
        await advance(10_000)
        assert (await state(broker)).transaction_state == "CompleteCommit"

    with_transactions(scenario)


def test_markers_of_tools_are_answered_by_partition() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        assert await producer.produce() == 0
        marker = messages.WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            topics=[
                messages.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0, 9]),
                messages.WritableTxnMarkerTopic(name="nothing", partition_indexes=[0]),
            ],
        )
        body = messages.WriteTxnMarkersRequest(markers=[marker])
        answer = await broker.ask(ApiKey.WRITE_TXN_MARKERS, 1, body)
        (result,) = answer.markers
        codes = {
            (topic.name, each.partition_index): each.error_code
            for topic in result.topics
            for each in topic.partitions
        }
        absent = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == {(TOPIC, 0): 0, (TOPIC, 9): absent, ("nothing", 0): absent}
        assert last_stable(broker) == (2, 2)

    with_transactions(scenario)


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (7, -1)])
def test_a_marker_without_a_producer_is_refused(producer_id: int, epoch: int) -> None:
    async def scenario(broker: OneBroker, _producer: Producer) -> None:
        marker = messages.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[messages.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
        )
        body = messages.WriteTxnMarkersRequest(markers=[marker])
        answer = await broker.ask(ApiKey.WRITE_TXN_MARKERS, 1, body)
        assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
        assert last_stable(broker) == (0, 0)

    with_transactions(scenario)


def test_transactions_are_listed_by_state_producer_age_and_name() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        other = Producer(broker)
        assert await other.begin("orders") == 0
        assert await producer.produce() == 0
        await advance(5_000)

        async def listed(**filters: Any) -> set[str]:
            body = messages.ListTransactionsRequest(**filters)
            answer = await broker.ask(ApiKey.LIST_TRANSACTIONS, 2, body)
            assert answer.error_code == 0
            assert answer.unknown_state_filters == sorted(
                set(filters.get("state_filters", ())) - {"Ongoing"}
            )
            return {each.transactional_id for each in answer.transaction_states}

        assert await listed() == {ID, "orders"}
        assert await listed(state_filters=["Ongoing"]) == {ID}
        assert await listed(state_filters=["Nonsense"]) == set()
        assert await listed(producer_id_filters=[other.producer_id]) == {"orders"}
        assert await listed(duration_filter=4_000) == {ID}
        assert await listed(duration_filter=6_000) == set()
        assert await listed(transactional_id_pattern="or.*") == {"orders"}
        body = messages.ListTransactionsRequest(transactional_id_pattern="(")
        answer = await broker.ask(ApiKey.LIST_TRANSACTIONS, 2, body)
        assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert (await state(broker, "?")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert (await state(broker, "")).error_code == ErrorCode.INVALID_REQUEST

    with_transactions(scenario)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 1}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 99_999, "producer_epoch": 0}, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_a_producer_that_cannot_begin_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    async def scenario(broker: OneBroker, _producer: Producer) -> None:
        body = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1_000)
        for name, value in fields.items():
            setattr(body, name, value)
        answer = await broker.ask(ApiKey.INIT_PRODUCER_ID, 5, body)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)

    with_transactions(scenario)


def test_a_new_transactional_id_gets_an_id_of_its_own() -> None:
    async def scenario(broker: OneBroker, producer: Producer) -> None:
        other = Producer(broker)
        assert await other.begin("orders") == 0
        assert other.producer_id != producer.producer_id

    with_transactions(scenario)
