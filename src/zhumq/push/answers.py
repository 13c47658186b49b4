"""A consumer's answers for share partitions: checked at once, made durable in batches."""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from zhumq.model.errors import BrokerError
from zhumq.model.ids import TopicPartition
from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.frames import ACK_KINDS, code_of
from zhumq.push.in_flight_deliveries import InFlightDeliveries, NotHeld
from zhumq.push.stream_partitions import StreamPartition, StreamPartitions
from zhumq.share.acknowledgement import AckKind, Acknowledgement

WAITING_MAX: Final = (
    4_096  # answers not yet durable; above it the broker stops reading from the client
)
RANGES_MAX: Final = 10_000  # in one answer
REASON_CHARACTERS_MAX: Final = 1_000
DELAY_MS_MAX: Final = 12 * 3_600_000


class _Waiting(NamedTuple):
    id: int
    stream_partition: StreamPartition
    acknowledgements: list[Acknowledgement]
    takes_back: bool


class Answers:
    """The answers of one stream, in the order of arrival."""

    def __init__(
        self,
        member: str,
        stream_partitions: StreamPartitions,
        in_flight_deliveries: InFlightDeliveries,
        send: Callable[[pb.ServerFrame], None],
        *,
        in_order: bool,
        lock_ms: int,
    ) -> None:
        self.member = member
        self._stream_partitions = stream_partitions
        self._in_flight_deliveries = in_flight_deliveries
        self._send = send
        self._in_order = in_order
        self._lock_ms = lock_ms
        self._waiting: asyncio.Queue[_Waiting] = asyncio.Queue(WAITING_MAX)

    async def take(self, answer: pb.Answer, deadline_ms: int) -> None:
        """Check an answer against the in-flight deliveries and queue it. An invalid one changes nothing."""
        place = TopicPartition(answer.topic, answer.partition)
        kind = ACK_KINDS.get(answer.kind)
        stream_partition = self._stream_partitions.find(place)
        if kind is None or not answer.ranges or len(answer.ranges) > RANGES_MAX:
            self._reply(answer.id, pb.INVALID, "an answer has a kind and ranges, not too many")
            return
        if answer.HasField("delay_ms") and not (
            answer.kind == pb.NACK and 0 <= answer.delay_ms <= DELAY_MS_MAX
        ):
            self._reply(
                answer.id, pb.INVALID, f"delay_ms goes with a nack, and is 0 to {DELAY_MS_MAX}"
            )
            return
        if stream_partition is None:
            self._reply(
                answer.id, pb.NOT_DELIVERED, f"{place} is not delivered on this stream (any more)"
            )
            return
        in_flight_deliveries = self._in_flight_deliveries
        try:
            for each in answer.ranges:
                in_flight_deliveries.check(place, each.first_offset, each.last_offset)
        except NotHeld as wrong:
            self._reply(answer.id, pb.NOT_DELIVERED, str(wrong))
            return
        reason = answer.reason[:REASON_CHARACTERS_MAX]
        delay_ms = answer.delay_ms if answer.HasField("delay_ms") else None
        acknowledgements = []
        for each in answer.ranges:
            first, last = each.first_offset, each.last_offset
            acknowledgements.append(
                Acknowledgement(
                    first_offset=first,
                    last_offset=last,
                    kind=kind,
                    reason=reason,
                    # A release means the consumer never processed the message: no failed delivery.
                    counts=answer.kind != pb.RELEASE,
                    delay_ms=delay_ms,
                    lock_ms=self._lock_ms,
                )
            )
            if kind is AckKind.RENEW:
                in_flight_deliveries.extend_deadline(place, first, last, deadline_ms)
            else:
                in_flight_deliveries.remove(place, first, last)
        takes_back = kind is AckKind.RELEASE and self._in_order
        if takes_back:
            # Ordered mode: everything after the released offset is redelivered too, before new messages.
            in_flight_deliveries.drop_from(place, answer.ranges[0].first_offset)
            self._stream_partitions.discard_unsent(stream_partition)
            stream_partition.blocked += 1
        await self._waiting.put(_Waiting(answer.id, stream_partition, acknowledgements, takes_back))

    async def run(self) -> None:
        """Apply queued answers in batches, until cancelled."""
        while True:
            first = await self._waiting.get()
            batch = [first]
            while (
                not self._waiting.empty() and not batch[-1].takes_back and len(batch) < WAITING_MAX
            ):
                batch.append(self._waiting.get_nowait())
            by_partition: dict[StreamPartition, list[_Waiting]] = {}
            for each in batch:
                by_partition.setdefault(each.stream_partition, []).append(each)
            await asyncio.gather(
                *(
                    self._apply(stream_partition, waiting)
                    for stream_partition, waiting in by_partition.items()
                )
            )
            for _ in batch:
                self._waiting.task_done()

    async def settled(self) -> None:
        """Wait until every queued answer has been applied."""
        await self._waiting.join()

    async def _apply(self, stream_partition: StreamPartition, waiting: list[_Waiting]) -> None:
        results: list[BrokerError | None]
        together = [each for answer in waiting for each in answer.acknowledgements]
        try:
            results = await stream_partition.delivery.acknowledge(self.member, together)
        except BrokerError as error:
            results = [error] * len(together)
        position = 0
        for answer in waiting:
            end = position + len(answer.acknowledgements)
            wrong = next((each for each in results[position:end] if each is not None), None)
            position = end
            if wrong is not None:
                self._reply(answer.id, _code_of(wrong), str(wrong))
            elif answer.id:
                self._reply(answer.id, pb.OK, "")
            if answer.takes_back:
                stream_partition.round += 1
                stream_partition.blocked -= 1
                self._stream_partitions.wake()

    def _reply(self, answer_id: int, code: pb.Code, message: str) -> None:
        answered = pb.Answered(id=answer_id, code=code, message=message)
        self._send(pb.ServerFrame(answered=answered))


def _code_of(error: BrokerError) -> pb.Code:
    code = code_of(error)
    # The share partition has released what it does not know as acquired, and delivers it again.
    return pb.NOT_DELIVERED if code in (pb.INTERNAL, pb.INVALID) else code
