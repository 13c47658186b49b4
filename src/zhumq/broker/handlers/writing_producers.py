"""WritingProducers: the producers that this broker has seen, of topics that the client may read."""

from functools import lru_cache
from typing import Final

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.broker.seen_producers import SeenProducers
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.writing_producers import (
    WritingProducer,
    WritingProducersRequest,
    WritingProducersResponse,
)
from zhumq.security.acl import Operation, ResourceType

_SAME_FIELDS: Final = (
    "port", "producer_epoch", "transactional_id", "kind", "requests", "messages", "size_bytes",
    "request_rate", "message_rate", "byte_rate", "first_ms", "last_ms",
)  # fmt: skip


class WritingProducersHandler:
    """Lists the producers."""

    def __init__(self, seen: SeenProducers) -> None:
        self._seen = seen

    def handlers(self) -> dict[ApiKey, Handler]:
        return {ApiKey.WRITING_PRODUCERS: self.list_producers}

    def list_producers(
        self, context: RequestContext, request: WritingProducersRequest
    ) -> WritingProducersResponse:
        topics = None if request.topics is None else frozenset(request.topics)

        @lru_cache(None)
        def is_shown(topic: str) -> bool:
            if topics is not None and topic not in topics:
                return False
            return context.sees(Operation.READ, ResourceType.TOPIC, topic)

        return WritingProducersResponse(
            producers=[
                WritingProducer(
                    **key._asdict(), **{name: getattr(seen, name) for name in _SAME_FIELDS}
                )
                for key, seen in self._seen.items()
                if is_shown(key.topic)
            ],
            forgotten=self._seen.forgotten_total,
        )
