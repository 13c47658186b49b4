"""Wiring of lookup: the indexer of keys and tags, the service, and the way to the leaders of partitions."""

from collections.abc import Iterable

from zhumq.broker.metrics import lookup_metrics
from zhumq.broker.wiring.foundation import Foundation
from zhumq.coordinators.key_indexer import KeyIndexer
from zhumq.coordinators.key_lookup import LookupService
from zhumq.coordinators.lookup_route import RoutedLookups
from zhumq.metadata.image import ClusterImage
from zhumq.model.metric import Metric


class Lookups:
    """Follows the metadata image: indexes the partitions of topics that ask for it."""

    def __init__(self, base: Foundation) -> None:
        self._indexer = KeyIndexer(base.replicas)
        self._service = LookupService(base.replicas, self._indexer, base.clock)
        self.routed = RoutedLookups(base.router, self._service)

    def metrics(self) -> Iterable[Metric]:
        return lookup_metrics(self._indexer, self._service)

    def apply(self, image: ClusterImage) -> None:
        """Called with every new metadata image."""
        self._indexer.apply(image)

    def close(self) -> None:
        self._indexer.close()
