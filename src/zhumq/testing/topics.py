"""Topics without a cluster, which a test creates, grows and deletes by calls."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from zhumq.groups.consumer_topics import TopicShape


@dataclass(slots=True, kw_only=True)
class ChangingTopics:
    """A view of topics without a cluster. The same calls always give the same ids."""

    counts: dict[str, int] = field(default_factory=dict)
    ids: dict[str, uuid.UUID] = field(default_factory=dict)
    version: int = 0
    created: int = 0

    def put(self, name: str, partition_count: int) -> uuid.UUID:
        """Create a topic, or give it more partitions."""
        self.version += 1
        if name not in self.ids:
            # A topic that is created again gets a new id.
            self.created += 1
            self.ids[name] = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}-{self.created}")
        self.counts[name] = partition_count
        return self.ids[name]

    def delete(self, name: str) -> None:
        self.version += 1
        del self.counts[name], self.ids[name]

    def shape(self, name: str) -> TopicShape | None:
        return TopicShape(self.ids[name], self.counts[name]) if name in self.ids else None

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return next((name for name, each in self.ids.items() if each == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self.ids)
