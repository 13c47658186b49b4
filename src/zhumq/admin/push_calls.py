"""Blocking calls to the push listeners: sessions and groups. Imports grpc."""

from typing import Any, Final

from confluent_kafka import KafkaException

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AdminError, NotFound, Refused, Unavailable, error_of
from zhumq.client.errors import PushUnavailable, RequestFailed
from zhumq.client.routes import find_push_addresses, parse_addresses

try:
    import grpc

    from zhumq.client.link import refusal_of
    from zhumq.client.push_credentials import channel_credentials
    from zhumq.client.subscribe_frame import MODE_NAMES
    from zhumq.protocol.push import push_pb2 as pb
except ImportError as missing:
    raise PushUnavailable(
        "this needs grpcio and protobuf, and one is not installed: pip install 'zhumq[push]'"
    ) from missing

CALL_SECONDS_MAX: Final = 10.0
_NOT_FOUND: Final = frozenset({pb.INVALID, pb.UNKNOWN_HALF_MESSAGE})


def mode_name(code: Any) -> str | None:
    """The name of a subscription's mode."""
    return MODE_NAMES.get(code)


def call_one(connection: ClusterConnection, method: str, **fields: Any) -> Any:
    """The answer of one broker to the method's request with these fields."""
    credentials = channel_credentials(connection.security)
    try:
        return _call(_addresses(connection)[0], credentials, method, fields)
    except Unavailable:
        connection.forget_push_addresses()
        raise


def call_all(connection: ClusterConnection, method: str, **fields: Any) -> list[Any]:
    """The answers of all brokers that carry out the request. Raises AdminError if none does."""
    answers = []
    failure: AdminError | None = None
    credentials = channel_credentials(connection.security)
    for address in _addresses(connection):
        try:
            answers.append(_call(address, credentials, method, fields))
        except AdminError as error:
            if isinstance(error, Unavailable):
                connection.forget_push_addresses()
            # Where the others do not have it, the one that refuses says why.
            if failure is None or isinstance(failure, NotFound):
                failure = error
    if failure is not None and not answers:
        raise failure
    return answers


def _addresses(connection: ClusterConnection) -> list[str]:
    """The push addresses: those given, else those that the brokers advertise."""
    if connection.push is not None:
        return parse_addresses(connection.push)
    try:
        return connection.push_addresses(
            lambda: list(find_push_addresses(connection.bootstrap, connection.security).values())
        )
    except RequestFailed as error:
        if isinstance(error.__cause__, KafkaException):
            doing = f"ask {connection.bootstrap} for push listeners"
            raise error_of(doing, error.__cause__.args[0]) from error
        raise


def _call(address: str, credentials: Any, method: str, fields: dict[str, Any]) -> Any:
    with (
        grpc.insecure_channel(address)
        if credentials is None
        else grpc.secure_channel(address, credentials)
    ) as channel:
        call: grpc.UnaryUnaryMultiCallable[Any, Any] = channel.unary_unary(
            f"/zhumq.push.v1.Push/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(pb, f"{method}Response").FromString,
        )
        try:
            answer = call(getattr(pb, f"{method}Request")(**fields), timeout=CALL_SECONDS_MAX)
        except grpc.RpcError as error:
            # The raised error is also a grpc.Call, which has details(); its static type lacks that.
            known: Any = error
            refusal = refusal_of(known.code(), known.details() or "", address)
            if refusal is not None:
                raise refusal from None
            raise Unavailable(
                f"the push endpoint at {address} did not answer: {known.details()}"
            ) from error
    code = getattr(answer, "code", pb.OK)
    if code != pb.OK:
        kind = NotFound if code in _NOT_FOUND else Refused
        raise (Unavailable if code == pb.UNAVAILABLE else kind)(
            answer.message, code=pb.Code.Name(code)
        )
    return answer
