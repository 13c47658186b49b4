"""Produce: appends whole batches, and answers at once or when they are durable."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from zhumq.broker.dispatch import EncodedAnswer, Handler, RequestContext
from zhumq.broker.handlers.produce_verification import ProduceVerification
from zhumq.broker.seen_producers import SeenProducers
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.transaction_route import RoutedTransactions
from zhumq.host.clock import Clock
from zhumq.metadata.topics import TOPIC_NAME_LENGTH_MAX
from zhumq.model.authorization_errors import TopicAuthorizationFailed
from zhumq.model.errors import (
    BrokerError,
    InvalidRecord,
    InvalidRequiredAcks,
    MalformedFrame,
    UnknownTopicId,
)
from zhumq.model.ids import TopicPartition
from zhumq.net.service import Answer, ConnectionInfo
from zhumq.protocol.api import ApiKey, Part, RequestHeader, encode_response
from zhumq.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from zhumq.protocol.produce_codec import ProduceRun, encoder_of_one
from zhumq.replication.partition import Partition
from zhumq.replication.pending import DurableCallback
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.security.acl import Operation, ResourceType
from zhumq.storage.log_slice import Appended
from zhumq.storage.validator import AppendOrigin, WalkBudget

_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_NO_ACKS: Final = 0
_LEADER_ACKS: Final = 1
_ALL_ACKS: Final = -1
_WRITE: Final = Operation.WRITE
_TOPIC: Final = ResourceType.TOPIC
_ANSWERED_ACKS: Final = (_ALL_ACKS, _LEADER_ACKS)


# Calls back when everything below an offset is durable, or has failed; the last argument is a timeout.
Wait = Callable[[int, DurableCallback, int], None]
# An append that has to be durable before the answer: how to wait, the next offset, its response.
Undurable = tuple[Wait, int, PartitionProduceResponse]


class ProduceHandler:
    """Appends produced batches. Everything before the append works on whole requests."""

    def __init__(
        self,
        replicas: ReplicaManager,
        store: MetadataStore,
        clock: Clock,
        transactions: RoutedTransactions,
        seen: SeenProducers,
    ) -> None:
        self._replicas = replicas
        self._store = store
        self._clock = clock
        self._verification = ProduceVerification(transactions)
        self._seen = seen

    def handlers(self) -> dict[ApiKey, Handler]:
        return {ApiKey.PRODUCE: self.produce}

    def produce(
        self, context: RequestContext, request: ProduceRequest
    ) -> ProduceResponse | EncodedAnswer | Coroutine[Any, Any, ProduceResponse | None] | None:
        acks = request.acks
        if acks not in (_ALL_ACKS, _NO_ACKS, _LEADER_ACKS):
            return _refuse_all(request, InvalidRequiredAcks(f"acks={acks}"))
        transactional_id = request.transactional_id
        if transactional_id is not None and not self._verification.is_done_at_once(
            transactional_id, self._written(context, request), context.version
        ):
            return self._produce_verified(context, request, transactional_id)
        response, undurable = self._append(context, request, {})
        if response is None or not undurable:
            return response
        done: asyncio.Future[list[Part] | None] = asyncio.get_running_loop().create_future()

        def answer() -> None:
            # Done already: the connection is gone.
            if not done.done():
                done.set_result(context.encode(response))

        _call_when_durable(undurable, request.timeout_ms, answer)
        return EncodedAnswer(done)

    async def _produce_verified(
        self, context: RequestContext, request: ProduceRequest, transactional_id: str
    ) -> ProduceResponse | None:
        """Append once the coordinator confirmed the transaction, after the producer's earlier requests."""
        async with self._verification.turn(transactional_id):
            errors = await self._verification.verify(
                transactional_id, self._written(context, request), context.version
            )
            response, undurable = self._append(context, request, errors)
        if response is not None and undurable:
            durable = asyncio.Event()
            _call_when_durable(undurable, request.timeout_ms, durable.set)
            await durable.wait()
        return response

    def _written(
        self, context: RequestContext, request: ProduceRequest
    ) -> Iterator[tuple[Partition, bytes | memoryview]]:
        """The partitions of this broker that the request writes to, as far as its sender may."""
        by_id = context.version >= _FIRST_VERSION_WITH_TOPIC_IDS
        for topic in request.topic_data:
            name = self._name_of(topic) if by_id else topic.name
            if context.sees(_WRITE, _TOPIC, name):
                for data in topic.partition_data:
                    partition = self._replicas.find(name, data.index)
                    if partition is not None and partition.leads:
                        yield partition, data.records or b""

    def _append(
        self,
        context: RequestContext,
        request: ProduceRequest,
        errors: Mapping[TopicPartition, BrokerError],
    ) -> tuple[ProduceResponse | None, list[Undurable]]:
        """The response, and what has to be durable before it is sent. Partitions with errors are refused."""
        acks = request.acks
        connection = context.connection
        by_id = context.version >= _FIRST_VERSION_WITH_TOPIC_IDS
        now_ms = self._clock.now_ms()
        budget = WalkBudget()
        has_id = request.transactional_id is not None
        origin = AppendOrigin.CLIENT if has_id else AppendOrigin.PLAIN_CLIENT
        topics: list[TopicProduceResponse] = []
        undurable: list[Undurable] = []
        failed = False
        for topic in request.topic_data:
            answers: list[PartitionProduceResponse] = []
            topics.append(
                TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=answers
                )
            )
            name = self._name_of(topic) if by_id else topic.name
            # A topic id that does not exist is answered as such.
            if (name or not by_id) and not context.may(_WRITE, _TOPIC, name):
                refusal = TopicAuthorizationFailed(f"writing to {name} is not permitted")
                answers += [_refused(data.index, refusal) for data in topic.partition_data]
                failed = True
                continue
            for data in topic.partition_data:
                partition = self._replicas.find(name, data.index)
                try:
                    if partition is None:
                        raise self._absence(topic, name, data.index, by_id=by_id)
                    if errors and partition.topic_partition in errors:
                        raise errors[partition.topic_partition]
                    if acks == _ALL_ACKS:
                        partition.check_enough_replicas()
                    appended = partition.append(data.records or b"", now_ms, budget, origin)
                except BrokerError as reason:
                    answers.append(_refused(data.index, reason))
                    if partition is not None:
                        partition.remember_refused(data.records or b"", reason, now_ms)
                    failed = True
                    continue
                answer = PartitionProduceResponse(
                    index=data.index,
                    base_offset=appended.base_offset,
                    log_append_time_ms=appended.log_append_time_ms,
                    log_start_offset=appended.log_start_offset,
                )
                answers.append(answer)
                connection.produced += 1
                if connection.produced >= connection.produced_due:
                    self._seen.look(
                        connection,
                        context.header.client_id,
                        partition.topic_partition,
                        data.records or b"",
                        requests=1,
                        messages=appended.last_offset - appended.base_offset + 1,
                        size_bytes=len(data.records or b""),
                        now_ms=now_ms,
                        transactional_id=request.transactional_id,
                    )
                wait = _how_to_wait(acks, partition, appended.last_offset + 1)
                if wait is not None:
                    undurable.append((wait, appended.last_offset + 1, answer))
        if acks == _NO_ACKS:
            if failed:
                # The client waits for no answer; it learns of the failure from the closed connection.
                raise MalformedFrame("a produce request with acks=0 failed")
            return None, []
        return ProduceResponse(responses=topics), undurable

    def answer_run(
        self, run: ProduceRun, throttle_ms: int, connection: ConnectionInfo
    ) -> tuple[int, Answer] | None:
        """Fast path, for requests about one partition each, which most requests are. Answers the first
        ones of the run. Returns their number and their joined answers.

        None if `produce` has to answer the first one: nothing was checked or written.
        """
        _, version, acks, _, topic, index, correlation_ids, records = run
        partition = self._find(version, topic, index)
        if partition is None or acks not in _ANSWERED_ACKS:
            return None
        encode = encoder_of_one(version, topic, index)
        now_ms = self._clock.now_ms()
        offsets: list[int] = []
        append_time_ms = log_start_offset = -1
        last: Appended | BrokerError | None
        try:
            if acks == _ALL_ACKS:
                partition.check_enough_replicas()
            if len(records) == 1:
                last = partition.append(records[0], now_ms)
            else:
                offsets, append_time_ms, log_start_offset, _, last = partition.append_each(
                    records, now_ms
                )
        except BrokerError as refusal:
            for each in records:
                partition.remember_refused(each, refusal, now_ms)
            return len(records), _refuse_run(run, correlation_ids, refusal, throttle_ms)
        if not offsets and type(last) is Appended:
            # One request, which most often comes alone.
            base_offset, last_offset, append_time_ms, log_start_offset, _ = last
            produced = connection.produced = connection.produced + 1
            if produced >= connection.produced_due:
                self._look(run, 1, last_offset - base_offset + 1, partition, connection, now_ms)
            encoded_one = encode(
                correlation_ids[0], base_offset, append_time_ms, log_start_offset, throttle_ms
            )
            if acks == _LEADER_ACKS:
                levels = partition.flush_levels
                wait = None if levels is None else levels.wait_if_due
            else:
                durable = partition.is_durable(last_offset + 1)
                wait = None if durable else partition.call_when_durable
            if wait is None:
                return 1, [encoded_one]
            del correlation_ids[1:]
            return 1, _answer_run_when_durable(
                run, wait, last_offset + 1, [encoded_one], throttle_ms
            )
        encoded = [
            encode(correlation_id, offset, append_time_ms, log_start_offset, throttle_ms)
            for correlation_id, offset in zip(correlation_ids, offsets, strict=False)
        ]
        count = len(offsets)
        next_offset = partition.log_end_offset
        refused: list[Part] = []
        if isinstance(last, BrokerError):
            partition.remember_refused(records[count], last, now_ms)
            refused = _refuse_run(run, correlation_ids[count : count + 1], last, throttle_ms)
            count += 1
        elif last is not None:
            base_offset, _, append_time_ms, log_start_offset, _ = last
            encoded.append(
                encode(
                    correlation_ids[count],
                    base_offset,
                    append_time_ms,
                    log_start_offset,
                    throttle_ms,
                )
            )
            count += 1
        connection.produced += len(encoded)
        if encoded and connection.produced >= connection.produced_due:
            first_offset = offsets[0] if offsets else next_offset
            self._look(run, len(encoded), next_offset - first_offset, partition, connection, now_ms)
        answers = [b"".join(encoded), *refused]
        wait = _how_to_wait(acks, partition, next_offset)
        if wait is None or not encoded:
            return count, answers
        del correlation_ids[len(encoded) :]
        return count, _answer_run_when_durable(run, wait, next_offset, answers, throttle_ms)

    def _look(
        self,
        run: ProduceRun,
        requests: int,
        messages: int,
        partition: Partition,
        connection: ConnectionInfo,
        now_ms: int,
    ) -> None:
        """Note who sent the first requests of a run."""
        self._seen.look(
            connection,
            run.client_id,
            partition.topic_partition,
            run.records[0],
            requests=requests,
            messages=messages,
            size_bytes=sum(map(len, run.records[:requests])),
            now_ms=now_ms,
        )

    def _find(self, version: int, topic: bytes, index: int) -> Partition | None:
        if version < _FIRST_VERSION_WITH_TOPIC_IDS:
            try:
                return self._replicas.find(topic.decode(), index)
            except UnicodeDecodeError:
                return None
        known = self._store.image.topics_by_id.get(uuid.UUID(bytes=topic))
        return self._replicas.find(known.name, index) if known is not None else None

    def _absence(
        self, topic: TopicProduceData, name: str, index: int, *, by_id: bool
    ) -> BrokerError:
        if by_id and not name:
            return UnknownTopicId(f"there is no topic with id {topic.topic_id}")
        return self._replicas.absence(name[:TOPIC_NAME_LENGTH_MAX], index)

    def _name_of(self, topic: TopicProduceData) -> str:
        known = self._store.image.topics_by_id.get(topic.topic_id)
        return known.name if known is not None else ""


