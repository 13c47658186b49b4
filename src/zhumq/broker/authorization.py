"""Authorization of requests: asks the authorizer about each, remembers decisions, and reports some of them."""

import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from zhumq.broker.rights.table import RULES
from zhumq.metadata.image import ClusterImage
from zhumq.model.errors import MalformedFrame
from zhumq.model.ids import Principal
from zhumq.net.service import ConnectionInfo
from zhumq.protocol.api import ApiKey
from zhumq.protocol.produce_codec import ID_VERSION, ProduceRun
from zhumq.protocol.schema import Message
from zhumq.security.acl import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceType
from zhumq.security.audit import AuditEvent
from zhumq.security.authorizer import Authorizer

DECISIONS_REMEMBERED_MAX: Final = 50_000
NAME_LENGTH_REMEMBERED_MAX: Final = 255  # clients can send longer ones, and many of them
_WRITE: Final = Operation.WRITE
_TOPIC: Final = ResourceType.TOPIC
# What is reported when it is permitted, too: it changes something that is kept.
_CHANGES: Final = frozenset(
    {Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS}
)
_OFFSET_CHANGES: Final = frozenset({ApiKey.ALTER_SHARE_GROUP_OFFSETS})


# Called for what was refused, and for every change that was permitted.
OnDecision = Callable[[AuditEvent], None]
_Key = TypeVar("_Key")


class AclAuthorization:
    """Permits what the ACLs of the newest metadata image allow."""

    def __init__(
        self,
        authorizer: Authorizer,
        image: Callable[[], ClusterImage],
        *,
        creates_topics: bool,
        on_decision: OnDecision = lambda _: None,
    ) -> None:
        self._authorizer = authorizer
        self.image = image
        self.creates_topics = creates_topics  # whether a Metadata request may create topics
        self.on_decision = on_decision
        self._acls = image().security.acls
        authorizer.apply(self._acls)
        # Cleared when an ACL changes.
        self._decisions: dict[tuple[str, str, int, int, str], bool] = {}
        # By principal, host, version and topic as it is sent: a run of Produce requests costs one lookup.
        self._producers: dict[tuple[str, str, int, bytes], bool] = {}
        self._writers: dict[tuple[str, str], bool] = {}

    def apply(self, image: ClusterImage) -> None:
        """Called with every new metadata image."""
        acls = image.security.acls
        if acls is not self._acls:
            self._acls = acls
            self._authorizer.apply(acls)
            self._decisions.clear()
            self._producers.clear()
            self._writers.clear()

    def may_produce(self, connection: ConnectionInfo, run: ProduceRun) -> bool:
        key = (connection.principal, connection.client_host, run.version, run.topic)
        allowed = self._producers.get(key)
        if allowed is None:
            name = self._topic_of(run)
            if name is None:
                return False  # The handler knows how to answer for a topic that does not exist.
            allowed = self.decide(key[0], key[1], _WRITE, _TOPIC, name)
            if len(name) <= NAME_LENGTH_REMEMBERED_MAX:
                _remember(self._producers, key, allowed)
        return allowed

    def call(self, handler: Callable[[Any, Any], Any], context: Any, request: Any) -> Any:
        api_key = context.header.api_key
        rule = RULES.get(api_key)
        if rule is None:
            raise MalformedFrame(f"{api_key.name} has no rule in the table of rights")
        connection = context.connection
        caller = Caller(
            self,
            connection.principal,
            connection.client_host,
            listener=connection.listener,
            action=api_key.name,
            version=context.version,
            reports_all=api_key in _OFFSET_CHANGES,
        )
        context.may = caller.may
        context.sees = caller.sees
        permitted = rule.check(caller, request)
        if isinstance(permitted, Message):
            return permitted
        response = handler(context, permitted.request)
        finish = permitted.finish
        if finish is None or response is None:
            return response
        if isinstance(response, Message):
            finish(response)
            return response
        return _finish_later(response, finish)

    def caller(
        self, listener: str, principal: Principal, client_host: str, action: str
    ) -> "Caller":
        """Who calls a method of another listener than Kafka's."""
        return Caller(self, principal, client_host, listener=listener, action=action)

    def decide(
        self, principal: str, host: str, operation: Operation, type_: ResourceType, name: str
    ) -> bool:
        key = (principal, host, operation, type_, name)
        allowed = self._decisions.get(key)
        if allowed is None:
            allowed = self._authorizer.may(principal, host, operation, type_, name)
            if len(name) <= NAME_LENGTH_REMEMBERED_MAX:
                _remember(self._decisions, key, allowed)
        return allowed

    def may_write_to_any_topic(self, principal: str, host: str) -> bool:
        key = (principal, host)
        allowed = self._writers.get(key)
        if allowed is None:
            allowed = self._authorizer.may_with_any(principal, host, _WRITE, _TOPIC)
            _remember(self._writers, key, allowed)
        return allowed

    def _topic_of(self, run: ProduceRun) -> str | None:
        if run.version == ID_VERSION:
            topic = self.image().topics_by_id.get(uuid.UUID(bytes=run.topic))
            return None if topic is None else topic.name
        try:
            return run.topic.decode()
        except UnicodeDecodeError:
            return None


