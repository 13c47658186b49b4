"""The cases for each size of a cluster: every function runs the cores and returns figures."""

import gc
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TypeVar

from benchmarks.scale_contention import publish
from benchmarks.scale_election import elect
from benchmarks.scale_world import Size, World, members, placement
from zhumq.broker.handlers.metadata import describe_partitions
from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster.alter_partition_writer import GATHER_SECONDS
from zhumq.cluster.znodes import Create, Operation, SetData
from zhumq.metadata.changes import (
    Change,
    PartitionChanged,
    TopicCreated,
    apply_changes,
    change_to_json,
)
from zhumq.metadata.image import ClusterImage
from zhumq.metadata.leadership import LeaderPolicy, in_batches, plan_membership
from zhumq.metadata.placement import _ring
from zhumq.model.errors import PolicyViolation
from zhumq.model.ids import BrokerId
from zhumq.model.replication_mode import Mode
from zhumq.protocol.compiler import encoder
from zhumq.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from zhumq.protocol.messages.replicas import ReplicaFetchRequest, ReplicaFetchResponse
from zhumq.protocol.peer_api import (
    decode_peer_answer,
    decode_peer_request,
    encode_peer_answer,
    encode_peer_request,
    read_peer_answer,
    read_peer_request,
)
from zhumq.replication.inter_broker.fetcher import REPLICA_FETCH
from zhumq.replication.inter_broker.follower_session import BEAT_MS

DEAD = BrokerId(0)
POLICY = LeaderPolicy(mode=Mode.FETCH, min_in_sync=2)
METADATA_VERSION = 12
SAMPLED_TOPICS = 100
MOVES_SAMPLED = 100_000  # partitions that are placed again with one more broker
ROUNDS = 1_000  # of something that takes microseconds
WATCHES_OF_A_BROKER = 2  # on /version, and on the candidate before it
WIDE_TOPICS = (1_000, 10_000, 100_000)
MEGABYTE = 1e6

Figures = dict[str, float]
Result = TypeVar("Result")


def timed(work: Callable[[], Result]) -> tuple[float, Result]:
    """The CPU seconds of this process, so that other load on the machine does not count; and the result."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def placement_figures(world: World) -> Figures:
    """How evenly the ring spreads replicas, and how many one more broker moves."""
    size = world.size
    one_topic = replace(size, partitions_per_broker=1, partitions_per_topic=size.brokers)
    _ring.cache_clear()
    ring_seconds, _ = timed(lambda: placement(world.members, one_topic))
    seconds, placed = timed(lambda: world.placed)
    racks_seconds, _ = timed(lambda: placement(members(size.brokers, racks=2), one_topic))
    flat = list(chain.from_iterable(placed))
    replicas = Counter(chain.from_iterable(flat))
    leaders = Counter(each[0] for each in flat)
    one_more = placement(members(size.brokers + 1), size, MOVES_SAMPLED)
    grown = list(chain.from_iterable(one_more))
    moved = sum(len(set(new) - set(old)) for old, new in zip(flat, grown, strict=False))
    return {
        "first topic, ring built with it, ms": ring_seconds * 1e3,
        "first topic on two racks, ms": racks_seconds * 1e3,
        "us per placed partition": seconds / len(flat) * 1e6,
        "replicas: least loaded broker, of an even share": _share(min, replicas, size),
        "replicas: most loaded broker, of an even share": _share(max, replicas, size),
        "leaders: least loaded broker, of an even share": _share(min, leaders, size),
        "leaders: most loaded broker, of an even share": _share(max, leaders, size),
        "one more broker moves, % of all replicas": moved / sum(map(len, grown)) * 100,
        "its even share, %": 100 / (size.brokers + 1),
    }


def _share(pick: Callable[[Sequence[int]], int], counts: Counter[BrokerId], size: Size) -> float:
    every = [counts[BrokerId(number)] for number in range(size.brokers)]
    return pick(every) * size.brokers / counts.total()


def image_figures(world: World) -> tuple[Figures, ClusterImage]:
    """The memory of the metadata image, and the time of changes to it."""
    placed = world.placed
    assert placed
    gc.collect()
    before = resident_bytes()
    build_seconds, image = timed(lambda: world.image(Mode.FETCH))
    gc.collect()
    held = resident_bytes() - before
    name = next(iter(image.topics))
    one = [_changed(image, name, 0)]
    many = [_changed(image, each, 0) for each in list(image.topics)[:ROUNDS]]
    one_seconds = min(timed(lambda: apply_changes(image, one))[0] for _ in range(5))
    many_seconds = min(timed(lambda: apply_changes(image, many))[0] for _ in range(3))
    look_seconds, _ = timed(gc.collect)
    figures = {
        "MB of memory": held / MEGABYTE,
        "bytes per partition": held / image.partition_count,
        "built in s": build_seconds,
        "one change applied in ms": one_seconds * 1e3,
        "a change in each of up to 1,000 topics applied in ms": many_seconds * 1e3,
        "a look for garbage takes ms": look_seconds * 1e3,
    }
    return figures, image


def _changed(image: ClusterImage, name: str, partition: int) -> PartitionChanged:
    state = image.topics[name].partitions[partition]
    changed = replace(state, partition_epoch=state.partition_epoch + 1)
    return PartitionChanged(name=name, partition=partition, state=changed)


def death_figures(image: ClusterImage) -> Figures:
    """The controller's decisions when a broker dies, and their size as ZooKeeper transactions."""
    live = frozenset(image.brokers) - {DEAD}

    def bytes_of(name: str) -> int:
        return layout.topic_bytes(image.topics[name])

    def plan() -> Iterator[Change]:
        return plan_membership(image, live, lambda _topic: POLICY)

    first_seconds, _ = timed(lambda: next(in_batches(plan(), bytes_of)))
    seconds, changes = timed(lambda: list(plan()))
    written = _Written(image=image)
    batches = list(in_batches(changes, bytes_of))
    encode_seconds, _ = timed(lambda: written.write_all(batches))
    sizes = written.sizes
    return {
        "decided in ms": seconds * 1e3,
        "the first changes in ms": first_seconds * 1e3,
        "partitions changed": len(changes) - 1,
        "transactions": len(sizes),
        "transactions too large for ZooKeeper, made again in halves": written.refused,
        "KB in all": sum(sizes) / 1e3,
        "KB of the largest": max(sizes) / 1e3,
        "ms to apply and encode all": encode_seconds * 1e3,
        "MB that all brokers read of it": written.entry_bytes * len(live) / MEGABYTE,
    }


