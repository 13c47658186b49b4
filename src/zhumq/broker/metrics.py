"""Metrics and health problems of a broker, collected at a scrape from the parts that count them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from zhumq.broker.authentication import Authentication
from zhumq.broker.dispatch import Dispatcher
from zhumq.cluster.store import SessionState
from zhumq.coordinators.half_message_mover import HalfMessageMover
from zhumq.coordinators.half_message_service import HalfMessageService
from zhumq.coordinators.key_indexer import KeyIndexer
from zhumq.coordinators.key_lookup import LookupService
from zhumq.coordinators.marker_writer import MarkerWriter
from zhumq.coordinators.schema_validation import SchemaValidation
from zhumq.half_messages.message import HalfState
from zhumq.half_messages.shard import HalfShard
from zhumq.metadata.image import NO_BROKER, ClusterImage
from zhumq.model.errors import BrokerError
from zhumq.model.ids import BrokerId, TopicPartition
from zhumq.model.metric import Metric
from zhumq.net.listener import Listener
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.storage.disk_room import DiskRoom
from zhumq.storage.retention_pass import Retention
from zhumq.storage.scrub import Scrubber
from zhumq.transactions.shard import TransactionShard
from zhumq.transactions.transaction import NO_TIMEOUT_MS, TransactionState

PROBLEMS_MAX: Final = 20  # partitions that /healthz names
_NO_LABELS = ""
_PARTITION_LABELS: Final = ("topic", "partition")


def authentication_metrics(authentication: Authentication) -> Iterable[Metric]:
    yield _counter(
        "zhumq_authentications_total", "Clients that authenticated.", authentication.succeeded
    )
    yield _counter(
        "zhumq_authentications_failed_total",
        "Clients whose authentication failed.",
        authentication.failed,
    )


def broker_metrics(
    listener: Listener,
    dispatcher: Dispatcher,
    replicas: ReplicaManager,
    disk_room: DiskRoom,
    scrubber: Scrubber,
) -> Iterable[Metric]:
    """Current values. The scrape pays for collecting them, not the hot path."""
    counters = listener.counters
    yield _counter("zhumq_requests_total", "Requests handled.", dispatcher.requests_handled)
    yield _gauge(
        "zhumq_requests_in_flight", "Requests not answered yet.", counters.requests_in_flight
    )
    yield _gauge("zhumq_connections", "Open connections.", counters.connections_open)
    yield _counter(
        "zhumq_connections_refused_total",
        "Connections refused because of a limit.",
        counters.connections_refused,
    )
    yield _counter(
        "zhumq_connections_malformed_total",
        "Connections closed because of a malformed request.",
        counters.connections_malformed,
    )
    yield _counter(
        "zhumq_tls_handshakes_failed_total",
        "Connections closed because their TLS handshake failed.",
        counters.handshakes_failed,
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
        "Bytes of requests being received or not answered yet.",
        listener.memory.bytes_used,
    )
    yield _counter("zhumq_received_bytes_total", "Bytes of requests.", counters.bytes_received)
    yield _counter("zhumq_sent_bytes_total", "Bytes of answers.", counters.bytes_answered)
    yield _gauge("zhumq_partitions", "Partitions that this broker has a replica of.", len(replicas))
    led = sum(partition.leads for partition in replicas)
    yield _gauge("zhumq_partitions_led", "Partitions that this broker leads and serves.", led)
    recovering = sum(not partition.is_intact for partition in replicas)
    yield _gauge(
        "zhumq_partitions_recovering",
        "Recovering replicas: they fetch what was lost here, and do not count until they have it.",
        recovering,
    )
    # An alias for one release.
    yield _gauge("zhumq_partitions_healing", "Use zhumq_partitions_recovering instead.", recovering)
    yield _gauge(
        "zhumq_partitions_offline",
        "Partitions of this broker whose log cannot be opened or written.",
        len(offline_partitions(replicas)),
    )
    yield _gauge(
        "zhumq_disk_free_bytes",
        "Free bytes on the disk of the data folder.",
        disk_room.usage.free_bytes,
    )
    yield _gauge(
        "zhumq_disk_total_bytes",
        "Bytes of the disk of the data folder.",
        disk_room.usage.total_bytes,
    )
    yield _gauge(
        "zhumq_disk_full", "Whether writes are refused because the disk is full.", disk_room.is_full
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
        sizes.append((labels, partition.size_bytes))
        ends.append((labels, partition.log_end_offset))
        if partition.corrupt_ranges:
            corrupt.append((labels, len(partition.corrupt_ranges)))
    yield Metric(
        name="zhumq_log_bytes",
        kind="gauge",
        help="Size of a partition on disk.",
        labels=_PARTITION_LABELS,
        samples=sizes,
    )
    yield Metric(
        name="zhumq_log_end_offset",
        kind="gauge",
        help="Log end offset.",
        labels=_PARTITION_LABELS,
        samples=ends,
    )
    yield Metric(
        name="zhumq_log_corrupt_ranges",
        kind="gauge",
        help="Ranges of a partition that fail their checksum.",
        labels=_PARTITION_LABELS,
        samples=corrupt,
    )


def retention_metrics(retention: Retention, disk_room: DiskRoom) -> Iterable[Metric]:
    """How full the disk is, and what retention deleted since the start, by reason."""
    yield _gauge(
        "zhumq_disk_used_percent",
        "How full the disk of the data folder is.",
        disk_room.usage.used_percent,
    )
    yield _gauge(
        "zhumq_disk_writes_refused",
        "Whether messages are refused because the disk is above its highest watermark.",
        bool(disk_room.refusal),
    )
    deleted = [(f'{{reason="{reason}"}}', count) for reason, count in retention.deleted.items()]
    yield Metric(
        name="zhumq_retention_segments_total",
        kind="counter",
        help="Segments that retention deleted.",
        labels=("reason",),
        samples=[(labels, count.segments) for labels, count in deleted],
    )
    yield Metric(
        name="zhumq_retention_bytes_total",
        kind="counter",
        help="Bytes of the segments that retention deleted.",
        labels=("reason",),
        samples=[(labels, count.size_bytes) for labels, count in deleted],
    )


def transaction_metrics(
    shards: Iterable[TransactionShard], markers: MarkerWriter, now_ms: int
) -> Iterable[Metric]:
    """The transactions that this broker coordinates."""
    unfinished = [each for shard in shards for each in shard.unfinished()]
    begun = [each for each in unfinished if each.state is TransactionState.ONGOING]
    oldest_ms = min((each.start_ms for each in begun), default=now_ms)
    yield _gauge("zhumq_transactions_open", "Open transactions.", len(begun))
    yield _gauge(
        "zhumq_transactions_two_phase_open",
        "Open transactions of two-phase producers, which do not time out.",
        sum(each.timeout_ms == NO_TIMEOUT_MS for each in begun),
    )
    yield _gauge(
        "zhumq_transactions_ending",
        "Transactions that are decided, and whose markers are not all written.",
        len(unfinished) - len(begun),
    )
    yield _gauge(
        "zhumq_transactions_oldest_open_seconds",
        "The age of the oldest open transaction; 0 without one.",
        max(now_ms - oldest_ms, 0) / 1000,
    )
    yield _counter(
        "zhumq_transactions_committed_total",
        "Committed transactions whose markers are written.",
        markers.committed_total,
    )
    yield _counter(
        "zhumq_transactions_aborted_total",
        "Aborted transactions whose markers are written, timeouts included.",
        markers.aborted_total,
    )


def half_message_metrics(
    shards: Sequence[HalfShard], service: HalfMessageService, mover: HalfMessageMover
) -> Iterable[Metric]:
    """The half messages that this broker coordinates."""
    counts = Counter(each.state for shard in shards for each in shard.messages.values())
    for state, help_text in (
        (HalfState.PENDING, "Half messages that no producer has decided on."),
        (HalfState.COMMITTED, "Committed half messages that are not in their topics yet."),
        (HalfState.FAILED, "Committed half messages that their topics refuse."),
        (HalfState.GIVEN_UP, "Half messages that were rolled back because no producer decided."),
    ):
        name = state.name.lower()
        yield _gauge(f"zhumq_half_messages_{name}", help_text, counts[state])
    yield _gauge(
        "zhumq_half_message_producers",
        "Connected producers that are asked about half messages.",
        service.producers_count,
    )
    yield _counter(
        "zhumq_half_message_checks_total",
        "Checks that were sent to producers of half messages.",
        service.checks_total,
    )
    yield _counter(
        "zhumq_half_messages_moved_total",
        "Half messages that were moved into their topics.",
        mover.moved_total,
    )


def lookup_metrics(indexer: KeyIndexer, lookups: LookupService) -> Iterable[Metric]:
    """The key indexes that this broker keeps, and the lookups that it answered as a leader."""
    yield _gauge(
        "zhumq_key_index_partitions", "Partitions whose key index is kept here.", len(indexer)
    )
    yield _gauge(
        "zhumq_key_index_lag",
        "Offsets of these partitions that are not indexed yet: lookups scan them.",
        indexer.lag,
    )
    yield _counter("zhumq_lookups_total", "Lookups by key or tag.", lookups.answered)
    yield _counter(
        "zhumq_lookups_scanned_offsets_total",
        "Offsets that lookups read one by one, because no index had them.",
        lookups.scanned,
    )


def schema_metrics(validation: SchemaValidation) -> Iterable[Metric]:
    """Produced batches of topics that set schema.validation."""
    yield _counter(
        "zhumq_schema_refused_batches_total",
        "Batches refused because a message has the id of a schema that is not registered.",
        validation.refused,
    )


def health_problems(replicas: ReplicaManager, disk_room: DiskRoom) -> list[str]:
    """Problems that an operator has to solve, one line each, limited in number."""
    problems = []
    if disk_room.is_full:
        problems.append(f"no room on the disk: {disk_room.usage.free_bytes} bytes free")
    elif disk_room.refusal:
        problems.append(disk_room.refusal)
    offline = offline_partitions(replicas)
    problems += [
        f"partition {name} is offline: {reason}"
        for name, reason in islice(offline.items(), PROBLEMS_MAX)
    ]
    if len(offline) > PROBLEMS_MAX:
        problems.append(f"and {len(offline) - PROBLEMS_MAX} more partitions are offline")
    damaged = [each.topic_partition for each in replicas if each.corrupt_ranges]
    if damaged:
        names = ", ".join(str(name) for name in damaged[:PROBLEMS_MAX])
        problems.append(f"{len(damaged)} partitions are damaged on this disk: {names}")
    return problems


def offline_partitions(replicas: ReplicaManager) -> dict[TopicPartition, BrokerError]:
    """The partitions whose log could not be opened or has failed since, with the reason."""
    failed = {
        partition.topic_partition: partition.failure
        for partition in replicas
        if partition.failure is not None
    }
    return {**replicas.offline, **failed}


def unserved_partitions(
    broker_id: BrokerId, image: ClusterImage, replicas: ReplicaManager
) -> list[TopicPartition]:
    """The partitions whose leader is this broker in the metadata, and that it does not serve."""
    return [
        TopicPartition(topic.name, index)
        for topic in image.topics.values()
        for index, state in enumerate(topic.partitions)
        if image.leader_of(state) == broker_id
        and ((found := replicas.find(topic.name, index)) is None or not found.leads)
    ]


def membership_problems(session: SessionState, unserved: Sequence[TopicPartition]) -> Iterable[str]:
    """Problems of this broker's membership in its cluster, one line each."""
    if session is not SessionState.CONNECTED:
        yield f"the session with ZooKeeper is {session}"
    if unserved:
        some = ", ".join(str(each) for each in unserved[:PROBLEMS_MAX])
        yield f"leader of {len(unserved)} partitions that it does not serve: {some}"