class Caller:
    """The sender of one request: the subject of its rule."""

    __slots__ = (
        "_action",
        "_authorization",
        "_host",
        "_listener",
        "_principal",
        "_reports_all",
        "version",
    )

    def __init__(
        self,
        authorization: AclAuthorization,
        principal: Principal,
        client_host: str,
        *,
        listener: str,
        action: str,
        version: int = 0,
        reports_all: bool = False,
    ) -> None:
        self._authorization = authorization
        self._principal = principal
        self._host = client_host
        self._listener = listener
        self._action = action
        self._reports_all = reports_all
        self.version = version

    def may(self, operation: Operation, type_: ResourceType, name: str) -> bool:
        return self._report(operation, _text(type_, name), self.sees(operation, type_, name))

    def may_alter(self, operation: Operation, parts: Iterable[str]) -> bool:
        allowed = self.sees(operation, ResourceType.CLUSTER, CLUSTER_NAME)
        for part in parts:
            self._report(operation, part, allowed)
        return allowed

    def may_here_or_anywhere(self, operation: Operation, topic: str) -> bool:
        return self._report(
            operation,
            _text(_TOPIC, topic),
            self.sees(operation, ResourceType.CLUSTER, CLUSTER_NAME)
            or self.sees(operation, _TOPIC, topic),
        )

    def _report(self, operation: Operation, resource: str, allowed: bool) -> bool:
        if not allowed or operation in _CHANGES or self._reports_all:
            self._authorization.on_decision(
                AuditEvent(
                    principal=self._principal,
                    host=self._host,
                    listener=self._listener,
                    action=self._action,
                    operation=operation.name,
                    resource=resource,
                    allowed=allowed,
                )
            )
        return allowed

    def sees(self, operation: Operation, type_: ResourceType, name: str) -> bool:
        return self._authorization.decide(self._principal, self._host, operation, type_, name)

    def may_write_to_any_topic(self) -> bool:
        return self._authorization.may_write_to_any_topic(self._principal, self._host)

    def operations(self, type_: ResourceType, name: str) -> int:
        return sum(1 << each for each in OPERATIONS_OF[type_] if self.sees(each, type_, name))

    @property
    def creates_topics(self) -> bool:
        return self._authorization.creates_topics

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        topic = self._authorization.image().topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def has_topic(self, name: str) -> bool:
        return name in self._authorization.image().topics

    def topic_names(self) -> Iterable[str]:
        return self._authorization.image().topics


def _text(type_: ResourceType, name: str) -> str:
    return f"{type_.name.lower()}:{name}"


def _remember(decisions: dict[_Key, bool], key: _Key, allowed: bool) -> None:
    if len(decisions) >= DECISIONS_REMEMBERED_MAX:
        decisions.clear()
    decisions[key] = allowed


async def _finish_later(response: Awaitable[Any], finish: Callable[[Any], None]) -> Any:
    answered = await response
    if answered is not None:
        finish(answered)
    return answered
