"""What the source asks a cluster: which partitions, which offsets, who leads, what a group has read."""

import random
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from zhumq.model.address import parse_addresses
from zhumq.model.errors import RETRIABLE_CODES, ErrorCode, MalformedFrame, ZhumqError
from zhumq.model.ids import ZERO_UUID, TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.groups import DeleteGroupsRequest, FindCoordinatorRequest
from zhumq.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from zhumq.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
)
from zhumq.spark.wire import Connection

EARLIEST: Final = -2  # what ListOffsets takes for a timestamp, and Spark's JSON for an offset
LATEST: Final = -1
NO_OFFSET: Final = -1

RETRY_SECONDS_MAX: Final = 120.0  # how long a cluster may be away before a read fails
BACKOFF_SECONDS_MIN: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 1.0
REQUEST_SECONDS_MAX: Final = 30.0

T = TypeVar("T")


class ClusterFailed(ZhumqError):
    """The cluster did not do what was asked, and trying again did not help."""


class TopicMissing(ClusterFailed):
    """A topic that was named does not exist."""


class NotNow(ClusterFailed):
    """An error that passes by itself: a leader moved, a coordinator loads."""


class ClusterClient:
    """Blocking requests to whichever broker can answer, again while that may help."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "zhumq-spark",
        retry_seconds_max: float = RETRY_SECONDS_MAX,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
    ) -> None:
        self._bootstrap = bootstrap
        self._addresses = [(each.host, each.port) for each in parse_addresses(bootstrap)]
        self._client_id = client_id
        self._retry_seconds_max = retry_seconds_max
        self._request_seconds_max = request_seconds_max
        self._connections: dict[tuple[str, int], Connection] = {}
        self._leaders: dict[TopicPartition, tuple[str, int]] = {}
        self._topic_ids: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up everywhere; the next request connects anew."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def partitions(self, topics: Iterable[str] | None) -> dict[str, list[int]]:
        """The partitions of the topics that exist among these, or of all topics for None."""
        names = None if topics is None else sorted(set(topics))
        response = self.retrying(lambda: self._metadata(names), "ask for topics")
        return {
            topic.name: sorted(each.partition_index for each in topic.partitions)
            for topic in response.topics
            if topic.error_code == ErrorCode.NONE and (names is not None or not topic.is_internal)
        }

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic in the newest metadata; None if the broker is too old to have ids."""
        return self._topic_ids.get(topic)

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, int]:
        """Each partition's first offset at or after a timestamp, or EARLIEST, or LATEST.

        A timestamp after the last record gives NO_OFFSET.
        """
        found: dict[TopicPartition, int] = {}

        def ask_leaders() -> None:
            left = {each: time for each, time in timestamps.items() if each not in found}
            by_leader: dict[tuple[str, int], list[TopicPartition]] = {}
            for each in left:
                by_leader.setdefault(self._leader(each), []).append(each)
            for address, partitions in by_leader.items():
                request = _list_offsets_request(partitions, left, isolation_level)
                response = self.connection(address).ask(ApiKey.LIST_OFFSETS, request)
                for topic in response.topics:
                    for partition in topic.partitions:
                        place = TopicPartition(topic.name, partition.partition_index)
                        self.check(partition.error_code, f"look up an offset of {_name(place)}")
                        found[place] = partition.offset

        if timestamps:
            self.retrying(ask_leaders, "look up offsets")
        return found

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Say that a group without members has read up to these offsets."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for place, offset in offsets.items():
            topics.setdefault(place.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=place.partition, committed_offset=offset
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

        def ask() -> None:
            response = self._coordinator(group).ask(ApiKey.OFFSET_COMMIT, request)
            for topic in response.topics:
                for partition in topic.partitions:
                    self.check(partition.error_code, f"commit offsets of group {group!r}")

        self.retrying(ask, f"commit offsets of group {group!r}")

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """All that a group has committed."""
        request = OffsetFetchRequest(group_id=group, topics=None)

        def ask() -> dict[TopicPartition, int]:
            doing = f"read the offsets of group {group!r}"
            response = self._coordinator(group).ask(ApiKey.OFFSET_FETCH, request)
            self.check(response.error_code, doing)
            found: dict[TopicPartition, int] = {}
            for topic in response.topics:
                for partition in topic.partitions:
                    self.check(partition.error_code, doing)
                    if partition.committed_offset != NO_OFFSET:
                        place = TopicPartition(topic.name, partition.partition_index)
                        found[place] = partition.committed_offset
            return found

        return self.retrying(ask, f"read the offsets of group {group!r}")

    def delete_group(self, group: str) -> None:
        """Delete a group without members; one that is not there is no error."""
        request = DeleteGroupsRequest(groups_names=[group])

        def ask() -> None:
            response = self._coordinator(group).ask(ApiKey.DELETE_GROUPS, request)
            for result in response.results:
                if result.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                    self.check(result.error_code, f"delete group {group!r}")

        self.retrying(ask, f"delete group {group!r}")

    def leader(self, place: TopicPartition) -> Connection:
        """A connection to the broker that leads a partition."""
        return self.connection(self._leader(place))

    def connection(self, address: tuple[str, int]) -> Connection:
        """The one connection to this address."""
        connection = self._connections.get(address)
        if connection is None:
            connection = Connection.open(
                address,
                client_id=self._client_id,
                request_seconds_max=self._request_seconds_max,
            )
            self._connections[address] = connection
        return connection

    def retrying(self, ask: Callable[[], T], doing: str) -> T:
        """Ask until it works, an error that no retry helps with comes, or the time is up."""
        deadline = time.monotonic() + self._retry_seconds_max
        backoff = BACKOFF_SECONDS_MIN
        while True:
            try:
                return ask()
            except (OSError, NotNow, MalformedFrame) as error:
                self.forget()
                if time.monotonic() + backoff > deadline:
                    raise ClusterFailed(
                        f"cannot {doing} at {self._bootstrap}: {_reason(error)}"
                        f" (tried for {self._retry_seconds_max:.0f} s)"
                    ) from error
            # Spread out, so that the tasks of a cluster do not come back all at once.
            time.sleep(backoff * random.uniform(0.5, 1.0))  # noqa: S311 - not for secrets
            backoff = min(2 * backoff, BACKOFF_SECONDS_MAX)

    def check(self, code: int, doing: str) -> None:
        """Raise for an error code: NotNow where asking again may help."""
        if code == ErrorCode.NONE:
            return
        known = code in set(ErrorCode)
        words = ErrorCode(code).name if known else f"error {code}"
        if known and ErrorCode(code) in RETRIABLE_CODES:
            raise NotNow(f"cannot {doing}: {words}")
        raise ClusterFailed(f"cannot {doing}: {words}")

    def forget(self) -> None:
        """Drop what may be stale: connections and leaders."""
        self.close()
        self._leaders.clear()

    def _leader(self, place: TopicPartition) -> tuple[str, int]:
        if place not in self._leaders:
            response = self._metadata([place.topic])
            for topic in response.topics:
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise TopicMissing(f"there is no topic {place.topic!r}")
        if place not in self._leaders:
            raise NotNow(f"{_name(place)} has no leader")
        return self._leaders[place]

    def _metadata(self, topics: list[str] | None) -> Any:
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        response = self._any_broker().ask(ApiKey.METADATA, request)
        addresses = {each.node_id: (each.host, each.port) for each in response.brokers}
        for topic in response.topics:
            if topic.topic_id != ZERO_UUID:
                self._topic_ids[topic.name] = str(topic.topic_id)
            for partition in topic.partitions:
                if partition.leader_id in addresses:
                    place = TopicPartition(topic.name, partition.partition_index)
                    self._leaders[place] = addresses[partition.leader_id]
        return response

    def _any_broker(self) -> Connection:
        for connection in self._connections.values():
            return connection
        failure: OSError | None = None
        for address in self._addresses:
            try:
                return self.connection(address)
            except OSError as error:
                failure = error
        assert failure is not None
        raise failure

    def _coordinator(self, group: str) -> Connection:
        response = self._any_broker().ask(
            ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key=group)
        )
        self.check(response.error_code, f"find the coordinator of group {group!r}")
        return self.connection((response.host, response.port))


def _list_offsets_request(
    places: Iterable[TopicPartition], timestamps: Mapping[TopicPartition, int], isolation_level: int
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(
            ListOffsetsPartition(partition_index=place.partition, timestamp=timestamps[place])
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def _name(place: TopicPartition) -> str:
    return f"{place.topic}-{place.partition}"


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
