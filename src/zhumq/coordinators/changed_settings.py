"""Which topics of a new metadata image are new or have other settings."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from zhumq.metadata.image import ClusterImage, Topic
from zhumq.model.ids import TopicPartition

_NO_TOPICS: Final[Mapping[str, Topic]] = MappingProxyType({})


class ChangedSettings:
    """Compares each image with the one before."""

    def __init__(self) -> None:
        self.topics = _NO_TOPICS

    def apply(self, image: ClusterImage) -> Iterator[TopicPartition]:
        """The partitions of these topics."""
        before, self.topics = self.topics, image.topics
        for name, topic in image.topics.items():
            known = before.get(name)
            if known is topic or (known is not None and known.settings == topic.settings):
                continue
            for index in range(len(topic.partitions)):
                yield TopicPartition(name, index)
