"""The cluster's topics as consumer groups see them."""

import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

MayDescribe = Callable[[str], bool]


def describes_all(_name: str) -> bool:
    return True


class TopicShape(NamedTuple):
    """Id and partition count of an existing topic."""

    topic_id: uuid.UUID
    partition_count: int


class ClusterTopics(Protocol):
    """The topics that exist now."""

    @property
    def version(self) -> int:
        """Changes whenever a topic may have changed."""

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
    """A hash of these topics, equal in every process."""
    if not shapes:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(shapes):
        shape = shapes[name]
        digest.update(f"{len(name)}:{name}{shape.topic_id}{shape.partition_count};".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)
