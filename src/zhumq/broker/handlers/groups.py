"""Every request about groups and their offsets."""

import uuid
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.group_service import GroupService
from zhumq.groups.consumer_topics import TopicShape
from zhumq.groups.requests import GroupMessage, GroupRequest, GroupResponse
from zhumq.protocol.api import ApiKey
from zhumq.security.acl import Operation, ResourceType


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
    """Passes requests about groups to the group coordinator."""

    def __init__(self, service: GroupService) -> None:
        self._service = service

    def handlers(self) -> dict[ApiKey, Handler]:
        return dict.fromkeys(
            (
                ApiKey.JOIN_GROUP,
                ApiKey.SYNC_GROUP,
                ApiKey.HEARTBEAT,
                ApiKey.LEAVE_GROUP,
                ApiKey.CONSUMER_GROUP_HEARTBEAT,
                ApiKey.CONSUMER_GROUP_DESCRIBE,
                ApiKey.SHARE_GROUP_HEARTBEAT,
                ApiKey.SHARE_GROUP_DESCRIBE,
                ApiKey.OFFSET_COMMIT,
                ApiKey.TXN_OFFSET_COMMIT,
                ApiKey.OFFSET_FETCH,
                ApiKey.OFFSET_DELETE,
                ApiKey.DESCRIBE_GROUPS,
                ApiKey.LIST_GROUPS,
                ApiKey.DELETE_GROUPS,
            ),
            self.group_request,
        )

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
