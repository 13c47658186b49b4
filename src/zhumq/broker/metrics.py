"""What a broker tells about itself at a scrape: counted where it happens, read here."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from zhumq.broker.dispatch import Dispatcher
from zhumq.broker.http import Metric
from zhumq.cluster.store import SessionState
from zhumq.metadata.image import NO_BROKER, ClusterImage
from zhumq.model.errors import BrokerError
from zhumq.model.ids import BrokerId, TopicPartition
from zhumq.net.listener import Listener
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.storage.disk_room import DiskRoom
from zhumq.storage.scrub import Scrubber

PROBLEMS_MAX: Final = 20  # partitions that /healthz names
_NO_LABELS = ""


def broker_metrics(
    listener: Listener,
    dispatcher: Dispatcher,
    replicas: ReplicaManager,
    disk_room: DiskRoom,
    scrubber: Scrubber,
) -> Iterable[Metric]:
    """The figures of this moment. Costs are paid by the scrape, not by the hot path."""
    counters = listener.counters
    yield _counter("zhumq_requests_total", "Requests handled.", dispatcher.requests_handled)
    yield _gauge(
        "zhumq_requests_in_flight", "Requests being worked on.", counters.requests_in_flight
    )
    yield _gauge("zhumq_connections", "Open connections.", counters.connections_open)
    yield _counter(
        "zhumq_connections_refused_total", "Connections over a limit.", counters.connections_refused
    )
    yield _counter(
        "zhumq_connections_malformed_total",
        "Connections closed because of bytes that were not the protocol.",
        counters.connections_malformed,
    )
    yield _counter(
        "zhumq_connections_expired_total",
        "Connections closed because they were idle, slow, or waited too long for memory.",
        counters.connections_expired,
    )
    yield _counter(
        "zhumq_connections_cut_off_total",
        "Connections closed because they held memory that others needed.",
        counters.connections_cut_off,
    )
    yield _gauge(
        "zhumq_request_memory_bytes",
        "Bytes of requests being received or worked on.",
        listener.memory.bytes_used,
    )
    yield _counter("zhumq_received_bytes_total", "Bytes of requests.", counters.bytes_received)
    yield _counter("zhumq_sent_bytes_total", "Bytes of answers.", counters.bytes_answered)
    yield _gauge("zhumq_partitions", "Partitions that this broker has a replica of.", len(replicas))
    led = sum(partition.leads for partition in replicas)
    yield _gauge("zhumq_partitions_led", "Partitions that this broker leads and serves.", led)
    yield _gauge(
        "zhumq_partitions_healing",
        "Partitions of which something was lost here: it is fetched, and this replica does not count.",
        sum(not partition.is_intact for partition in replicas),
    )
    yield _gauge(
        "zhumq_partitions_offline",
        "Partitions of this broker whose log cannot be opened or written.",
        len(offline_partitions(replicas)),
    )
    yield _gauge(
        "zhumq_disk_free_bytes", "Room on the disk of the data folder.", disk_room.free_bytes
    )
    yield _gauge(
        "zhumq_disk_full", "Whether messages are refused for lack of room.", disk_room.is_full
    )
    yield _counter("zhumq_scrub_bytes_total", "Bytes read to find damage.", scrubber.bytes_read)
    yield _counter(
        "zhumq_scrub_segments_total", "Segments read to find damage.", scrubber.segments_read
    )
    yield _counter(
        "zhumq_scrub_damaged_total", "Segments found damaged.", scrubber.segments_damaged
    )
    yield _counter("zhumq_scrub_passes_total", "Times all logs were read.", scrubber.passes)
    sizes: list[tuple[str, float]] = []
    ends: list[tuple[str, float]] = []
    corrupt: list[tuple[str, float]] = []
    for partition in replicas:
        name = partition.topic_partition
        labels = f'{{topic="{name.topic}",partition="{name.partition}"}}'
        sizes.append((labels, partition.log.size_bytes))
        ends.append((labels, partition.log.log_end_offset))
        if partition.log.corrupt_ranges:
            corrupt.append((labels, len(partition.log.corrupt_ranges)))
    yield Metric(
        name="zhumq_log_bytes", kind="gauge", help="Size of a partition on disk.", samples=sizes
    )
    yield Metric(
        name="zhumq_log_end_offset", kind="gauge", help="Where a partition ends.", samples=ends
    )
    yield Metric(
        name="zhumq_log_corrupt_ranges",
        kind="gauge",
        help="Ranges of a partition that fail their checksum.",
        samples=corrupt,
    )


def health_problems(replicas: ReplicaManager, disk_room: DiskRoom) -> list[str]:
    """What an operator has to see to, one line each, with a bound."""
    problems = []
    if disk_room.is_full:
        problems.append(f"no room on the disk: {disk_room.free_bytes} bytes free")
    offline = offline_partitions(replicas)
    problems += [
        f"partition {name} is offline: {reason}"
        for name, reason in islice(offline.items(), PROBLEMS_MAX)
    ]
    if len(offline) > PROBLEMS_MAX:
        problems.append(f"and {len(offline) - PROBLEMS_MAX} more partitions are offline")
    damaged = [each.topic_partition for each in replicas if each.log.corrupt_ranges]
    if damaged:
        names = ", ".join(str(name) for name in damaged[:PROBLEMS_MAX])
        problems.append(f"{len(damaged)} partitions are damaged on this disk: {names}")
    return problems


def offline_partitions(replicas: ReplicaManager) -> dict[TopicPartition, BrokerError]:
    """The partitions whose log could not be opened, or failed since, and why."""
    failed = {
        partition.topic_partition: partition.log.failure
        for partition in replicas
        if partition.log.failure is not None
    }
    return {**replicas.offline, **failed}


def unserved_partitions(
    broker_id: BrokerId, image: ClusterImage, replicas: ReplicaManager
) -> list[TopicPartition]:
    """The partitions that clients are sent to this broker for, and that it does not serve."""
    return [
        TopicPartition(topic.name, index)
        for topic in image.topics.values()
        for index, state in enumerate(topic.partitions)
        if image.leader_of(state) == broker_id
        and ((found := replicas.find(topic.name, index)) is None or not found.leads)
    ]


def membership_problems(session: SessionState, unserved: Sequence[TopicPartition]) -> Iterable[str]:
    """What an operator has to know about this broker's place in its cluster."""
    if session is not SessionState.CONNECTED:
        yield f"the session with ZooKeeper is {session}"
    if unserved:
        some = ", ".join(str(each) for each in unserved[:PROBLEMS_MAX])
        yield f"leader of {len(unserved)} partitions that it does not serve: {some}"


