"""Wiring of schema validation: what this broker leads of the registry, and what it checks by it."""

from collections.abc import Iterable

from zhumq.broker.metrics import schema_metrics
from zhumq.broker.wiring.foundation import Foundation
from zhumq.coordinators.schema_ids import SchemaIds
from zhumq.coordinators.schema_route import RoutedSchemaIds
from zhumq.coordinators.schema_validation import SchemaValidation
from zhumq.metadata.image import ClusterImage
from zhumq.model.metric import Metric


class SchemaChecks:
    """Follows the metadata image: topics that set schema.validation."""

    def __init__(self, base: Foundation) -> None:
        routed = RoutedSchemaIds(base.router, SchemaIds(base.replicas))
        self.known = SchemaValidation(base.replicas, routed, base.clock)

    def apply(self, image: ClusterImage) -> None:
        """Called with every new metadata image."""
        self.known.apply(image)

    def metrics(self) -> Iterable[Metric]:
        return schema_metrics(self.known)

    def close(self) -> None:
        self.known.close()
