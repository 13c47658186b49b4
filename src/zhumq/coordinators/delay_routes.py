"""The way of delayed messages to the leader of their shard, from any broker."""

from typing import Final

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.delay_service import DelayService
from zhumq.coordinators.router import LeaderRouter, RouteKind
from zhumq.delays.persisted import Source
from zhumq.model.errors import BrokerError, UnknownTopicOrPartition
from zhumq.model.ids import TopicPartition
from zhumq.protocol.messages.coordinator_records import decode_versioned, encode_versioned
from zhumq.protocol.messages.delays import (
    ScheduleRequest,
    ScheduleResponse,
    StageDelayedRequest,
    StageDelayedResponse,
)

_VERSION: Final = 0


class StageRoute:
    """A `Route` for deferred records."""

    kind: int = RouteKind.STAGE_DELAYED

    def __init__(self, service: DelayService) -> None:
        self._service = service

    async def answer(
        self, partition: TopicPartition, request: StageDelayedRequest
    ) -> StageDelayedResponse:
        return await self._service.stage(partition.partition, request)

    def encode_request(self, request: StageDelayedRequest) -> bytes:
        return encode_versioned(request, _VERSION)

    def decode_request(self, body: bytes) -> StageDelayedRequest:
        return decode_versioned(StageDelayedRequest, body)[1]

    def encode_response(
        self, _request: StageDelayedRequest, response: StageDelayedResponse
    ) -> bytes:
        return encode_versioned(response, _VERSION)

    def decode_response(self, _request: StageDelayedRequest, body: bytes) -> StageDelayedResponse:
        return decode_versioned(StageDelayedResponse, body)[1]


class ScheduleRoute:
    """A `Route` for lists and cancellations."""

    kind: int = RouteKind.SCHEDULE

    def __init__(self, service: DelayService, store: MetadataStore) -> None:
        self._service = service
        self._store = store

    async def answer(self, partition: TopicPartition, request: ScheduleRequest) -> ScheduleResponse:
        try:
            source = source_of(self._store, request)
            return await self._service.answer(partition.partition, source, request)
        except BrokerError as reason:
            return ScheduleResponse(error_code=reason.code, error_message=str(reason))

    def encode_request(self, request: ScheduleRequest) -> bytes:
        return encode_versioned(request, _VERSION)

    def decode_request(self, body: bytes) -> ScheduleRequest:
        return decode_versioned(ScheduleRequest, body)[1]

    def encode_response(self, _request: ScheduleRequest, response: ScheduleResponse) -> bytes:
        return encode_versioned(response, _VERSION)

    def decode_response(self, _request: ScheduleRequest, body: bytes) -> ScheduleResponse:
        return decode_versioned(ScheduleResponse, body)[1]


class RoutedDelays:
    """Stages, lists and cancels messages in any shard, whichever broker leads it."""

    def __init__(self, router: LeaderRouter, service: DelayService, store: MetadataStore) -> None:
        self._router = router
        self._service = service
        self._store = store
        self._stages = StageRoute(service)
        self._schedules = ScheduleRoute(service, store)
        router.add(self._stages)
        router.add(self._schedules)

    async def stage(self, request: StageDelayedRequest) -> StageDelayedResponse:
        """Raises BrokerError."""
        shard = self._service.shard_of(Source(request.topic_id, request.partition))
        return await self._router.send(self._stages, shard, request)

    async def schedule(self, request: ScheduleRequest) -> ScheduleResponse:
        """Raises BrokerError."""
        shard = self._service.shard_of(source_of(self._store, request))
        if self._store.image.partition(shard) is None:
            return ScheduleResponse()  # No message was ever delayed.
        return await self._router.send(self._schedules, shard, request)


def source_of(store: MetadataStore, request: ScheduleRequest) -> Source:
    topic = store.image.topics.get(request.topic)
    if topic is None or not 0 <= request.partition < len(topic.partitions):
        named = TopicPartition(request.topic, request.partition)
        raise UnknownTopicOrPartition(f"there is no partition {named}")
    return Source(topic.topic_id, request.partition)
