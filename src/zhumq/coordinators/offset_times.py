"""When the message at an offset was written, read from the log of its partition, here or at its leader."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.router import LeaderRouter, RouteKind
from zhumq.metadata.image import NO_BROKER
from zhumq.model.errors import BrokerError
from zhumq.model.ids import BrokerId, TopicPartition
from zhumq.protocol.messages.coordinator_records import decode_versioned, encode_versioned
from zhumq.protocol.messages.offset_times import (
    OffsetPlace,
    OffsetTimesRequest,
    OffsetTimesResponse,
)
from zhumq.replication.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

PLACES_PER_REQUEST_MAX: Final = 500
PLACES_PER_TURN: Final = 16  # looked up before others have the event loop
NOT_KNOWN: Final = -1
_VERSION: Final = 0


class Place(NamedTuple):
    """An offset of a partition."""

    topic_partition: TopicPartition
    offset: int


class OffsetTimesRoute:
    """A `Route`."""

    kind: int = RouteKind.OFFSET_TIMES

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def answer(
        self, _partition: TopicPartition, request: OffsetTimesRequest
    ) -> OffsetTimesResponse:
        places = [
            Place(TopicPartition(each.topic, each.partition), each.offset)
            for each in request.places[:PLACES_PER_REQUEST_MAX]
        ]
        found = await self.look_up(places)
        return OffsetTimesResponse(times_ms=[found.get(place, NOT_KNOWN) for place in places])

    async def look_up(self, places: Sequence[Place]) -> dict[Place, int]:
        """The times at the places of this broker's partitions."""
        found: dict[Place, int] = {}
        for number, place in enumerate(places, start=1):
            partition = self._replicas.find(*place.topic_partition)
            try:
                time_ms = (
                    None
                    if partition is None
                    else partition.time_of(place.offset, partition.high_watermark)
                )
            except BrokerError as reason:
                logger.debug("%s: no time of offset %d: %s", *place, reason)
                continue
            if time_ms is not None:
                found[place] = time_ms
            if number % PLACES_PER_TURN == 0:
                await asyncio.sleep(0)
        return found

    def encode_request(self, request: OffsetTimesRequest) -> bytes:
        return encode_versioned(request, _VERSION)

    def decode_request(self, body: bytes) -> OffsetTimesRequest:
        return decode_versioned(OffsetTimesRequest, body)[1]

    def encode_response(self, _request: OffsetTimesRequest, response: OffsetTimesResponse) -> bytes:
        return encode_versioned(response, _VERSION)

    def decode_response(self, _request: OffsetTimesRequest, body: bytes) -> OffsetTimesResponse:
        return decode_versioned(OffsetTimesResponse, body)[1]


class OffsetTimes:
    """Times at offsets of any partition: from the replica here, if there is one, or else from its leader."""

    def __init__(
        self, router: LeaderRouter, replicas: ReplicaManager, store: MetadataStore
    ) -> None:
        self._router = router
        self._replicas = replicas
        self._store = store
        self._route = OffsetTimesRoute(replicas)
        router.add(self._route)

    async def ask(self, places: Sequence[Place]) -> dict[Place, int]:
        """The times that are known. Leaders that do not answer are left out."""
        image = self._store.image
        here: list[Place] = []
        elsewhere: dict[BrokerId, list[Place]] = {}
        for place in places:
            if self._replicas.find(*place.topic_partition) is not None:
                here.append(place)
                continue
            state = image.partition(place.topic_partition)
            if state is not None and (leader := image.leader_of(state)) != NO_BROKER:
                elsewhere.setdefault(leader, []).append(place)
        found = await self._route.look_up(here)
        for answer in await asyncio.gather(*map(self._ask_leader, elsewhere.values())):
            found.update(answer)
        return found

    async def _ask_leader(self, places: list[Place]) -> Mapping[Place, int]:
        found: dict[Place, int] = {}
        for first in range(0, len(places), PLACES_PER_REQUEST_MAX):
            asked = places[first : first + PLACES_PER_REQUEST_MAX]
            request = OffsetTimesRequest(
                places=[
                    OffsetPlace(topic=each.topic, partition=each.partition, offset=offset)
                    for each, offset in asked
                ]
            )
            try:
                answer = await self._router.send(self._route, asked[0].topic_partition, request)
            except BrokerError as reason:
                logger.debug("the leader of %s did not answer: %s", asked[0], reason)
                break
            found.update(
                (place, time_ms)
                for place, time_ms in zip(asked, answer.times_ms, strict=False)
                if time_ms != NOT_KNOWN
            )
        return found
