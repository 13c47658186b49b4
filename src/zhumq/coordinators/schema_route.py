"""The way to the broker that leads `_schemas`, from any broker."""

from collections.abc import Collection, Iterable
from itertools import groupby
from operator import itemgetter
from typing import Final

from zhumq.coordinators.router import LeaderRouter, RouteKind
from zhumq.coordinators.schema_ids import PLACE, SchemaIds
from zhumq.model.errors import BrokerError, CoordinatorNotAvailable, ErrorCode
from zhumq.model.ids import TopicPartition
from zhumq.protocol.messages.coordinator_records import decode_versioned, encode_versioned
from zhumq.protocol.messages.schema_ids import IdsOfSubject, SchemaIdsRequest, SchemaIdsResponse
from zhumq.schemas.subject_ids import SubjectId

_VERSION: Final = 0


class SchemaRoute:
    """A `Route`."""

    kind: int = RouteKind.SCHEMA_IDS

    def __init__(self, ids: SchemaIds) -> None:
        self._ids = ids

    async def answer(
        self, _partition: TopicPartition, request: SchemaIdsRequest
    ) -> SchemaIdsResponse:
        try:
            registered = await self._ids.registered(_ids_of(request.subjects))
        except BrokerError as reason:
            return SchemaIdsResponse(error_code=reason.code)
        return SchemaIdsResponse(registered=_by_subject(registered))

    def encode_request(self, request: SchemaIdsRequest) -> bytes:
        return encode_versioned(request, _VERSION)

    def decode_request(self, body: bytes) -> SchemaIdsRequest:
        return decode_versioned(SchemaIdsRequest, body)[1]

    def encode_response(self, _request: SchemaIdsRequest, response: SchemaIdsResponse) -> bytes:
        return encode_versioned(response, _VERSION)

    def decode_response(self, _request: SchemaIdsRequest, body: bytes) -> SchemaIdsResponse:
        return decode_versioned(SchemaIdsResponse, body)[1]


class RoutedSchemaIds:
    """Asks the leader of `_schemas`, whichever broker that is."""

    def __init__(self, router: LeaderRouter, ids: SchemaIds) -> None:
        self._router = router
        self._route = SchemaRoute(ids)
        router.add(self._route)

    async def registered(self, asked: Collection[SubjectId]) -> set[SubjectId]:
        """Those of the ids that are registered. Raises BrokerError without an answer."""
        request = SchemaIdsRequest(subjects=_by_subject(asked))
        response = await self._router.send(self._route, PLACE, request)
        if response.error_code != ErrorCode.NONE:
            raise CoordinatorNotAvailable(
                f"the leader of {PLACE} did not answer: {ErrorCode(response.error_code).name}"
            )
        return _ids_of(response.registered)


def _by_subject(ids: Iterable[SubjectId]) -> list[IdsOfSubject]:
    return [
        IdsOfSubject(subject=subject, ids=[id_ for _, id_ in group])
        for subject, group in groupby(sorted(ids), key=itemgetter(0))
    ]


def _ids_of(subjects: Iterable[IdsOfSubject]) -> set[SubjectId]:
    return {(each.subject, id_) for each in subjects for id_ in each.ids}
