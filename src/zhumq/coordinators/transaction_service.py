"""Answers requests about the transactional ids whose shards this broker leads."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from zhumq.coordinators.group_service import partition_for
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.replication.inter_broker.peers import TaskKeeper
from zhumq.transactions.requests import (
    AddPartitions,
    Answer,
    DescribeTransaction,
    Description,
    EndTransaction,
    InitProducer,
    Listing,
    ListTransactions,
    MarkersWritten,
    PreparedTransactions,
    TransactionRequest,
    TransactionResponse,
)
from zhumq.transactions.shard import TransactionShard

# How long a request waits for the markers of the transaction before it, rather than be sent again.
MARKERS_WAIT_SECONDS_MAX: Final = 0.5

TransactionRuntime = CoordinatorRuntime[TransactionRequest, TransactionResponse]
ProducerRequest = InitProducer | AddPartitions | EndTransaction
OnAnswer = Callable[[Answer], None]


class TransactionService:
    """The way to the shards of this broker."""

    def __init__(
        self,
        runtime: TransactionRuntime,
        *,
        partition_count: Callable[[], int],
        next_producer_id: Callable[[], Awaitable[int]],
    ) -> None:
        self._runtime = runtime
        self._partition_count = partition_count
        self._next_producer_id = next_producer_id
        # Transactional id -> completes when the markers of its transaction are written, or will not be from here.
        self._completions: dict[str, asyncio.Future[None]] = {}
        # Transactional id -> its requests without an answer. Without any, what the shard knows of it is durable.
        self._asked: dict[str, int] = {}
        self._tasks = TaskKeeper()  # of requests that are sent to their shards again

    async def close(self) -> None:
        await self._tasks.close()

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state`, computed as in Kafka."""
        return partition_for(transactional_id, self._partition_count())

    async def handle(self, request: ProducerRequest) -> Answer:
        """The same as `ask`, for callers that wait."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def settle(result: Answer) -> None:
            if not answer.done():  # Done: the caller does not wait any more.
                answer.set_result(result)

        self.ask(request, settle)
        return await answer

    def ask(self, request: ProducerRequest, on_answer: OnAnswer) -> None:
        """Call back with the answer of the shard. Where a transaction is being ended, waits for a short time: clients
        would send the request again only after a longer one. What is called must not fail.

        No task is needed unless the shard has to be asked again.
        """
        name = request.transactional_id
        self._asked[name] = self._asked.get(name, 0) + 1
        completion = self._completions.get(name)
        if completion is None:
            self._ask_first(request, on_answer)
        else:
            _call_when_over(completion, partial(self._ask_first, request, on_answer))

    def _ask_first(self, request: ProducerRequest, on_answer: OnAnswer) -> None:
        self._runtime.call(
            self.partition_for(request.transactional_id),
            request,
            partial(self._on_first_answer, request, on_answer),
        )

    def _on_first_answer(
        self, request: ProducerRequest, on_answer: OnAnswer, answer: TransactionResponse
    ) -> None:
        assert isinstance(answer, Answer)
        if answer.code is not ErrorCode.CONCURRENT_TRANSACTIONS and not answer.needs_producer_id:
            self._note_answered(request.transactional_id)
            on_answer(answer)
            return
        again = self._ask_again(request, on_answer, answer)
        self._tasks.start(asyncio.get_running_loop().create_task(again, name="transaction"))

    async def _ask_again(
        self, request: ProducerRequest, on_answer: OnAnswer, answer: Answer
    ) -> None:
        last = Answer(code=ErrorCode.COORDINATOR_NOT_AVAILABLE)  # if the service is closed
        try:
            if answer.needs_producer_id:
                answer = await self._ask_with_id(request)
            if answer.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                answer = await self._ask_until_complete(request)
            last = answer
        except BrokerError as reason:
            last = Answer(code=reason.code)
        finally:
            self._note_answered(request.transactional_id)
            on_answer(last)

    def _note_answered(self, transactional_id: str) -> None:
        left = self._asked[transactional_id] - 1
        if left:
            self._asked[transactional_id] = left
        else:
            del self._asked[transactional_id]

    async def _ask_until_complete(self, request: ProducerRequest) -> Answer:
        name = request.transactional_id
        # The decision is not handed out yet. Its completion is registered before the shard is asked again: the
        # markers may have been written meanwhile.
        completion = self._completions.setdefault(name, asyncio.get_running_loop().create_future())
        answer = await self._ask(request)
        if answer.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            await asyncio.wait((completion,), timeout=MARKERS_WAIT_SECONDS_MAX)
            answer = await self._ask(request)
        if not completion.done():  # Another broker may write the markers now.
            self._completions.pop(name, None)
        return answer

    def verified_at_once(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
    ) -> bool:
        """Whether the shard is here, and the partitions are in the transaction, as far as it can tell without waiting."""
        if transactional_id in self._completions or transactional_id in self._asked:
            return False
        shard = self._runtime.shard(self.partition_for(transactional_id))
        return isinstance(shard, TransactionShard) and shard.has_partitions(
            transactional_id, producer_id, producer_epoch, partitions
        )

    def begin_markers(self, transactional_id: str) -> None:
        """The markers of a transaction are being written: requests of its producer wait until `end_markers`."""
        if transactional_id not in self._completions:
            completion = asyncio.get_running_loop().create_future()
            self._completions[transactional_id] = completion

    def end_markers(self, transactional_id: str) -> None:
        """They are written, or will not be from here."""
        completion = self._completions.pop(transactional_id, None)
        if completion is not None and not completion.done():
            completion.set_result(None)

    def complete(self, index: int, report: MarkersWritten) -> None:
        """All markers of a transaction are written: its producer may begin the next one.

        The answers to the requests that wait for this are held back until it is durable.
        """
        self._runtime.report(index, report)

    async def describe(self, transactional_id: str) -> Description:
        response = await self._runtime.submit(
            self.partition_for(transactional_id),
            DescribeTransaction(transactional_id=transactional_id),
        )
        assert isinstance(response, Description)
        return response

    async def list(self, request: ListTransactions) -> Iterable[Listing]:
        """One listing for each shard."""
        responses = await asyncio.gather(
            *(self._runtime.submit(index, request) for index in self._runtime.led)
        )
        assert all(isinstance(response, Listing) for response in responses)
        return responses  # type: ignore[return-value]

    async def _ask(self, request: ProducerRequest) -> Answer:
        index = self.partition_for(request.transactional_id)
        answer = await self._runtime.submit(index, request)
        assert isinstance(answer, Answer)
        return await self._ask_with_id(request) if answer.needs_producer_id else answer

    async def _ask_with_id(self, request: ProducerRequest) -> Answer:
        assert not isinstance(request, AddPartitions)
        with_id = replace(request, new_producer_id=await self._next_producer_id())
        index = self.partition_for(request.transactional_id)
        answer = await self._runtime.submit(index, with_id)
        assert isinstance(answer, Answer)
        return answer


def _call_when_over(completion: "asyncio.Future[None]", then: Callable[[], None]) -> None:
    """Call once the markers are written, or the time for that is up."""

    is_over = False

    def on_over(_: object = None) -> None:
        nonlocal is_over
        if is_over:  # Both came in one turn of the loop.
            return
        is_over = True
        timer.cancel()
        completion.remove_done_callback(on_over)
        then()

    timer = asyncio.get_running_loop().call_later(MARKERS_WAIT_SECONDS_MAX, on_over)
    completion.add_done_callback(on_over)


def refusal(request: TransactionRequest, code: ErrorCode) -> TransactionResponse:
    """The answer of a broker that does not lead the shard."""
    match request:
        case DescribeTransaction():
            return Description(code=code)
        case ListTransactions():
            return Listing(code=code)
        case InitProducer() | AddPartitions() | EndTransaction() | MarkersWritten():
            return Answer(code=code)
        case _:
            return PreparedTransactions()
