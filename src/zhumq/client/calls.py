"""The push door's single calls, made from ordinary blocking code: claims, sessions, leaders. Knows grpc."""

from typing import Any, Final

from zhumq.client.errors import PushUnavailable, RequestFailed, SubscriptionRefused
from zhumq.client.routes import find_push_addresses, parse_addresses

try:
    import grpc

    from zhumq.protocol.push import push_pb2 as pb
except ImportError as missing:
    raise PushUnavailable(
        f"this needs grpcio and protobuf ({missing.name} is missing): pip install 'zhumq[push]'"
    ) from missing

CALL_SECONDS_MAX: Final = 10.0
MODES: Final = {"ptp": pb.PTP_EXCLUSIVE, "ptp-shared": pb.PTP_SHARED, "psb": pb.PSB}
MODE_NAMES: Final = {code: name for name, code in MODES.items()}


def push_addresses(bootstrap: str, push: str | None) -> list[str]:
    """The push doors: those given, else those that the brokers tell of."""
    if push is not None:
        return parse_addresses(push)
    return list(find_push_addresses(bootstrap).values())


def call(address: str, method: str, request: Any, response: Any) -> Any:
    """One call to one broker. Raises RequestFailed."""
    with grpc.insecure_channel(address) as channel:
        ask: grpc.UnaryUnaryMultiCallable[Any, Any] = channel.unary_unary(
            f"/zhumq.push.v1.Push/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        try:
            return ask(request, timeout=CALL_SECONDS_MAX)
        except grpc.RpcError as error:
            # What is raised is a call as well, which knows the details; the types do not say so.
            known: Any = error
            raise RequestFailed(
                f"the push door at {address} did not answer: {known.details()}"
            ) from error


def call_all(addresses: list[str], method: str, request: Any, response: Any) -> list[Any]:
    """The answers of all brokers that answer; one that is down has nothing to say. Raises
    RequestFailed if none does."""
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


def claim(
    topics: list[str], group: str, mode: str, *, bootstrap: str, push: str | None = None
) -> None:
    """Ask whether the group may read the topics so. Raises SubscriptionRefused."""
    request = pb.ClaimRequest(topics=topics, group=group, mode=MODES[mode])
    answer = call(push_addresses(bootstrap, push)[0], "Claim", request, pb.ClaimResponse)
    if answer.code != pb.OK:
        raise SubscriptionRefused(pb.Code.Name(answer.code), answer.message)
