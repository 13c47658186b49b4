"""One stream to one broker: receives frames, batches answers, answers pings. Imports grpc."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, Protocol

from zhumq.client.decode import decode
from zhumq.client.errors import AuthenticationFailed, PushUnavailable, SecurityFailed
from zhumq.client.message import Answer, AnswerKind, Cursor, MessageBatch, Range

try:
    import grpc
    import grpc.aio

    from zhumq.protocol.push import push_pb2 as pb
except ImportError as missing:
    raise PushUnavailable(
        "push needs grpcio and protobuf, and one is not installed: pip install 'zhumq[push]'"
    ) from missing

STREAM: Final = "/zhumq.push.v1.Push/Stream"
ANSWER_LINGER_SECONDS: Final = 0.002  # answers within this time share a frame
ANSWER_RANGES_MAX: Final = 5_000  # in one frame
CLOSE_SECONDS_MAX: Final = 5.0
CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),  # a record batch is as large as its topic allows
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    (
        "grpc.use_local_subchannel_pool",
        1,
    ),  # a fresh connection, not one from before a broker restart
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)

# What gRPC's core says of a handshake that will fail again.
_HANDSHAKE_FAILURES: Final = {
    "CERTIFICATE_VERIFY_FAILED": "the certificate is not trusted: set ssl.truststore.location to the"
    " CA of the cluster",
    "Hostname Verification Check failed": "the certificate is for another host: connect to a name of"
    " the certificate",
    "WRONG_VERSION_NUMBER": "the push listener does not speak TLS",
}

EVERYTHING: Final = (2**31, -1)

Credentials = Any  # grpc.ChannelCredentials; None: plain text


def open_channel(address: str, credentials: Credentials) -> "grpc.aio.Channel":
    """A channel to a push endpoint."""
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS)


def refusal_of(code: Any, details: str, address: str) -> SecurityFailed | None:
    """The error of a call that the push listener refuses for its credentials; None for another one."""
    if code == grpc.StatusCode.UNAUTHENTICATED:
        return AuthenticationFailed(f"the push listener at {address} refused the client: {details}")
    reason = next((words for mark, words in _HANDSHAKE_FAILURES.items() if mark in details), None)
    return SecurityFailed(f"no TLS with {address}: {reason}") if reason is not None else None


class LinkListener(Protocol):
    """Receives what arrives on a link."""

    def on_batch(self, link: "Link", batch: MessageBatch) -> None: ...

    def on_frame(self, link: "Link", frame: "pb.ServerFrame") -> None:
        """Any frame except messages, pings and the results of answers."""

    def on_answer_refused(self, message: str) -> None: ...

    def on_answers_lost(self, messages: int) -> None:
        """Answers for this many messages did not reach the broker: it delivers the messages again."""


class Place:
    """A partition on a link: the origin of its messages."""

    __slots__ = (
        "_link",
        "cursor",
        "partition",
        "records",
        "revoked_round",
        "round",
        "stale",
        "topic",
    )

    def __init__(self, link: "Link", topic: str, partition: int) -> None:
        self._link = link
        self.topic = topic
        self.partition = partition
        self.records = b""  # the last ones received, for frames that refer to them
        self.cursor: Cursor | None = None
        # Messages of this round or before, from this offset on, were released by the broker.
        self.stale = (-1, 0)
        # Rounds up to this one were revoked. Messages being processed can still be answered.
        self.revoked_round = -1
        self.round = 0  # of the last messages received

    def is_stale(self, round_: int, offset: int) -> bool:
        return round_ <= self.revoked_round or self._is_released(round_, offset)

    def _is_released(self, round_: int, offset: int) -> bool:
        return round_ <= self.stale[0] and offset >= self.stale[1]

    def answer(self, first_offset: int, last_offset: int, answer: Answer, round_: int) -> None:
        if self._is_released(round_, first_offset):
            # The broker has released this delivery and delivers the message again.
            self._link.listener.on_answers_lost(last_offset - first_offset + 1)
            return
        self._link.answer(self, first_offset, last_offset, answer, round_)


class Link:
    """A subscribed stream. `run` returns when it ends."""

    def __init__(
        self,
        address: str,
        subscribe: "pb.Subscribe",
        listener: LinkListener,
        credentials: Credentials,
    ) -> None:
        self.address = address
        self.subscribe = subscribe
        self.in_order = subscribe.mode != pb.PTP_SHARED
        self.listener = listener
        self._credentials = credentials
        self._places: dict[tuple[str, int], Place] = {}
        self._ignored: frozenset[tuple[str, int]] = frozenset()
        self._outbox: asyncio.Queue[pb.ClientFrame | None] = asyncio.Queue()
        # Answers that linger for adjacent ones: ranges by partition and answer.
        self._answers: dict[tuple[Place, Answer], list[list[int]]] = {}
        self._linger: asyncio.TimerHandle | None = None
        self._next_id = 1
        self._unconfirmed: dict[int, int] = {}  # answer id -> messages
        self._settled = asyncio.Event()
        self._settled.set()
        self.is_open = False
        self.was_open = False
        self.broker_id = -1
        self.failure = ""  # why the connection ended, if known
        self.refusal: SecurityFailed | None = None  # connecting again would end the same

    async def run(self) -> "pb.Refused | None":
        """Serve until the broker refuses (returned) or the connection ends (None)."""
        channel = open_channel(self.address, self._credentials)
        try:
            call = channel.stream_stream(
                STREAM,
                request_serializer=pb.ClientFrame.SerializeToString,
                response_deserializer=pb.ServerFrame.FromString,
            )(self._requests())
            async for frame in call:
                if frame.HasField("refused"):
                    refused: pb.Refused = frame.refused
                    return refused
                self._handle(frame)
        except grpc.aio.AioRpcError as error:
            # The broker is down or stopping: the consumer connects again.
            self.failure = error.details() or error.code().name
            self.refusal = refusal_of(error.code(), self.failure, self.address)
        except asyncio.InvalidStateError:
            self.failure = "the connection ended"
        finally:
            self.is_open = False
            self._outbox.put_nowait(None)
            self._lose_answers()
            for place in self._places.values():
                place.stale = (
                    EVERYTHING  # Its messages can no longer be answered: they are delivered again.
                )
            await channel.close(None)
        return None

    def ignore(self, places: Iterable[tuple[str, int]]) -> None:
        """Drop frames of revoked partitions. The broker sent them before it processed the revocation. Earlier
        messages of the partitions are dropped too, so later ones would be out of order."""
        self._ignored |= frozenset(places)
        for key in self._ignored & self._places.keys():
            self._places[key].revoked_round = self._places[key].round

    def clear_ignored(self) -> None:
        """Take frames of all partitions again, after a new assignment."""
        self._ignored = frozenset()

    def send(self, frame: "pb.ClientFrame") -> None:
        self._outbox.put_nowait(frame)

    def finish(self) -> None:
        """Send the remaining answers, and half-close."""
        self._flush()
        self._outbox.put_nowait(None)

    async def settled(self) -> None:
        """Wait until every answer so far is durable, or lost with the connection."""
        self._flush()
        await self._settled.wait()

    def place(self, topic: str, partition: int) -> Place:
        key = (topic, partition)
        if key not in self._places:
            self._places[key] = Place(self, topic, partition)
        return self._places[key]

    def answer(
        self,
        place: Place,
        first_offset: int,
        last_offset: int,
        answer: Answer,
        round_: int,
    ) -> None:
        """Queue an answer. Adjacent answers within the linger time share a frame."""
        kind = answer.kind
        if kind in (AnswerKind.NACK, AnswerKind.RELEASE) and self.in_order:
            self._flush()  # Earlier answers must arrive first.
            place.stale = (round_, first_offset)
        ranges = self._answers.setdefault((place, answer), [])
        if ranges and ranges[-1][1] + 1 == first_offset:
            ranges[-1][1] = last_offset
        else:
            ranges.append([first_offset, last_offset])
        self._settled.clear()
        at_once = self.in_order and kind not in (AnswerKind.ACK, AnswerKind.EXTEND)
        if len(ranges) >= ANSWER_RANGES_MAX or at_once:
            self._flush()
        elif self._linger is None:
            loop = asyncio.get_running_loop()
            self._linger = loop.call_later(ANSWER_LINGER_SECONDS, self._flush)

    def _flush(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        answers, self._answers = self._answers, {}
        for (place, given), ranges in answers.items():
            answer_id = self._next_id
            self._next_id += 1
            self._unconfirmed[answer_id] = sum(last - first + 1 for first, last in ranges)
            answer = pb.Answer(
                id=answer_id,
                topic=place.topic,
                partition=place.partition,
                ranges=[
                    pb.Range(first_offset=first, last_offset=last) for first, last in sorted(ranges)
                ],
                kind=pb.AnswerKind.Name(given.kind),
                reason=given.reason,
                delay_ms=given.delay_ms,
            )
            self.send(pb.ClientFrame(answer=answer))

    async def _requests(self) -> AsyncIterator["pb.ClientFrame"]:
        yield pb.ClientFrame(subscribe=self.subscribe)
        while (frame := await self._outbox.get()) is not None:
            yield frame

    def _handle(self, frame: "pb.ServerFrame") -> None:
        match frame.WhichOneof("frame"):
            case "messages":
                self._on_messages(frame.messages)
            case "ping":
                self.send(pb.ClientFrame(pong=pb.Pong(number=frame.ping.number)))
            case "answered":
                self._on_answered(frame.answered)
            case "subscribed":
                self.is_open = self.was_open = True
                self.broker_id = frame.subscribed.broker_id
                self.listener.on_frame(self, frame)
            case _:
                self.listener.on_frame(self, frame)

    def _on_messages(self, messages: "pb.Messages") -> None:
        place = self.place(messages.topic, messages.partition)
        if messages.records:
            place.records = messages.records
        if (messages.topic, messages.partition) in self._ignored:
            return
        ranges = [
            Range(each.first_offset, each.last_offset, each.delivery_count)
            for each in messages.ranges
        ]
        if messages.round > place.stale[0] + 1:
            # The broker has released the messages from here on and delivers them again.
            place.stale = (messages.round - 1, ranges[0].first_offset)
        place.round = messages.round
        batch = MessageBatch(place, messages.round, ranges, place.records, decode)
        self.listener.on_batch(self, batch)

    def _on_answered(self, answered: "pb.Answered") -> None:
        messages = self._unconfirmed.pop(answered.id, 0)
        if answered.code != pb.OK:
            self.listener.on_answer_refused(answered.message)
            self.listener.on_answers_lost(messages)
        if not self._unconfirmed and not self._answers:
            self._settled.set()

    def _lose_answers(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        lost = sum(self._unconfirmed.values())
        for ranges in self._answers.values():
            lost += sum(last - first + 1 for first, last in ranges)
        self.listener.on_answers_lost(lost)
        self._answers.clear()
        self._unconfirmed.clear()
        self._settled.set()


async def close_link(link: Link, task: "asyncio.Task[Any]") -> None:
    """Settle the answers, half-close, and wait for the broker to end the call."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await link.settled()
            link.finish()
            await asyncio.wait({task})
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
