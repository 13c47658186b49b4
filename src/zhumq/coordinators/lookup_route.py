"""The way of a lookup to the leader of its partition, from any broker."""

from typing import Final

from zhumq.coordinators.key_lookup import LookupService
from zhumq.coordinators.router import LeaderRouter, RouteKind
from zhumq.model.errors import BrokerError
from zhumq.model.ids import TopicPartition
from zhumq.protocol.messages.coordinator_records import decode_versioned, encode_versioned
from zhumq.protocol.messages.lookup import LookupRequest, LookupResponse

_VERSION: Final = 0


class LookupRoute:
    """A `Route`."""

    kind: int = RouteKind.LOOKUP

    def __init__(self, service: LookupService) -> None:
        self._service = service

    async def answer(self, partition: TopicPartition, request: LookupRequest) -> LookupResponse:
        try:
            return await self._service.answer(partition, request)
        except BrokerError as reason:
            return LookupResponse(error_code=reason.code, error_message=str(reason))

    def encode_request(self, request: LookupRequest) -> bytes:
        return encode_versioned(request, _VERSION)

    def decode_request(self, body: bytes) -> LookupRequest:
        return decode_versioned(LookupRequest, body)[1]

    def encode_response(self, _request: LookupRequest, response: LookupResponse) -> bytes:
        return encode_versioned(response, _VERSION)

    def decode_response(self, _request: LookupRequest, body: bytes) -> LookupResponse:
        return decode_versioned(LookupResponse, body)[1]


class RoutedLookups:
    """Looks up messages of any partition, whichever broker leads it."""

    def __init__(self, router: LeaderRouter, service: LookupService) -> None:
        self._router = router
        self._route = LookupRoute(service)
        router.add(self._route)

    async def find(self, request: LookupRequest) -> LookupResponse:
        """The answer of the leader. Raises BrokerError."""
        partition = TopicPartition(request.topic, request.partition)
        return await self._router.send(self._route, partition, request)
