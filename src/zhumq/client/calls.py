"""Blocking calls to the push endpoint: sessions, leaders, groups. Imports grpc."""

from typing import Any, Final

from zhumq.client.errors import PushUnavailable, RequestFailed
from zhumq.client.routes import find_push_addresses, parse_addresses

try:
    import google.protobuf  # noqa: F401 (the frames of every call need it)
    import grpc
except ImportError as missing:
    raise PushUnavailable(
        "this needs grpcio and protobuf, and one is not installed: pip install 'zhumq[push]'"
    ) from missing

CALL_SECONDS_MAX: Final = 10.0


def push_addresses(bootstrap: str, push: str | None) -> list[str]:
    """The push addresses: those given, else those that the brokers advertise."""
    if push is not None:
        return parse_addresses(push)
    return list(find_push_addresses(bootstrap).values())


def call(address: str, method: str, request: Any, response: Any) -> Any:
    """One call to one broker. Raises RequestFailed."""
    with grpc.insecure_channel(address) as channel:
        method_call: grpc.UnaryUnaryMultiCallable[Any, Any] = channel.unary_unary(
            f"/zhumq.push.v1.Push/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        try:
            return method_call(request, timeout=CALL_SECONDS_MAX)
        except grpc.RpcError as error:
            # The raised error is also a grpc.Call, which has details(); its static type lacks that.
            known: Any = error
            raise RequestFailed(
                f"the push endpoint at {address} did not answer: {known.details()}"
            ) from error


def call_all(addresses: list[str], method: str, request: Any, response: Any) -> list[Any]:
    """The answers of all brokers that answer. Raises RequestFailed if none does."""
    answers = []
    failure: RequestFailed | None = None
    for address in addresses:
        try:
            answers.append(call(address, method, request, response))
        except RequestFailed as error:
            failure = error
    if failure is not None and not answers:
        raise failure
    return answers
