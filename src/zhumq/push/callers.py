"""Who calls the push listener, and what the caller may do."""

from collections.abc import Awaitable, Callable
from typing import Protocol
from urllib.parse import unquote

from zhumq.model.ids import Principal
from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.frames import Refusal
from zhumq.security.acl import Operation, ResourceType
from zhumq.security.login import Login


class Caller(Protocol):
    """The sender of one call."""

    def may(self, operation: Operation, type_: ResourceType, name: str) -> bool:
        """Whether the caller may do this with the resource of this name. The decision is reported."""

    def sees(self, operation: Operation, type_: ResourceType, name: str) -> bool:
        """The same for a list, which leaves out what the caller did not ask for. Nothing is reported."""


# From the `authorization` metadata of a call, or an empty text, and the host of the client. Raises NotAuthenticated.
Authenticate = Callable[[str, str], Awaitable[Login]]
# From the principal, the host of the client and the name of the method.
CallerOf = Callable[[Principal, str, str], Caller]


class AnyCaller:
    """Without an authorizer every caller may do everything."""

    def may(self, operation: Operation, type_: ResourceType, name: str) -> bool:  # noqa: ARG002
        return True

    def sees(self, operation: Operation, type_: ResourceType, name: str) -> bool:  # noqa: ARG002
        return True


def any_caller(_principal: Principal, _host: str, _action: str) -> Caller:
    return AnyCaller()


def may_subscribe(caller: Caller, topics: tuple[str, ...], group: str | None) -> bool:
    """A subscription reads its topics and its group. Without the name of a group it has one by itself."""
    may_read = [caller.may(Operation.READ, ResourceType.TOPIC, name) for name in topics]
    return all(may_read) and (
        group is None or caller.may(Operation.READ, ResourceType.GROUP, group)
    )


def not_permitted(what: str) -> Refusal:
    return Refusal(pb.NOT_AUTHORIZED, f"{what} is not permitted to this principal")


def host_of(peer: str) -> str:
    """The address of a gRPC peer, such as `ipv4:10.0.0.9:5000` or `ipv6:%5B::1%5D:5000`."""
    _, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0].strip("[]")
