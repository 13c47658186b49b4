"""Helpers of the push tests: topics, messages, a bare stream, and waiting for conditions."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import grpc.aio

from zhumq import Admin, Producer
from zhumq.protocol.push import push_pb2 as pb

SECONDS_MAX = 60.0
T = TypeVar("T")
_numbers = itertools.count()


def run(work: Coroutine[Any, Any, T], seconds_max: float = SECONDS_MAX) -> T:
    """Run a test's coroutine with a timeout."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds_max):
            return await work

    return asyncio.run(bounded())


async def until(fact: Callable[[], Any], seconds_max: float = SECONDS_MAX) -> Any:
    """Wait until the condition is true, and return its result. It may be a coroutine function."""
    deadline = asyncio.get_running_loop().time() + seconds_max
    while True:
        found = fact()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        assert asyncio.get_running_loop().time() < deadline, f"timed out: {fact}"
        await asyncio.sleep(0.02)


# librdkafka asks for the id of an idempotent producer half a second after its start: most tests need none.
AT_ONCE = {"enable.idempotence": False}


def new_topic(
    bootstrap: str,
    *,
    partitions: int = 1,
    name: str = "topic",
    settings: dict[str, str] | None = None,
) -> str:
    topic = f"{name}-{next(_numbers)}"
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=partitions, settings=settings)
    return topic


def send(bootstrap: str, topic: str, values: Sequence[bytes], *, partitions: int = 1) -> None:
    """Send messages round-robin over the partitions."""
    with Producer(bootstrap, settings=AT_ONCE) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % partitions)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


class BareStream:
    """A stream of frames without the client library."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._skipped: list[pb.ServerFrame] = []

    async def send(self, **frame: Any) -> None:
        await self._call.write(pb.ClientFrame(**frame))

    async def send_bytes(self, data: bytes) -> None:
        await self._call.write(data)

    async def receive(self) -> pb.ServerFrame | None:
        """The next frame; None at the end."""
        frame = await self._call.read()
        return frame if isinstance(frame, pb.ServerFrame) else None

    async def receive_kind(self, kind: str) -> Any:
        """The next frame of a kind; others are answered (pings) or kept for later."""
        for frame in self._skipped:
            if frame.WhichOneof("frame") == kind:
                self._skipped.remove(frame)
                return getattr(frame, kind)
        while True:
            frame = await self.receive()
            assert frame is not None, f"the stream ended before a frame {kind!r}"
            if frame.HasField("ping"):
                await self.send(pong=pb.Pong(number=frame.ping.number))
            if frame.WhichOneof("frame") == kind:
                return getattr(frame, kind)
            assert not frame.HasField("refused"), frame.refused
            self._skipped.append(frame)


@contextlib.asynccontextmanager
async def bare_stream(
    push: str, subscribe: pb.Subscribe | None = None
) -> AsyncIterator[BareStream]:
    async with grpc.aio.insecure_channel(
        push, options=(("grpc.max_receive_message_length", -1),)
    ) as channel:
        call: Any = channel.stream_stream(
            "/zhumq.push.v1.Push/Stream",
            request_serializer=lambda frame: (
                frame if isinstance(frame, bytes) else frame.SerializeToString()
            ),
            response_deserializer=pb.ServerFrame.FromString,
        )()
        stream = BareStream(call)
        if subscribe is not None:
            await stream.send(subscribe=subscribe)
        try:
            yield stream
        finally:
            call.cancel()


def psb(topic: str, **more: Any) -> pb.Subscribe:
    choices = [pb.TopicChoice(name=topic, partitions=more.pop("partitions", ()))]
    return pb.Subscribe(topics=choices, mode=pb.PSB, **({"credits": 100} | more))


def shared(topic: str, group: str, **more: Any) -> pb.Subscribe:
    choices = [pb.TopicChoice(name=topic)]
    return pb.Subscribe(
        topics=choices, mode=pb.PTP_SHARED, group=group, **({"credits": 100} | more)
    )


def exclusive(topic: str, group: str, **more: Any) -> pb.Subscribe:
    choices = [pb.TopicChoice(name=topic)]
    return pb.Subscribe(
        topics=choices, mode=pb.PTP_EXCLUSIVE, group=group, **({"credits": 100} | more)
    )


def answer(messages: pb.Messages, kind: Any = pb.ACK, **more: Any) -> pb.Answer:
    """An answer for all messages of a frame."""
    return pb.Answer(
        topic=messages.topic,
        partition=messages.partition,
        ranges=messages.ranges,
        kind=kind,
        **more,
    )
