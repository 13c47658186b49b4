"""Checks that every registered broker serves the partitions that it leads."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka.admin import NewTopic

from chaos.cluster_under_test import ClusterUnderTest
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from zhumq.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from zhumq.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.testing.raw_client import RawClient

SERVES_SECONDS_MAX: Final = 5.0
SETTLE_SECONDS_MAX: Final = 60.0
LOOK_AGAIN_SECONDS: Final = 0.05
CREATE_SECONDS_MAX: Final = 60.0
ASK_SECONDS_MAX: Final = 2.0
PARTITIONS: Final = 6
TOPICS: Final = {"probe-raft": "raft", "probe-fetch": "fetch"}
REPLICAS: Final = 3
MIN_IN_SYNC: Final = 2
# The newest versions with topic names instead of ids.
PRODUCE_VERSION: Final = 12
FETCH_VERSION: Final = 12

Place = tuple[str, int]  # topic and partition


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One broker's metadata response."""

    brokers: frozenset[int]
    leaders: Mapping[Place, int]


@dataclass(slots=True, kw_only=True)
class Serving:
    """How long leaders took to serve after each fault."""

    slowest_seconds: float = 0.0
    leaders_asked: int = 0
    late: list[str] = field(default_factory=list)


class ServingProbe:
    """Writes to and reads from the leader of each partition of its own topics, on a direct connection
    to that broker."""

    def __init__(self, cluster_under_test: ClusterUnderTest) -> None:
        self._cluster_under_test = cluster_under_test
        self.result = Serving()

    def create_topics(self) -> None:
        for name, mode in TOPICS.items():
            settings = {"replication.mode": mode, "min.insync.replicas": str(MIN_IN_SYNC)}
            topic = NewTopic(name, PARTITIONS, REPLICAS, config=settings)
            self._cluster_under_test.admin.create_topics([topic])[name].result(CREATE_SECONDS_MAX)

    def check(self, since: float) -> None:
        """Return when every broker is registered and every leader serves, or at the deadline. A leader's
        time starts when all brokers name it, at the earliest when the fault is over."""
        named: dict[tuple[Place, int], float] = {}
        served: set[tuple[Place, int]] = set()
        late: set[tuple[Place, int]] = set()
        deadline = since + SETTLE_SECONDS_MAX
        while True:
            agreed = self._agreed()
            now = time.monotonic()
            named = {pair: named.get(pair, max(now, since)) for pair in agreed}
            served &= named.keys()
            for pair in [each for each in named if each not in served]:
                if self._serves(*pair):
                    served.add(pair)
                    self._note(time.monotonic() - named[pair])
                elif time.monotonic() - named[pair] > SERVES_SECONDS_MAX and pair not in late:
                    late.add(pair)
                    (topic, partition), leader = pair
                    self.result.late.append(f"broker {leader} does not serve {topic}-{partition}")
            if len(named) == len(TOPICS) * PARTITIONS and served == named.keys():
                return
            if time.monotonic() > deadline:
                self.result.late.append(f"of {len(named)} leaders {len(served)} serve")
                return
            time.sleep(LOOK_AGAIN_SECONDS)

    def _note(self, seconds: float) -> None:
        self.result.leaders_asked += 1
        self.result.slowest_seconds = max(self.result.slowest_seconds, seconds)

    def _agreed(self) -> dict[tuple[Place, int], None]:
        """The leaders that all brokers name, once every broker lists all brokers as registered."""
        views = [self._view(broker_id) for broker_id in self._cluster_under_test.broker_ids]
        known = [view for view in views if view is not None]
        if len(known) < len(views) or any(
            view.brokers != frozenset(self._cluster_under_test.broker_ids) for view in known
        ):
            return {}
        first, *others = known
        return {
            (place, leader): None
            for place, leader in first.leaders.items()
            if all(each.leaders.get(place) == leader for each in others)
        }

    def _view(self, broker_id: int) -> View | None:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in TOPICS],
            allow_auto_topic_creation=False,
        )
        answer = self._ask(broker_id, ApiKey.METADATA, request, None)
        if answer is None:
            return None
        return View(
            brokers=frozenset(each.node_id for each in answer.brokers),
            leaders={
                (str(topic.name), each.partition_index): each.leader_id
                for topic in answer.topics
                for each in topic.partitions
                if each.leader_id in self._cluster_under_test.broker_ids
            },
        )

    def _serves(self, place: Place, leader: int) -> bool:
        """Whether the broker acknowledges a message with acks=-1 and returns it to a fetch."""
        topic, partition = place
        value = f"{time.monotonic_ns()}".encode()
        record = Record(timestamp=0, value=value)
        data = PartitionProduceData(index=partition, records=build_batch([record]))
        produce = ProduceRequest(
            acks=-1,
            timeout_ms=int(ASK_SECONDS_MAX * 1_000),
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = self._ask(leader, ApiKey.PRODUCE, produce, PRODUCE_VERSION)
        if answer is None or answer.responses[0].partition_responses[0].error_code:
            return False
        fetched = FetchPartition(
            partition=partition,
            fetch_offset=answer.responses[0].partition_responses[0].base_offset,
            partition_max_bytes=1 << 20,
        )
        fetch = FetchRequest(
            max_wait_ms=int(ASK_SECONDS_MAX * 500),
            min_bytes=1,
            topics=[FetchTopic(topic=topic, partitions=[fetched])],
        )
        found = self._ask(leader, ApiKey.FETCH, fetch, FETCH_VERSION)
        if found is None:
            return False
        answered = found.responses[0].partitions[0]
        return not answered.error_code and value in bytes(answered.records or b"")

    def _ask(self, broker_id: int, key: ApiKey, request: Any, version: int | None) -> Any:
        """The broker's response; None if there is none in time."""
        broker = self._cluster_under_test.cluster.brokers[broker_id]
        try:
            with RawClient(broker.bootstrap, seconds_max=2 * ASK_SECONDS_MAX) as client:
                return client.ask(key, request, version)
        except (OSError, TimeoutError):
            return None
