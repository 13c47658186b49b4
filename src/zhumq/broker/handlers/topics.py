"""CreateTopics, DeleteTopics, CreatePartitions: each topic of a request has its own result."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from zhumq.broker.config_entries import ConfigEntry
from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.metadata.image import Topic
from zhumq.metadata.topics import TOPIC_NAME_LENGTH_MAX, NewTopic
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.model.ids import ZERO_UUID
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

_FIRST_DELETE_VERSION_WITH_TOPIC_IDS: Final = 6
TopicConfigEntries = Callable[[Topic], list[ConfigEntry]]


class TopicsHandler:
    """Creates, deletes and grows topics. Results are in the order of the request."""

    def __init__(
        self,
        store: MetadataStore,
        metadata_client: MetadataClient,
        config_entries: TopicConfigEntries,
        *,
        deletion_enabled: bool,
    ) -> None:
        self._store = store
        self._metadata_client = metadata_client
        self._config_entries = config_entries
        self._deletion_enabled = deletion_enabled

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.CREATE_TOPICS: self.create_topics,
            ApiKey.DELETE_TOPICS: self.delete_topics,
            ApiKey.CREATE_PARTITIONS: self.create_partitions,
        }

    async def create_topics(
        self, _context: RequestContext, request: CreateTopicsRequest
    ) -> CreateTopicsResponse:
        asked = {topic.name: topic for topic in request.topics}
        repeated = _repeated(topic.name for topic in request.topics)
        names = [name for name in asked if name not in repeated]
        results = await self._metadata_client.create_topics(
            [_new_topic(asked[name]) for name in names], validate_only=request.validate_only
        )
        response = CreateTopicsResponse(
            topics=[
                CreatableTopicResult(
                    name=name,
                    error_code=ErrorCode.INVALID_REQUEST,
                    error_message=_twice(name),
                )
                for name in repeated
            ]
        )
        for name, result in zip(names, results, strict=True):
            if isinstance(result, BrokerError):
                response.topics.append(
                    CreatableTopicResult(
                        name=name, error_code=result.code, error_message=str(result)
                    )
                )
            else:
                response.topics.append(self._created(result, validate_only=request.validate_only))
        return response

    def _created(self, topic: Topic, *, validate_only: bool) -> CreatableTopicResult:
        return CreatableTopicResult(
            name=topic.name,
            topic_id=ZERO_UUID if validate_only else topic.topic_id,
            num_partitions=len(topic.partitions),
            replication_factor=len(topic.partitions[0].replicas),
            configs=[
                CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.is_sensitive,
                )
                for entry in self._config_entries(topic)
            ],
        )

    async def delete_topics(
        self, context: RequestContext, request: DeleteTopicsRequest
    ) -> DeleteTopicsResponse:
        response = DeleteTopicsResponse()
        pending: list[DeletableTopicResult] = []
        for result in self._topics_to_delete(context.version, request):
            response.responses.append(result)
            if result.error_code == ErrorCode.NONE and not self._deletion_enabled:
                result.error_code = ErrorCode.TOPIC_DELETION_DISABLED
                result.error_message = "this broker runs with delete.topic.enable=false"
            if result.error_code == ErrorCode.NONE:
                pending.append(result)
        errors = await self._metadata_client.delete_topics(
            [result.name or "" for result in pending]
        )
        for result, error in zip(pending, errors, strict=True):
            if error is not None:
                result.error_code = error.code
                result.error_message = str(error)
        return response

    def _topics_to_delete(
        self, version: int, request: DeleteTopicsRequest
    ) -> list[DeletableTopicResult]:
        image = self._store.image
        if version < _FIRST_DELETE_VERSION_WITH_TOPIC_IDS:
            named = [DeletableTopicResult(name=name) for name in dict.fromkeys(request.topic_names)]
            for result in named:
                topic = image.topics.get(result.name or "")
                result.topic_id = topic.topic_id if topic else ZERO_UUID
            return named
        results: list[DeletableTopicResult] = []
        repeated = _repeated((topic.name, topic.topic_id) for topic in request.topics)
        for name, topic_id in dict.fromkeys((t.name, t.topic_id) for t in request.topics):
            result = DeletableTopicResult(name=name, topic_id=topic_id)
            results.append(result)
            if (name, topic_id) in repeated or (name is not None and topic_id != ZERO_UUID):
                result.error_code = ErrorCode.INVALID_REQUEST
                result.error_message = "name each topic once, by its name or by its id"
            elif name is None:
                topic = image.topics_by_id.get(topic_id)
                if topic is None:
                    result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                    result.error_message = f"there is no topic with id {topic_id}"
                else:
                    result.name = topic.name
            else:
                topic = image.topics.get(name)
                result.topic_id = topic.topic_id if topic else ZERO_UUID
        return results

    async def create_partitions(
        self, _context: RequestContext, request: CreatePartitionsRequest
    ) -> CreatePartitionsResponse:
        repeated = _repeated(topic.name for topic in request.topics)
        topics = [topic for topic in request.topics if topic.name not in repeated]
        errors = await self._metadata_client.add_partitions(
            [
                (
                    topic.name,
                    topic.count,
                    None
                    if topic.assignments is None
                    else [assignment.broker_ids for assignment in topic.assignments],
                )
                for topic in topics
            ],
            validate_only=request.validate_only,
        )
        results = [
            CreatePartitionsTopicResult(
                name=name,
                error_code=ErrorCode.INVALID_REQUEST,
                error_message=_twice(name),
            )
            for name in repeated
        ]
        results.extend(
            CreatePartitionsTopicResult(
                name=topic.name,
                error_code=error.code if error else ErrorCode.NONE,
                error_message=str(error) if error else None,
            )
            for topic, error in zip(topics, errors, strict=True)
        )
        return CreatePartitionsResponse(results=results)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    settings: Mapping[str, str | None] = {each.name: each.value for each in topic.configs}
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment={each.partition_index: each.broker_ids for each in topic.assignments},
        settings=settings,
    )


_Name = TypeVar("_Name")


def _repeated(names: Iterable[_Name]) -> list[_Name]:
    return [name for name, count in Counter(names).items() if count > 1]


def _twice(name: str) -> str:
    return f"topic {name[:TOPIC_NAME_LENGTH_MAX]!r} is twice in the request"