def cluster_metrics(
    broker_id: BrokerId,
    image: ClusterImage,
    session: SessionState,
    unserved: Sequence[TopicPartition],
) -> Iterable[Metric]:
    """How this broker stands in its cluster, and what of the cluster is not well."""
    leaderless = under_replicated = moving = 0
    for topic in image.topics.values():
        for state in topic.partitions:
            leaderless += image.leader_of(state) == NO_BROKER
            alive = [each for each in state.in_sync if each in image.brokers]
            under_replicated += len(alive) < len(state.target_replicas)
            moving += bool(state.adding or state.removing or state.planned_replicas)
    yield _gauge(
        "zhumq_session_connected",
        "Whether the others take this broker for alive.",
        session is SessionState.CONNECTED,
    )
    yield _gauge(
        "zhumq_controller",
        "Whether this broker decides for the cluster.",
        image.controller_id == broker_id,
    )
    yield _gauge("zhumq_cluster_brokers", "Live brokers of the cluster.", len(image.brokers))
    yield _gauge("zhumq_cluster_partitions", "Partitions of the cluster.", image.partition_count)
    yield _gauge(
        "zhumq_partitions_unserved",
        "Partitions that this broker is the leader of and does not serve.",
        len(unserved),
    )
    yield _gauge(
        "zhumq_cluster_partitions_leaderless",
        "Partitions without a leader that serves, as far as this broker knows.",
        leaderless + len(unserved),
    )
    yield _gauge(
        "zhumq_cluster_partitions_under_replicated",
        "Partitions with replicas that are dead or not in sync.",
        under_replicated,
    )
    yield _gauge("zhumq_cluster_partitions_moving", "Partitions on the move.", moving)
    yield _counter("zhumq_cluster_changes_total", "Changes of the cluster.", image.version)


def _counter(name: str, help_text: str, value: float) -> Metric:
    return Metric(name=name, kind="counter", help=help_text, samples=[(_NO_LABELS, value)])


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return Metric(name=name, kind="gauge", help=help_text, samples=[(_NO_LABELS, value)])
