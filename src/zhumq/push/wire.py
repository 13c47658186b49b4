"""The connection of a stream: whole frames in and out."""

from typing import Protocol

from zhumq.protocol.push import push_pb2 as pb


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
