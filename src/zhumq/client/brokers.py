"""The brokers of a cluster for blocking requests: connections, leaders, coordinators, and repeated requests."""

import random
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, Self, TypeVar

from zhumq.client.errors import ClusterFailed
from zhumq.client.refusal import RefusalWatch
from zhumq.client.security import PLAINTEXT, ClientSecurity
from zhumq.client.wire import Connection
from zhumq.model.address import Address, parse_addresses
from zhumq.model.errors import RETRIABLE_CODES, ErrorCode, MalformedFrame
from zhumq.model.ids import ZERO_UUID, TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.groups import FindCoordinatorRequest
from zhumq.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

RETRY_SECONDS_MAX: Final = 120.0  # how long a cluster may be unavailable before a request fails
BACKOFF_SECONDS_MIN: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 1.0
BUSY_SECONDS_MIN: Final = 0.002
REQUEST_SECONDS_MAX: Final = 30.0
TOPIC_SECONDS_MAX: Final = 15.0  # until a topic that was asked for has been created

# The newest versions that name topics by name, and one group or transactional id.
VERSIONS_MAX: Final = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.LIST_OFFSETS: 7,
    ApiKey.METADATA: 12,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.OFFSET_COMMIT: 8,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
}

T = TypeVar("T")


class CoordinatorKind(IntEnum):
    """What a coordinator is responsible for; the numbers are those of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class TopicMissing(ClusterFailed):
    """A named topic does not exist."""


class RetriableFailure(ClusterFailed):
    """A request failed, and a retry may succeed: a leader has moved, or a coordinator is loading."""


class Busy(RetriableFailure):
    """The broker that was asked can answer soon: the connections stay open."""


class Brokers:
    """Sends blocking requests to the broker that can answer, and retries them."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str,
        retry_seconds_max: float = RETRY_SECONDS_MAX,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
        security: ClientSecurity = PLAINTEXT,
        creates_topics: bool = False,
    ) -> None:
        """`creates_topics`: the brokers may create a topic that is asked for, if their settings say so."""
        self._bootstrap = bootstrap
        self._security = security
        self._refusal = RefusalWatch(bootstrap, security)
        self._addresses = parse_addresses(bootstrap)
        self._client_id = client_id
        self._retry_seconds_max = retry_seconds_max
        self._request_seconds_max = request_seconds_max
        self._creates_topics = creates_topics
        self._connections: dict[Address, Connection] = {}
        self._leaders: dict[TopicPartition, Address] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], Address] = {}
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

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic in the newest metadata; None if the broker is too old to have ids."""
        return self._topic_ids.get(topic)

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has. Raises TopicMissing."""

        def ask() -> int:
            (found,) = self.metadata([topic]).topics
            self._check_topic(topic, found.error_code)
            return len(found.partitions)

        return self.retrying(ask, f"ask for the topic {topic!r}", seconds_max=TOPIC_SECONDS_MAX)

    def leader(self, place: TopicPartition) -> Connection:
        """A connection to the broker that leads a partition."""
        return self.connection(self.leader_address(place))

    def leader_address(self, place: TopicPartition) -> Address:
        """The address of a partition's leader, asked for once until `forget`."""
        if place not in self._leaders:
            for topic in self.metadata([place.topic]).topics:
                self._check_topic(place.topic, topic.error_code)
        if place not in self._leaders:
            raise RetriableFailure(f"{place} has no leader")
        return self._leaders[place]

    def coordinator(self, key: str, kind: CoordinatorKind = CoordinatorKind.GROUP) -> Connection:
        """A connection to the coordinator of a group or a transactional id."""
        address = self._coordinators.get((kind, key))
        if address is None:
            request = FindCoordinatorRequest(key=key, key_type=kind)
            response = self._any_broker().ask(ApiKey.FIND_COORDINATOR, request)
            self.check(response.error_code, f"find the coordinator of {kind.name.lower()} {key!r}")
            address = self._coordinators[kind, key] = Address(response.host, response.port)
        return self.connection(address)

    def connection(self, address: Address) -> Connection:
        """The one connection to this address."""
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self.connect(address)
        return connection

    def connect(self, address: Address) -> Connection:
        """A new connection, which belongs to the caller."""
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
        return connection

    def retrying(self, ask: Callable[[], T], doing: str, *, seconds_max: float | None = None) -> T:
        """Call `ask` until it succeeds, raises an error that is not retriable, or the time is up.

        Raises SecurityFailed soon if the brokers refuse the security settings.
        """
        seconds_max = self._retry_seconds_max if seconds_max is None else seconds_max
        deadline = time.monotonic() + seconds_max
        backoff = 0.0
        while True:
            try:
                return ask()
            except (OSError, RetriableFailure, MalformedFrame) as error:
                is_busy = isinstance(error, Busy)
                if not is_busy:
                    self.forget()
                if isinstance(error, OSError):
                    self._refusal.note_error()
                    self._refusal.check()
                backoff = max(backoff, BUSY_SECONDS_MIN if is_busy else BACKOFF_SECONDS_MIN)
                if time.monotonic() + backoff > deadline:
                    raise ClusterFailed(
                        f"cannot {doing} at {self._bootstrap}: {error or type(error).__name__}"
                        f" (tried for {seconds_max:.0f} s)"
                    ) from error
            except Exception:
                raise
            except BaseException:
                self.forget()  # The answer to an interrupted request would be taken for the next one's.
                raise
            # Jitter, so that the tasks of a Spark cluster do not retry all at once.
            time.sleep(backoff * random.uniform(0.5, 1.0))  # noqa: S311 - not for secrets
            backoff = min(2 * backoff, BACKOFF_SECONDS_MAX)

    def check(self, code: int, doing: str) -> None:
        """Raise for an error code: RetriableFailure where a retry may succeed."""
        if code == ErrorCode.NONE:
            return
        words = f"cannot {doing}: {name_of_error(code)}"
        if code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            raise Busy(words)
        if code in RETRIABLE_CODES:
            raise RetriableFailure(words)
        raise ClusterFailed(words)

    def forget(self) -> None:
        """Drop connections, leaders and coordinators, which may be stale."""
        self.close()
        self._coordinators.clear()
        self._leaders.clear()

    def metadata(self, topics: list[str] | None) -> Any:
        """The brokers' answer about these topics, or about all of them. It is not repeated."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=self._creates_topics)
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

    def _check_topic(self, topic: str, code: int) -> None:
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self._creates_topics:
            raise TopicMissing(f"there is no topic {topic!r}")
        self.check(code, f"find the topic {topic!r}")

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


def name_of_error(code: int) -> str:
    """Kafka's name of an error code."""
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"
