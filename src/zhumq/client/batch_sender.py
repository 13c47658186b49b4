"""Sends the batches of a transaction to the leaders of their partitions, several requests at a time."""

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from zhumq.client.batch_queue import IN_FLIGHT_MAX, Batch, BatchQueue
from zhumq.client.brokers import (
    BACKOFF_SECONDS_MAX,
    BACKOFF_SECONDS_MIN,
    BUSY_SECONDS_MIN,
    Brokers,
    name_of_error,
)
from zhumq.client.errors import ClusterFailed
from zhumq.client.transaction_core import TransactionRefused, Verdict, verdict_of
from zhumq.client.wire import Connection
from zhumq.model.address import Address
from zhumq.model.errors import ErrorCode, MalformedFrame
from zhumq.model.ids import TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

ACKS_ALL: Final = -1
PRODUCE_MS_MAX: Final = 20_000
# KIP-890: up to version 11 a partition has to be added first; from version 12 on producing adds it.
VERSION_WITHOUT_ADDING: Final = 12

_Request = dict[TopicPartition, Batch]


@dataclass(slots=True)
class _Pipe:
    """A connection for batches, with the requests that are not answered yet."""

    connection: Connection
    version: int
    requests: deque[_Request] = field(default_factory=deque)


class BatchSender:
    """Keeps requests under way while the program makes the next batches. For one thread."""

    def __init__(
        self,
        brokers: Brokers,
        *,
        transactional_id: str,
        seconds_max: float,
        before_sending: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        """`before_sending` is called with the partitions of each request. `seconds_max`: without any progress."""
        self._brokers = brokers
        self._transactional_id = transactional_id
        self._seconds_max = seconds_max
        self._before_sending = before_sending
        self._queue = BatchQueue()
        self._pipes: dict[Address, _Pipe] = {}
        self._version_max = VERSION_WITHOUT_ADDING
        self._backoff = 0.0
        self._deadline = 0.0

    def set_transaction_version(self, version: int) -> None:
        self._version_max = VERSION_WITHOUT_ADDING - (version < 2)
        for address in list(self._pipes):
            self._close(address)

    def add(self, batches: Iterable[Batch]) -> None:
        """Send batches; waits only while too many requests are not answered."""
        for batch in batches:
            self._queue.add(batch)
        with self._attempt():
            while self._queue.has_waiting:
                self._send_some()

    def flush(self) -> None:
        """Wait until the leaders have acknowledged every batch."""
        with self._attempt():
            while not self._queue.is_empty:
                if self._queue.has_waiting:
                    self._send_some()
                else:
                    self._receive_any()

    def give_up(self) -> bool:
        """Give all batches up. True: some were not acknowledged, and may have reached a broker.

        Waits for the answers of those that were sent: none may reach a broker after the transaction's end.
        """
        was_busy = not self._queue.is_empty
        self._queue.clear()
        for address, pipe in list(self._pipes.items()):
            try:
                while pipe.requests:
                    pipe.connection.receive(ApiKey.PRODUCE, pipe.version)
                    pipe.requests.popleft()
            except (OSError, MalformedFrame):
                self._close(address)
        return was_busy

    def close(self) -> None:
        for address in list(self._pipes):
            self._close(address)

    @contextmanager
    def _attempt(self) -> Iterator[None]:
        self._start_clock()
        try:
            yield
        except Exception:
            raise
        except BaseException:
            self.close()  # A frame may be cut off.
            raise

    # Sending

    def _send_some(self) -> None:
        """Send one request to each leader that has batches waiting; receive if there is none."""
        leaders = {place: self._leader(place) for place in self._queue.sendable()}
        has_sent = False
        for address in set(leaders.values()):
            pipe = self._pipe(address)
            if pipe is None:
                return
            if len(pipe.requests) >= IN_FLIGHT_MAX:
                self._receive(address, pipe)
                return
            led = frozenset(place for place, leader in leaders.items() if leader == address)
            request = self._queue.take(address, led)
            if request:
                has_sent = True
                self._send(address, pipe, request)
        if not has_sent:
            self._receive_any()

    def _leader(self, place: TopicPartition) -> Address:
        return self._brokers.retrying(
            lambda: self._brokers.leader_address(place), f"find the leader of {place}"
        )

    def _pipe(self, address: Address) -> _Pipe | None:
        pipe = self._pipes.get(address)
        if pipe is None:
            try:
                connection = self._brokers.connect(address)
            except (OSError, MalformedFrame) as error:
                self._wait_after(error, is_leader_stale=True)
                return None
            version = min(connection.version_of(ApiKey.PRODUCE), self._version_max)
            pipe = self._pipes[address] = _Pipe(connection, version)
        return pipe

    def _send(self, address: Address, pipe: _Pipe, request: _Request) -> None:
        self._before_sending(request)
        pipe.requests.append(request)
        topics: dict[str, list[PartitionProduceData]] = {}
        for place, batch in request.items():
            data = PartitionProduceData(index=place.partition, records=batch.data)
            topics.setdefault(place.topic, []).append(data)
        message = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=ACKS_ALL,
            timeout_ms=PRODUCE_MS_MAX,
            topic_data=[
                TopicProduceData(name=name, partition_data=partitions)
                for name, partitions in topics.items()
            ],
        )
        try:
            pipe.connection.send(ApiKey.PRODUCE, message, pipe.version)
        except OSError as error:
            self._lost(address, pipe, error)

    # Receiving

    def _receive_any(self) -> None:
        for address, pipe in list(self._pipes.items()):
            if pipe.requests:
                self._receive(address, pipe)
                return

    def _receive(self, address: Address, pipe: _Pipe) -> None:
        """Take the answer to the oldest request of a connection."""
        try:
            response = pipe.connection.receive(ApiKey.PRODUCE, pipe.version)
        except (OSError, MalformedFrame) as error:
            self._lost(address, pipe, error)
            return
        request = pipe.requests.popleft()
        retries: list[Batch] = []
        codes: set[int] = set()
        refusal: TransactionRefused | None = None
        for topic in response.responses:
            for answer in topic.partition_responses:
                batch = request.pop(TopicPartition(topic.name, answer.index), None)
                if batch is None:
                    continue
                verdict = self._verdict(batch.place, answer.error_code)
                if verdict is Verdict.DONE:
                    self._queue.done(batch)
                    continue
                retries.append(batch)
                codes.add(answer.error_code)
                if verdict is not Verdict.RETRY:
                    reason = answer.error_message or name_of_error(answer.error_code)
                    words = f"{batch.place} refuses a batch: {reason}"
                    refusal = TransactionRefused(answer.error_code, words)
        retries += request.values()  # A broker that leaves a partition out has not answered for it.
        self._queue.give_back(retries)
        if refusal is not None:
            raise refusal
        if retries:
            reason = ClusterFailed(", ".join(sorted(name_of_error(each) for each in codes)))
            is_stale = codes != {ErrorCode.CONCURRENT_TRANSACTIONS}
            self._wait_after(reason, is_leader_stale=is_stale)
        else:
            self._start_clock()
            self._backoff = 0.0

    def _verdict(self, place: TopicPartition, code: int) -> Verdict:
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._queue.is_behind_failure(place):
            return Verdict.RETRY
        return verdict_of(code)

    def _lost(self, address: Address, pipe: _Pipe, error: Exception) -> None:
        """The connection is lost: what was in flight is sent again, with the same sequences."""
        self._close(address)
        for request in pipe.requests:
            self._queue.give_back(request.values())
        self._wait_after(error, is_leader_stale=True)

    def _wait_after(self, error: Exception, *, is_leader_stale: bool) -> None:
        if is_leader_stale:
            self._brokers.forget()
        shortest = BACKOFF_SECONDS_MIN if is_leader_stale else BUSY_SECONDS_MIN
        self._backoff = min(max(2 * self._backoff, shortest), BACKOFF_SECONDS_MAX)
        if time.monotonic() + self._backoff > self._deadline:
            raise ClusterFailed(
                f"no batch was acknowledged for {self._seconds_max:g} s: {error or type(error).__name__}"
            ) from error
        time.sleep(self._backoff * random.uniform(0.5, 1.0))  # noqa: S311 - not for secrets

    def _start_clock(self) -> None:
        self._deadline = time.monotonic() + self._seconds_max

    def _close(self, address: Address) -> None:
        self._pipes.pop(address).connection.close()