@dataclass(slots=True, kw_only=True)
class _Written:
    """The transactions written to ZooKeeper; one that is too large is split into halves."""

    image: ClusterImage
    sizes: list[int] = field(default_factory=list)
    entry_bytes: int = 0
    refused: int = 0

    def write_all(self, batches: Sequence[Sequence[Change]]) -> None:
        for batch in batches:
            self.write(batch)

    def write(self, changes: Sequence[Change]) -> None:
        after = apply_changes(self.image, changes)
        try:
            operations = transaction(self.image, after, changes)
        except PolicyViolation:
            self.refused += 1
            self.write(changes[: len(changes) // 2])
            self.write(changes[len(changes) // 2 :])
            return
        self.image = after
        self.sizes.append(operations_bytes(operations))
        entries = [each for each in operations if each.path.startswith(layout.CHANGES)]
        self.entry_bytes += operations_bytes(entries)


def transaction(
    before: ClusterImage, after: ClusterImage, changes: Sequence[Change]
) -> list[Operation]:
    return layout.transaction(before, after, changes, mark=str(uuid.uuid4()), version_token=1)


def operations_bytes(operations: Sequence[Operation]) -> int:
    return sum(
        len(each.path) + len(each.data) for each in operations if isinstance(each, Create | SetData)
    )


def node_figures(image: ClusterImage) -> Figures:
    """The metadata image as ZooKeeper nodes: what a broker reads when it starts."""
    names = list(image.topics)[:SAMPLED_TOPICS]
    nodes: dict[str, bytes] = {}
    for name in names:
        nodes[name] = layout._pack(change_to_json(TopicCreated(topic=image.topics[name])))
    scale = len(image.topics) / len(names)
    seconds, _ = timed(
        lambda: [layout.decode_topic(layout.topic_path(name), nodes[name]) for name in names]
    )
    return {
        "topic nodes": len(image.topics),
        "KB of one": max(map(len, nodes.values())) / 1e3,
        "MB of all": sum(map(len, nodes.values())) * scale / MEGABYTE,
        "s to decode all, at a start": seconds * scale,
        "watches of one broker": WATCHES_OF_A_BROKER,
        "watches in all": WATCHES_OF_A_BROKER * len(image.brokers) + 1,
        "reads that one change causes": 2 * len(image.brokers),
    }


def wide_topic_figures(partitions: int) -> Figures:
    """One topic with very many partitions, in one node."""
    brokers = min(100, partitions)
    size = Size(
        brokers=brokers,
        partitions_per_broker=partitions // brokers,
        partitions_per_topic=partitions,
    )
    image = World(size=size).image(Mode.FETCH)
    (name,) = image.topics
    change = [_changed(image, name, 0)]

    def write() -> Sequence[Operation]:
        return transaction(image, apply_changes(image, change), change)

    try:
        seconds, operations = timed(write)
    except PolicyViolation:
        return {"fits into a transaction": 0}
    return {
        "fits into a transaction": 1,
        "KB of a change of one partition": operations_bytes(operations) / 1e3,
        "ms to make it": seconds * 1e3,
    }


def answer_figures(image: ClusterImage) -> Figures:
    """Metadata responses for one topic, and for all topics, as some clients request at their start: each for the first
    time, as a broker keeps what it has encoded."""
    topics = list(image.topics.values())
    sample = topics[:SAMPLED_TOPICS]
    seconds, described = timed(
        lambda: [
            MetadataResponseTopic(
                name=each.name, topic_id=each.topic_id, partitions=describe_partitions(image, each)
            )
            for each in sample
        ]
    )
    encode_seconds, size = timed(lambda: _answer_bytes(image, described))
    bare = _answer_bytes(image, [])
    scale = len(topics) / len(sample)
    return {
        "KB about one topic": _answer_bytes(image, described[:1]) / 1e3,
        "KB of it that name brokers": bare / 1e3,
        "MB about all topics": ((size - bare) * scale + bare) / MEGABYTE,
        "s on the event loop for all topics": (seconds + encode_seconds) * scale,
    }


def _answer_bytes(image: ClusterImage, topics: list[MetadataResponseTopic]) -> int:
    brokers = [
        MetadataResponseBroker(node_id=each.broker_id, host=each.host, port=each.port)
        for each in image.brokers.values()
    ]
    parts: list[bytes] = []
    response = MetadataResponse(brokers=brokers, topics=topics, cluster_id=image.cluster_id)
    encoder(MetadataResponse, METADATA_VERSION)(response, parts)
    return sum(map(len, parts))


def election_figures(world: World) -> Figures:
    """Raft: all partitions that the dead broker led elect leaders, and their brokers publish them."""
    led = [each for each in chain.from_iterable(world.placed) if each[0] == DEAD]
    elections = elect(DEAD, led)
    published = publish(elections.won_at_ms.values(), GATHER_SECONDS * 1e3)
    return {
        "partitions without a leader": elections.partitions,
        "brokers that won some": len(elections.won_at_ms),
        "requests between brokers": elections.requests,
        "messages in one of them": elections.messages / elections.requests,
        "KB between brokers": elections.bytes_sent / 1e3,
        "most promises that one broker writes": max(elections.persisted_votes.values()),
        "half of the leaders elected after ms": median(chain(*elections.won_at_ms.values())),
        "the last leader elected after ms": max(map(max, elections.won_at_ms.values())),
        "transactions to publish them, by the model": published.transactions,
        "attempts at them, by the model": published.attempts,
        "the last one known after ms, by the model": published.last_ms,
    }


def fetch_figures(world: World) -> Figures:
    """An idle cluster: each broker has one fetch in flight to every leader of a partition it follows."""
    leaders: dict[BrokerId, set[BrokerId]] = {each.broker_id: set() for each in world.members}
    for leader, *followers in chain.from_iterable(world.placed):
        for follower in followers:
            leaders[follower].add(leader)
    sessions = sum(map(len, leaders.values())) / len(leaders)
    per_second = sessions * 1_000 / BEAT_MS
    request = encode_peer_request(REPLICA_FETCH, 1, ReplicaFetchRequest(max_bytes=1 << 23))
    answer = _idle_answer(1)
    seconds, _ = timed(_idle_fetches)
    # A broker sends as many requests as it answers.
    cpu = 2 * per_second * seconds / ROUNDS
    return {
        "brokers it fetches from, mean": sessions,
        "brokers it fetches from, most": max(map(len, leaders.values())),
        "idle requests/s, sent and as many answered": per_second,
        "idle KB/s, each way": per_second * (len(request) + len(answer)) / 1e3,
        "messages made and read, % of a core": cpu * 100,
    }


def _idle_fetches() -> None:
    for number in range(ROUNDS):
        sent = encode_peer_request(REPLICA_FETCH, number, ReplicaFetchRequest(max_bytes=1 << 23))
        read_peer_request(REPLICA_FETCH, decode_peer_request(sent[4:]))
        answered = _idle_answer(number)
        read_peer_answer(REPLICA_FETCH, decode_peer_answer(answered[4:]))


def _idle_answer(correlation_id: int) -> bytes:
    parts = encode_peer_answer(REPLICA_FETCH, correlation_id, ReplicaFetchResponse())
    return b"".join(part for part in parts if isinstance(part, bytes))
