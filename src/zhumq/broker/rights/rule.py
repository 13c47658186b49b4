"""The parts of a rule: what a request needs, what of it goes on to the handler, and how the rest is refused."""

import copy
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

from zhumq.model.authorization_errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.protocol.schema import Message
from zhumq.security.acl import CLUSTER_NAME, Operation, ResourceType

_FAILURES: Final[dict[ResourceType, type[BrokerError]]] = {
    ResourceType.TOPIC: TopicAuthorizationFailed,
    ResourceType.GROUP: GroupAuthorizationFailed,
    ResourceType.CLUSTER: ClusterAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
}


class Subject(Protocol):
    """The sender of a request: what it may do, and the facts that rules need."""

    @property
    def version(self) -> int:
        """The version of the request."""

    @property
    def creates_topics(self) -> bool:
        """Whether a Metadata request may create topics here."""

    def may(self, operation: Operation, type_: ResourceType, name: str) -> bool:
        """Whether the subject may do this. The decision is reported."""

    def may_alter(self, operation: Operation, parts: Iterable[str]) -> bool:
        """Whether the subject may do this with the cluster. The decision is reported for each part of it."""

    def may_here_or_anywhere(self, operation: Operation, topic: str) -> bool:
        """Whether the subject may do this with the topic, or has the same right to the cluster."""

    def sees(self, operation: Operation, type_: ResourceType, name: str) -> bool:
        """The same for what the subject did not ask for by name, such as a list. Nothing is reported."""

    def may_write_to_any_topic(self) -> bool: ...

    def operations(self, type_: ResourceType, name: str) -> int:
        """The operations that the subject may do, as bits of their codes."""

    def topic_name(self, topic_id: uuid.UUID) -> str | None: ...

    def has_topic(self, name: str) -> bool: ...

    def topic_names(self) -> Iterable[str]: ...


class Need(NamedTuple):
    """One row of the table in the docs."""

    operation: Operation
    type: ResourceType
    answer: str  # how a request without the right is answered


class Permitted(NamedTuple):
    """What of a request goes on to the handler, and what then completes or reduces the response."""

    request: Any
    finish: Callable[[Any], None] | None = None


# Returns what is permitted, or the response if nothing is. Raises what refuses the request as a whole.
Check = Callable[[Subject, Any], Permitted | Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The rule of one API."""

    needs: tuple[Need, ...]
    check: Check


def failure(type_: ResourceType) -> BrokerError:
    """The error of a subject that may not do this with a resource of the type."""
    code = _FAILURES[type_].code
    return _FAILURES[type_](code.name.replace("_", " ").capitalize())


def refuse(operation: Operation, type_: ResourceType) -> Need:
    return Need(operation, type_, _FAILURES[type_].code.name)


def on_cluster(operation: Operation) -> Rule:
    """For a request about the cluster: it is served or refused as a whole."""

    def check(subject: Subject, request: Any) -> Permitted:
        require(subject, operation, ResourceType.CLUSTER, CLUSTER_NAME)
        return Permitted(request)

    return Rule(needs=(refuse(operation, ResourceType.CLUSTER),), check=check)


def on_group(operation: Operation) -> Rule:
    """For a request about one group, which names it in `group_id`."""

    def check(subject: Subject, request: Any) -> Permitted:
        require(subject, operation, ResourceType.GROUP, request.group_id or "")
        return Permitted(request)

    return Rule(needs=(refuse(operation, ResourceType.GROUP),), check=check)


def require(subject: Subject, operation: Operation, type_: ResourceType, name: str) -> None:
    if not subject.may(operation, type_, name):
        raise failure(type_)


def on_items(
    operation: Operation,
    type_: ResourceType,
    *,
    of: str,
    into: str,
    response: Callable[[], Message],
    refused: Callable[[Any, ErrorCode], Any],
    name: Callable[[Any], str] = attrgetter("name"),
) -> Rule:
    """For a request with a list that is answered item by item.

    The items are in the field `of` of the request. What answers them is in the field `into` of the response.
    """

    def check(subject: Subject, request: Any) -> Permitted | Message:
        return split(
            request,
            of,
            into,
            response,
            lambda item: (
                None
                if subject.may(operation, type_, name(item))
                else refused(item, failure(type_).code)
            ),
        )

    return Rule(needs=(refuse(operation, type_),), check=check)


def split(
    request: Any,
    of: str,
    into: str,
    response: Callable[[], Message],
    answer: Callable[[Any], Any],
) -> Permitted | Message:
    """Leaves the items out for which `answer` returns a refusal, and adds the refusals to the response.

    Nothing goes on to the handler if all items are refused: for some APIs an empty list means all.
    """
    permitted: list[Any] = []
    refusals: list[Any] = []
    for item in getattr(request, of):
        refusal = answer(item)
        if refusal is None:
            permitted.append(item)
        else:
            refusals.append(refusal)
    if not refusals:
        return Permitted(request)

    def finish(answered: Any) -> None:
        getattr(answered, into).extend(refusals)

    if not permitted:
        whole = response()
        finish(whole)
        return whole
    return Permitted(with_fields(request, **{of: permitted}), finish)


def both(first: Rule, second: Rule) -> Rule:
    """A request that needs the first right as a whole, and then what the second rule says."""

    def check(subject: Subject, request: Any) -> Permitted | Message:
        permitted = first.check(subject, request)
        if isinstance(permitted, Message):
            return permitted
        assert permitted.finish is None
        return second.check(subject, permitted.request)

    return Rule(needs=first.needs + second.needs, check=check)


def then(permitted: Permitted | Message, finish: Callable[[Any], None]) -> Permitted | Message:
    """The same with one more step that completes the response."""
    if isinstance(permitted, Message):
        finish(permitted)
        return permitted
    before = permitted.finish
    if before is None:
        return Permitted(permitted.request, finish)

    def finish_both(response: Any) -> None:
        finish(response)
        before(response)

    return Permitted(permitted.request, finish_both)


def with_fields(message: Any, **fields: Any) -> Any:
    """A copy: the request itself belongs to the caller."""
    copied = copy.copy(message)
    for name, value in fields.items():
        setattr(copied, name, value)
    return copied


def sees_all_topics(subject: Subject, names: Iterable[str]) -> bool:
    return all(subject.sees(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names)


def may_all_topics(subject: Subject, operation: Operation, names: Sequence[str]) -> bool:
    """Whether the subject may do this with each topic; every refusal is reported."""
    denied = [
        name
        for name in dict.fromkeys(names)
        if not subject.may(operation, ResourceType.TOPIC, name)
    ]
    return not denied