class PartitionCounts(NamedTuple):
    """Partitions of a cluster that need attention."""

    leaderless: int
    under_replicated: int
    moving: int


def partition_counts(image: ClusterImage) -> PartitionCounts:
    """Count the partitions by what is unusual about them."""
    leaderless = under_replicated = moving = 0
    for topic in image.topics.values():
        for state in topic.partitions:
            leaderless += image.leader_of(state) == NO_BROKER
            alive = [each for each in state.in_sync if each in image.brokers]
            under_replicated += len(alive) < len(state.target_replicas)
            moving += bool(state.adding or state.removing or state.planned_replicas)
    return PartitionCounts(leaderless, under_replicated, moving)


def cluster_metrics(
    broker_id: BrokerId,
    image: ClusterImage,
    session: SessionState,
    unserved: Sequence[TopicPartition],
) -> Iterable[Metric]:
    """This broker's membership, and counts of partitions of the cluster by problem."""
    counts = partition_counts(image)
    yield _gauge(
        "zhumq_session_connected",
        "Whether the session with ZooKeeper is connected.",
        session is SessionState.CONNECTED,
    )
    yield _gauge(
        "zhumq_controller",
        "Whether this broker is the controller.",
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
        "Partitions without a leader, and those this broker leads and does not serve.",
        counts.leaderless + len(unserved),
    )
    yield _gauge(
        "zhumq_cluster_partitions_under_replicated",
        "Partitions with replicas that are dead or not in sync.",
        counts.under_replicated,
    )
    yield _gauge("zhumq_cluster_partitions_moving", "Partitions being reassigned.", counts.moving)
    yield _counter(
        "zhumq_cluster_changes_total", "Changes of the cluster's metadata.", image.version
    )


def _counter(name: str, help_text: str, value: float) -> Metric:
    return Metric(name=name, kind="counter", help=help_text, samples=[(_NO_LABELS, value)])


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return Metric(name=name, kind="gauge", help=help_text, samples=[(_NO_LABELS, value)])
