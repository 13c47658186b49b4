"""FindCoordinator: the broker that coordinates a group, or the transactions of a transactional id."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.internal_topic import InternalTopic
from zhumq.model.errors import BrokerError, CoordinatorNotAvailable, ErrorCode, InvalidRequest
from zhumq.model.ids import TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_FIRST_VERSION_WITH_KEYS: Final = 4
_NO_BROKER: Final = -1


class CoordinatorKind(IntEnum):
    """The key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinated:
    """What coordinators of one kind share: their topic, whose partitions' leaders they are."""

    noun: str  # what they coordinate
    topic: InternalTopic
    partition_for: Callable[[str], int]


class FindCoordinatorHandler:
    """Finds coordinators, and creates their topics at the first request."""

    def __init__(self, kinds: Mapping[CoordinatorKind, Coordinated], store: MetadataStore) -> None:
        self._kinds = kinds
        self._store = store

    def handlers(self) -> dict[ApiKey, Handler]:
        return {ApiKey.FIND_COORDINATOR: self.find_coordinator}

    async def find_coordinator(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse:
        listener = context.connection.listener
        if context.version >= _FIRST_VERSION_WITH_KEYS:
            keys = request.coordinator_keys
            return FindCoordinatorResponse(
                coordinators=await self._find(request.key_type, keys, listener)
            )
        (coordinator,) = await self._find(request.key_type, [request.key], listener)
        return FindCoordinatorResponse(
            error_code=coordinator.error_code,
            error_message=coordinator.error_message,
            node_id=coordinator.node_id,
            host=coordinator.host,
            port=coordinator.port,
        )

    async def _find(self, kind: int, keys: Sequence[str], listener: str) -> list[Coordinator]:
        try:
            if kind not in self._kinds:
                raise InvalidRequest(f"there is no coordinator of kind {kind}")
            coordinated = self._kinds[CoordinatorKind(kind)]
            await coordinated.topic.ensure()
        except BrokerError as reason:
            return [_refused(key, reason) for key in keys]
        return [self._coordinator_of(coordinated, key, listener) for key in keys]

    def _coordinator_of(self, coordinated: Coordinated, key: str, listener: str) -> Coordinator:
        image = self._store.image
        partition = TopicPartition(coordinated.topic.name, coordinated.partition_for(key))
        state = image.partition(partition)
        broker = image.brokers.get(image.leader_of(state)) if state else None
        if broker is None:
            return _refused(
                key,
                CoordinatorNotAvailable(f"no broker leads {coordinated.noun} {key!r} right now"),
            )
        endpoint = broker.endpoint(listener)
        if endpoint is None:
            return _refused(
                key,
                CoordinatorNotAvailable(
                    f"broker {broker.broker_id}, which leads {coordinated.noun} {key!r},"
                    f" has no listener {listener}"
                ),
            )
        return Coordinator(
            key=key,
            node_id=broker.broker_id,
            host=endpoint.host,
            port=endpoint.port,
            error_code=ErrorCode.NONE,
        )


def _refused(key: str, reason: BrokerError) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=_NO_BROKER,
        port=_NO_BROKER,
        error_code=reason.code,
        error_message=str(reason),
    )
