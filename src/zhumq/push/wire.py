"""The connection of a stream: whole frames in and out."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from google.protobuf.message import Message

from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.frames import Refusal

FIRST_FRAME_SECONDS_MAX: Final = 10.0
Frame = TypeVar("Frame", bound=Message)


class Wire(Protocol):
    """The gRPC call of a stream."""

    async def read(self) -> pb.ClientFrame | None:
        """The next frame; None when the client has half-closed. Raises WireBroken."""

    async def write(self, frame: pb.ServerFrame) -> None:
        """Write a frame; waits while the client reads slowly. Raises WireBroken."""

    @property
    def peer(self) -> str: ...


class WireBroken(Exception):
    """The connection is gone."""


async def first_frame(read: Callable[[], Awaitable[Frame | None]], field: str) -> Frame:
    """A client's first frame, which must have this field. Raises Refusal and WireBroken."""
    try:
        async with asyncio.timeout(FIRST_FRAME_SECONDS_MAX):
            first = await read()
    except TimeoutError:
        raise Refusal(pb.INVALID, f"no {field} frame arrived in time") from None
    if first is None:
        raise WireBroken
    if not first.HasField(field):
        raise Refusal(pb.INVALID, f"the first frame of a stream must be {field}")
    return first