def _how_to_wait(acks: int, partition: Partition, next_offset: int) -> Wait | None:
    """What an answer waits for; None if it is given at once."""
    if acks == _ALL_ACKS:
        return None if partition.is_durable(next_offset) else partition.call_when_durable
    levels = partition.flush_levels
    return None if levels is None or acks == _NO_ACKS else levels.wait_if_due


def _call_when_durable(
    undurable: Sequence[Undurable], timeout_ms: int, callback: Callable[[], None]
) -> None:
    """Call back when all of it is durable, or failed: then its response has the error."""
    missing = len(undurable)

    def settle(answer: PartitionProduceResponse, failure: BrokerError | None) -> None:
        nonlocal missing
        if failure is not None:
            _set_error(answer, failure)
        missing -= 1
        if missing == 0:
            callback()

    for wait, next_offset, answer in undurable:
        wait(next_offset, partial(settle, answer), timeout_ms)


def _answer_run_when_durable(
    run: ProduceRun,
    wait: Wait,
    next_offset: int,
    answers: list[Part],
    throttle_ms: int,
) -> asyncio.Future[list[Part] | None]:
    """One future for the whole run: it was written together, and one flush covers it."""
    done: asyncio.Future[list[Part] | None] = asyncio.get_running_loop().create_future()

    def settle(failure: BrokerError | None) -> None:
        if done.done():
            return  # The connection is gone.
        if failure is None:
            done.set_result(answers)
        else:
            done.set_result(
                _refuse_run(run, run.correlation_ids, failure, throttle_ms) + answers[1:]
            )

    wait(next_offset, settle, run.timeout_ms)
    return done


