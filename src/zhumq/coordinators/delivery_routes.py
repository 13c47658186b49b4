"""Routes of delivery: requests to the shards of delivery state, and dead letters to the leaders of their partitions."""

from typing import Any, Final

from zhumq.coordinators.router import RouteKind
from zhumq.coordinators.runtime import CoordinatorRuntime
from zhumq.host.clock import Clock
from zhumq.model.errors import InvalidRequest
from zhumq.model.ids import TopicPartition
from zhumq.protocol.messages.coordinator_records import decode_versioned, encode_versioned
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.share.requests import (
    REQUEST_KINDS,
    RESPONSE_TYPES,
    DeliveryRequest,
    DeliveryResponse,
)

_VERSION: Final = 0
_KINDS: Final = {request: kind for kind, (request, _) in enumerate(REQUEST_KINDS)}


class DeliveryStateRoute:
    """A `Route` to the shards of `__share_group_state`. A body is the number of the request type, and the request."""

    kind: int = RouteKind.DELIVERY_STATE

    def __init__(self, runtime: CoordinatorRuntime[DeliveryRequest, DeliveryResponse]) -> None:
        self._runtime = runtime

    async def answer(self, partition: TopicPartition, request: DeliveryRequest) -> DeliveryResponse:
        return await self._runtime.submit(partition.partition, request)

    def encode_request(self, request: DeliveryRequest) -> bytes:
        return bytes((_KINDS[type(request)],)) + encode_versioned(request, _VERSION)

    def decode_request(self, body: bytes) -> DeliveryRequest:
        if not body or body[0] >= len(REQUEST_KINDS):
            raise InvalidRequest("no such request about delivery state")
        request: Any = decode_versioned(REQUEST_KINDS[body[0]][0], body[1:])[1]
        return request  # type: ignore[no-any-return]

    def encode_response(self, _request: DeliveryRequest, response: DeliveryResponse) -> bytes:
        return encode_versioned(response, _VERSION)

    def decode_response(self, request: DeliveryRequest, body: bytes) -> DeliveryResponse:
        response: Any = decode_versioned(RESPONSE_TYPES[type(request)], body)[1]
        return response  # type: ignore[no-any-return]


class DeadLetterRoute:
    """A `Route` for batches of dead letters. A batch is durable once it is answered."""

    kind: int = RouteKind.DEAD_LETTER

    def __init__(self, replicas: ReplicaManager, clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock

    async def answer(self, partition: TopicPartition, request: bytes) -> None:
        target = self._replicas.partition(partition.topic, partition.partition)
        target.check_leads()
        target.check_enough_replicas()
        appended = target.append(request, self._clock.now_ms())
        await target.when_durable(appended.last_offset + 1)

    def encode_request(self, request: bytes) -> bytes:
        return request

    def decode_request(self, body: bytes) -> bytes:
        return body

    def encode_response(self, _request: bytes, _response: None) -> bytes:
        return b""

    def decode_response(self, _request: bytes, _body: bytes) -> None:
        return None
