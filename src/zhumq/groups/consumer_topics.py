"""The cluster's topics as consumer groups see them, and which of them a subscription means."""

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol


class TopicShape(NamedTuple):
    """A topic that exists."""

    topic_id: uuid.UUID
    partition_count: int


class ClusterTopics(Protocol):
    """Which topics there are now. The shard looks here whenever it is asked something."""

    @property
    def version(self) -> int:
        """Another one whenever anything may be different."""

    def shape(self, name: str) -> TopicShape | None:
        """The topic of this name; None if there is none."""

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of the topic of this id; None if there is none."""

    def names(self) -> Iterable[str]:
        """The names of all topics."""


class NoTopics:
    """A cluster without topics."""

    version = 0

    def shape(self, name: str) -> None:  # noqa: ARG002  as in every view
        return None

    def topic_name(self, topic_id: uuid.UUID) -> None:  # noqa: ARG002  as in every view
        return None

    def names(self) -> Iterable[str]:
        return ()


def shapes_hash(shapes: Mapping[str, TopicShape]) -> int:
    """One number that differs when any of these topics does, the same in every process."""
    if not shapes:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(shapes):
        shape = shapes[name]
        digest.update(f"{len(name)}:{name}{shape.topic_id}{shape.partition_count};".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)