def _refuse_run(
    run: ProduceRun, correlation_ids: Sequence[int], reason: BrokerError, throttle_ms: int
) -> list[Part]:
    """The answers to these requests of a run: refused."""
    response = _refused_one(run.version, run.topic, _refused(run.partition, reason))
    response.throttle_time_ms = throttle_ms
    refusals: list[Part] = []
    for correlation_id in correlation_ids:
        header = RequestHeader(ApiKey.PRODUCE, run.version, correlation_id, None)
        refusals += encode_response(header, response)
    return refusals


def _refused(index: int, reason: BrokerError) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=index)
    _set_error(answer, reason)
    return answer


def _set_error(answer: PartitionProduceResponse, reason: BrokerError) -> None:
    answer.error_code = reason.code
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1
    answer.error_message = str(reason) or None
    if isinstance(reason, InvalidRecord):
        # KIP-467: the client drops these records, and may send the others of the batch again.
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=str(reason))
            for index in reason.record_indexes
        ]


def _refused_one(version: int, topic: bytes, refused: PartitionProduceResponse) -> ProduceResponse:
    answer = TopicProduceResponse(partition_responses=[refused])
    if version < _FIRST_VERSION_WITH_TOPIC_IDS:
        answer.name = topic.decode()
    else:
        answer.topic_id = uuid.UUID(bytes=topic)
    return ProduceResponse(responses=[answer])


def _refuse_all(request: ProduceRequest, reason: BrokerError) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_refused(data.index, reason) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
