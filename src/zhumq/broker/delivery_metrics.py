"""Metrics of subscriptions: lag, in flight, delivered, redelivered, dead letters."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from zhumq.cluster.store import MetadataStore
from zhumq.coordinators.delivery_service import DeliveryService
from zhumq.coordinators.offset_times import Place
from zhumq.coordinators.share_partition_delivery import SharePartitionDelivery
from zhumq.model.metric import Metric, escape_label
from zhumq.replication.replica_manager import ReplicaManager
from zhumq.share.push_session import SessionState
from zhumq.share.shard import DeliveryShard

_Name = tuple[str, str]  # group and topic


def delivery_metrics(
    service: DeliveryService,
    shards: Sequence[DeliveryShard],
    store: MetadataStore,
    replicas: ReplicaManager,
) -> Iterable[Metric]:
    """Current values for the share partitions and shards of this broker."""
    opened = list(service.opened())
    lags: Counter[_Name] = Counter()
    for each in share_partitions_behind(service, shards, store, replicas):
        lags[each.group, each.topic] += each.messages
    closed = service.counters
    yield _by_subscription(
        "zhumq_subscription_lag", "gauge", "Messages a group is not done with.",
        lags,
    )  # fmt: skip
    yield _by_subscription(
        "zhumq_subscription_in_flight", "gauge", "Messages that consumers of a group hold.",
        _summed(opened, lambda share_partition: share_partition.in_flight),
    )  # fmt: skip
    for name, help_text, of_share_partition, before in (
        (
            "delivered",
            "Messages delivered to consumers, repetitions included.",
            lambda share_partition: share_partition.acquired_total,
            closed.acquired,
        ),
        (
            "acknowledged",
            "Messages that consumers have processed.",
            lambda share_partition: share_partition.acknowledged_total,
            closed.acknowledged,
        ),
        (
            "nacked",
            "Messages that consumers could not process and asked for again.",
            lambda share_partition: share_partition.nacked_total,
            closed.nacked,
        ),
        (
            "rejected",
            "Messages that consumers sent to the dead letters.",
            lambda share_partition: share_partition.rejected_total,
            closed.rejected,
        ),
        (
            "redeliveries",
            "Messages delivered again.",
            lambda share_partition: share_partition.redeliveries,
            closed.redeliveries,
        ),
        (
            "dead_letters",
            "Messages written to the dead letters.",
            lambda share_partition: share_partition.dead_letters_total,
            closed.dead_letters,
        ),
        (
            "filtered",
            "Messages that the filter of a group excluded.",
            lambda share_partition: share_partition.filtered_total,
            closed.filtered,
        ),
    ):
        sums = Counter(before)
        sums.update(_summed(opened, of_share_partition))
        yield _by_subscription(f"zhumq_subscription_{name}_total", "counter", help_text, sums)
    sessions: Counter[str] = Counter()
    for shard in shards:
        sessions.update(shard.session_states())
    yield Metric(
        name="zhumq_push_sessions",
        kind="gauge",
        help="Push sessions whose state is kept here.",
        labels=("state",),
        samples=[
            (f'{{state="{state.value}"}}', sessions[state.value])
            for state in (SessionState.ACTIVE, SessionState.RETRYING, SessionState.PARKED)
        ],
    )


class Behind(NamedTuple):
    """A share partition, and how far its group is behind in it."""

    group: str
    topic: str
    place: Place  # of the first message that the group is not done with
    messages: int


def share_partitions_behind(
    service: DeliveryService,
    shards: Iterable[DeliveryShard],
    store: MetadataStore,
    replicas: ReplicaManager,
) -> list[Behind]:
    """The share partitions here: those with consumers, and those without, which are not open but still fall behind."""
    opened = list(service.opened())
    found = [
        Behind(
            each.group, each.topic, Place(each.served.topic_partition, each.start_offset), each.lag
        )
        for each in opened
    ]
    is_open = {each.key for each in opened}
    for shard in shards:
        for key, kept in shard.share_partitions().items():
            topic = store.image.topics_by_id.get(key.topic_id)
            served = None if topic is None else replicas.find(topic.name, key.partition)
            if topic is not None and served is not None and key not in is_open:
                start_offset = kept.state.start_offset
                messages = max(served.high_watermark - start_offset - kept.state.done_count, 0)
                place = Place(served.topic_partition, start_offset)
                found.append(Behind(key.group_id, topic.name, place, messages))
    return found


def _summed(
    share_partitions: Iterable[SharePartitionDelivery],
    value_of: Callable[[SharePartitionDelivery], int],
) -> Counter[_Name]:
    sums: Counter[_Name] = Counter()
    for share_partition in share_partitions:
        sums[share_partition.group, share_partition.topic] += value_of(share_partition)
    return sums


def _by_subscription(name: str, kind: str, help_text: str, values: Mapping[_Name, int]) -> Metric:
    return Metric(
        name=name,
        kind=kind,
        help=help_text,
        labels=("group", "topic"),
        samples=[
            (f'{{group="{escape_label(group)}",topic="{escape_label(topic)}"}}', value)
            for (group, topic), value in values.items()
        ],
    )
