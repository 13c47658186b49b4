"""What a stream needs of its connection: whole frames in and out."""

from typing import Protocol

from zhumq.protocol.push import push_pb2 as pb


class Wire(Protocol):
    """The call this stream is: whole frames in and out."""

    async def read(self) -> pb.ClientFrame | None:
        """The next frame; None when the client has half-closed. Raises WireBroken."""

    async def write(self, frame: pb.ServerFrame) -> None:
        """Done when the frame has left for the client, who may be slow. Raises WireBroken."""

    @property
    def peer(self) -> str: ...


class WireBroken(Exception):
    """The connection is gone."""
