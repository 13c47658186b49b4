"""FindCoordinator and every request about groups and their offsets."""

import uuid
from collections.abc import Coroutine, Iterable, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, Final

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.group_service import GroupService
from zhumq.coordinators.internal_topic import InternalTopic
from zhumq.groups.consumer_topics import TopicShape
from zhumq.groups.requests import GroupMessage, GroupRequest, GroupResponse
from zhumq.model.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidRequest,
    TransactionsUnsupported,
)
from zhumq.model.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from zhumq.security.acl import Operation, ResourceType

_FIRST_VERSION_WITH_KEYS: Final = 4
_NO_BROKER: Final = -1
# librdkafka uses these versions, and retries for ever at every error but a failed authorization (seen with
# 2.16). It shows the error message beside the code, so the user reads the reason.
_VERSIONS_OF_LIBRDKAFKA: Final = (2, 3)


class CoordinatorKind(IntEnum):
    """The key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class StoreTopics:
    """Topics of the newest metadata image."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    @property
    def version(self) -> int:
        return self._store.image.version

    def names(self) -> Iterable[str]:
        return self._store.image.topics

    def shape(self, name: str) -> TopicShape | None:
        topic = self._store.image.topics.get(name)
        return TopicShape(topic.topic_id, len(topic.partitions)) if topic else None

    def topic_id(self, name: str) -> uuid.UUID | None:
        topic = self._store.image.topics.get(name)
        return topic.topic_id if topic else None

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        topic = self._store.image.topics_by_id.get(topic_id)
        return topic.name if topic else None


class GroupsHandler:
    """Finds coordinators, and passes requests about groups to the group coordinator."""

    def __init__(
        self, service: GroupService, internal_topic: InternalTopic, store: MetadataStore
    ) -> None:
        self._service = service
        self._internal_topic = internal_topic
        self._store = store

    def handlers(self) -> dict[ApiKey, Handler]:
        handlers: dict[ApiKey, Handler] = {ApiKey.FIND_COORDINATOR: self.find_coordinator}
        for key in (
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            ApiKey.SHARE_GROUP_HEARTBEAT,
            ApiKey.SHARE_GROUP_DESCRIBE,
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.OFFSET_DELETE,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.LIST_GROUPS,
            ApiKey.DELETE_GROUPS,
        ):
            handlers[key] = self.group_request
        return handlers

    def group_request(
        self, context: RequestContext, request: GroupMessage
    ) -> Coroutine[Any, Any, GroupResponse]:
        return self._service.handle(
            GroupRequest(
                message=request,
                version=context.version,
                client_id=context.header.client_id or "",
                client_host=f"/{context.connection.client_host}",
                may_describe=partial(context.sees, Operation.DESCRIBE, ResourceType.TOPIC),
            )
        )

    async def find_coordinator(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        if context.version >= _FIRST_VERSION_WITH_KEYS:
            keys = request.coordinator_keys
            return FindCoordinatorResponse(
                coordinators=await self._find(context, request.key_type, keys)
            )
        (coordinator,) = await self._find(context, request.key_type, [request.key])
        if (
            request.key_type == CoordinatorKind.TRANSACTION
            and context.version in _VERSIONS_OF_LIBRDKAFKA
        ):
            coordinator.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return FindCoordinatorResponse(
            error_code=coordinator.error_code,
            error_message=coordinator.error_message,
            node_id=coordinator.node_id,
            host=coordinator.host,
            port=coordinator.port,
        )

    async def _find(
        self, context: RequestContext, kind: int, keys: Sequence[str]
    ) -> list[Coordinator]:
        reason: BrokerError | None = None
        try:
            if kind != CoordinatorKind.GROUP:
                raise _no_coordinator(kind)
            await self._internal_topic.ensure()
        except BrokerError as failure:
            reason = failure
        listener = context.connection.listener
        return [self._coordinator_of(key, listener, reason) for key in keys]

    def _coordinator_of(self, key: str, listener: str, reason: BrokerError | None) -> Coordinator:
        try:
            if reason is not None:
                raise reason
            image = self._store.image
            index = self._service.partition_for(key)
            state = image.partition(TopicPartition(CONSUMER_OFFSETS_TOPIC, index))
            broker = image.brokers.get(image.leader_of(state)) if state else None
            if broker is None:
                raise CoordinatorNotAvailable(f"no broker leads group {key!r} right now")
            endpoint = broker.endpoint(listener)
            if endpoint is None:
                raise CoordinatorNotAvailable(
                    f"broker {broker.broker_id}, which leads group {key!r}, has no listener {listener}"
                )
        except BrokerError as failure:
            return Coordinator(
                key=key,
                node_id=_NO_BROKER,
                port=_NO_BROKER,
                error_code=failure.code,
                error_message=str(failure),
            )
        return Coordinator(
            key=key,
            node_id=broker.broker_id,
            host=endpoint.host,
            port=endpoint.port,
            error_code=ErrorCode.NONE,
        )


def _no_coordinator(kind: int) -> BrokerError:
    if kind == CoordinatorKind.TRANSACTION:
        return TransactionsUnsupported("this broker does not support transactions")
    return InvalidRequest(f"there is no coordinator of kind {kind}")
