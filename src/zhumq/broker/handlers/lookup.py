"""Lookup: the messages of a partition with a key or a tag, from its leader."""

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.lookup_route import RoutedLookups
from zhumq.model.errors import BrokerError, UnknownTopicOrPartition
from zhumq.model.ids import TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.lookup import LookupRequest, LookupResponse


class LookupHandler:
    """Passes lookups on to the leaders of their partitions, and refusals back with their reason."""

    def __init__(self, lookups: RoutedLookups, store: MetadataStore) -> None:
        self._lookups = lookups
        self._store = store

    def handlers(self) -> dict[ApiKey, Handler]:
        return {ApiKey.LOOKUP: self.lookup}

    async def lookup(self, _context: RequestContext, request: LookupRequest) -> LookupResponse:
        partition = TopicPartition(request.topic, request.partition)
        try:
            if self._store.image.partition(partition) is None:
                raise UnknownTopicOrPartition(f"there is no partition {partition}")
            return await self._lookups.find(request)
        except BrokerError as reason:
            return LookupResponse(error_code=reason.code, error_message=str(reason))
