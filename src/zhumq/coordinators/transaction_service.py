"""Answers requests about the transactional ids whose shards this broker leads."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from zhumq.coordinators.group_service import partition_for
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.model.errors import ErrorCode
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

# How long a request waits for the markers of the transaction before it, rather than be sent again.
MARKERS_WAIT_SECONDS_MAX: Final = 0.5

TransactionRuntime = CoordinatorRuntime[TransactionRequest, TransactionResponse]
ProducerRequest = InitProducer | AddPartitions | EndTransaction


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

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state`, computed as in Kafka."""
        return partition_for(transactional_id, self._partition_count())

    async def handle(self, request: ProducerRequest) -> Answer:
        """The answer of the shard. Where a transaction is being ended, waits for a short time: clients
        would send the request again only after a longer one."""
        name = request.transactional_id
        completion = self._completions.get(name)
        if completion is not None:
            await asyncio.wait((completion,), timeout=MARKERS_WAIT_SECONDS_MAX)
        answer = await self._ask(request)
        if answer.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            return answer
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

    def verified_at_once(self, request: AddPartitions) -> bool:
        """Whether the partitions are in the transaction, as far as the shard can tell without waiting."""
        assert request.verify_only
        if request.transactional_id in self._completions:
            return False
        asked = self._runtime.submit(self.partition_for(request.transactional_id), request)
        if not asked.done():
            return False
        answer = asked.result()
        assert isinstance(answer, Answer)
        return answer.code is ErrorCode.NONE and not answer.missing

    @contextmanager
    def completing(self, transactional_id: str) -> Iterator[None]:
        """Inside of it, the markers of a transaction are written: requests of its producer wait."""
        completion = self._completions.setdefault(
            transactional_id, asyncio.get_running_loop().create_future()
        )
        try:
            yield
        finally:
            self._completions.pop(transactional_id, None)
            if not completion.done():
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
        if answer.needs_producer_id:
            assert not isinstance(request, AddPartitions)
            with_id = replace(request, new_producer_id=await self._next_producer_id())
            answer = await self._runtime.submit(index, with_id)
            assert isinstance(answer, Answer)
        return answer


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
