"""Requests of the source to a cluster: metadata, offsets, partition leaders, committed offsets."""

import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Self, TypeVar

from zhumq.client.refusal import RefusalWatch
from zhumq.client.security import PLAINTEXT, ClientSecurity
from zhumq.client.wire import Connection
from zhumq.model.address import Address, parse_addresses
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

EARLIEST: Final = -2  # a timestamp in ListOffsets, an offset in Spark's JSON; so is LATEST
LATEST: Final = -1
NO_OFFSET: Final = -1

RETRY_SECONDS_MAX: Final = 120.0  # how long a cluster may be unavailable before a read fails
BACKOFF_SECONDS_MIN: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 1.0
REQUEST_SECONDS_MAX: Final = 30.0

# The newest versions that name topics by name.
VERSIONS_MAX: Final = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.METADATA: 12,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.DELETE_GROUPS: 2,
}

T = TypeVar("T")


class ClusterFailed(ZhumqError):
    """A request failed, and retries did not help."""


class TopicMissing(ClusterFailed):
    """A named topic does not exist."""


class RetriableFailure(ClusterFailed):
    """A request failed, and a retry may succeed: a leader has moved, or a coordinator is loading."""


class ClusterClient:
    """Sends blocking requests to the broker that can answer, and retries them."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "zhumq-spark",
        retry_seconds_max: float = RETRY_SECONDS_MAX,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._refusal = RefusalWatch(bootstrap, security)
        self._addresses = parse_addresses(bootstrap)
        self._client_id = client_id
        self._retry_seconds_max = retry_seconds_max
        self._request_seconds_max = request_seconds_max
        self._connections: dict[Address, Connection] = {}
        self._leaders: dict[TopicPartition, Address] = {}
        self._topic_ids: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the next request opens a new one."""
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
            by_leader: dict[Address, list[TopicPartition]] = {}
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
        """Commit these offsets for a group without members."""
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
        """All committed offsets of a group."""
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
        """Delete a group without members; a group that does not exist is no error."""
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

    def connection(self, address: Address) -> Connection:
        """The one connection to this address."""
        connection = self._connections.get(address)
        if connection is None:
            connection = Connection.open(
                [address],
                client_id=self._client_id,
                request_seconds=self._request_seconds_max,
                security=self._security,
            )
            try:
                connection.negotiate(VERSIONS_MAX)
            except BaseException:
                connection.close()
                raise
            self._connections[address] = connection
        return connection

    def retrying(self, ask: Callable[[], T], doing: str) -> T:
        """Call `ask` until it succeeds, raises an error that is not retriable, or the time is up.

        Raises SecurityFailed soon if the brokers refuse the security settings.
        """
        deadline = time.monotonic() + self._retry_seconds_max
        backoff = BACKOFF_SECONDS_MIN
        while True:
            try:
                return ask()
            except (OSError, RetriableFailure, MalformedFrame) as error:
                self.forget()
                if isinstance(error, OSError):
                    self._refusal.note_error()
                    self._refusal.check()
                if time.monotonic() + backoff > deadline:
                    raise ClusterFailed(
                        f"cannot {doing} at {self._bootstrap}: {_reason(error)}"
                        f" (tried for {self._retry_seconds_max:.0f} s)"
                    ) from error
            # Jitter, so that the tasks of a Spark cluster do not retry all at once.
            time.sleep(backoff * random.uniform(0.5, 1.0))  # noqa: S311 - not for secrets
            backoff = min(2 * backoff, BACKOFF_SECONDS_MAX)

    def check(self, code: int, doing: str) -> None:
        """Raise for an error code: RetriableFailure where a retry may succeed."""
        if code == ErrorCode.NONE:
            return
        known = code in set(ErrorCode)
        words = ErrorCode(code).name if known else f"error {code}"
        if known and ErrorCode(code) in RETRIABLE_CODES:
            raise RetriableFailure(f"cannot {doing}: {words}")
        raise ClusterFailed(f"cannot {doing}: {words}")

    def forget(self) -> None:
        """Drop connections and leaders, which may be stale."""
        self.close()
        self._leaders.clear()

    def _leader(self, place: TopicPartition) -> Address:
        if place not in self._leaders:
            response = self._metadata([place.topic])
            for topic in response.topics:
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise TopicMissing(f"there is no topic {place.topic!r}")
        if place not in self._leaders:
            raise RetriableFailure(f"{_name(place)} has no leader")
        return self._leaders[place]

    def _metadata(self, topics: list[str] | None) -> Any:
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        response = self._any_broker().ask(ApiKey.METADATA, request)
        addresses = {each.node_id: Address(each.host, each.port) for each in response.brokers}
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
        return self.connection(Address(response.host, response.port))


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
