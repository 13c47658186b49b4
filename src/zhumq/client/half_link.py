"""A producer's stream of half messages to the broker that coordinates its group. Imports grpc."""

import queue
from collections.abc import Iterable, Iterator
from typing import Any, Final

from zhumq.client.errors import PushUnavailable, RequestFailed
from zhumq.client.link import CHANNEL_OPTIONS, Credentials, refusal_of

try:
    import grpc

    from zhumq.protocol.push import push_pb2 as pb
except ImportError as missing:
    raise PushUnavailable(
        "half messages need grpcio and protobuf, and one is not installed: pip install 'zhumq[push]'"
    ) from missing

HALF: Final = "/zhumq.push.v1.Push/Half"
COORDINATOR: Final = "/zhumq.push.v1.Push/HalfCoordinator"
FIND_SECONDS_MAX: Final = 5.0


class LinkBroken(Exception):
    """The connection is gone, or cannot be made now; the message says why."""


def find_coordinator(addresses: Iterable[str], group: str, credentials: Credentials) -> str:
    """The push address of the broker that coordinates the group, as any of these brokers says.

    Raises LinkBroken if none knows it now, and ClientError if asking again would end the same.
    """
    reason = "no address of a push listener is known"
    for address in addresses:
        with _channel(address, credentials) as channel:
            call: Any = channel.unary_unary(
                COORDINATOR,
                request_serializer=pb.HalfCoordinatorRequest.SerializeToString,
                response_deserializer=pb.HalfCoordinatorResponse.FromString,
            )
            try:
                answer = call(pb.HalfCoordinatorRequest(group=group), timeout=FIND_SECONDS_MAX)
            except grpc.RpcError as error:
                reason = _explain(error, address)
                continue
        if answer.code == pb.OK:
            return str(answer.address)
        if answer.code in (pb.NOT_AUTHORIZED, pb.INVALID):
            raise RequestFailed(answer.message)
        reason = answer.message
    raise LinkBroken(reason)


class HalfLink:
    """An open stream. `send` may be called by any thread, `frames` by one."""

    def __init__(self, address: str, credentials: Credentials, register: "pb.HalfRegister") -> None:
        self._address = address
        self._outbox: queue.SimpleQueue[pb.HalfClientFrame | None] = queue.SimpleQueue()
        self._outbox.put(pb.HalfClientFrame(register=register))
        self._channel = _channel(address, credentials)
        stream: Any = self._channel.stream_stream(
            HALF,
            request_serializer=pb.HalfClientFrame.SerializeToString,
            response_deserializer=pb.HalfServerFrame.FromString,
        )
        self._call = stream(iter(self._outbox.get, None))

    def send(self, frame: "pb.HalfClientFrame") -> None:
        self._outbox.put(frame)

    def frames(self) -> Iterator["pb.HalfServerFrame"]:
        """The frames of the broker until it ends the stream. Raises LinkBroken, and SecurityFailed."""
        try:
            yield from self._call
        except grpc.RpcError as error:
            raise LinkBroken(_explain(error, self._address)) from None

    def finish(self) -> None:
        """Half-close: the broker answers what it has got, and ends the stream."""
        self._outbox.put(None)

    def close(self) -> None:
        self._outbox.put(None)
        self._call.cancel()
        self._channel.close()


def _channel(address: str, credentials: Credentials) -> Any:
    if credentials is None:
        return grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.secure_channel(address, credentials, options=CHANNEL_OPTIONS)


def _explain(error: Any, address: str) -> str:
    """Why a call failed. Raises SecurityFailed if it will fail again."""
    details = error.details() or error.code().name
    refusal = refusal_of(error.code(), details, address)
    if refusal is not None:
        raise refusal from None
    return f"{address}: {details}"
