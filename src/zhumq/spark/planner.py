"""Resolves options to offset ranges: which partitions are read, and where they begin and end."""

from collections.abc import Iterable

from zhumq.client.brokers import TopicMissing
from zhumq.model.ids import TopicPartition
from zhumq.spark.cluster_client import EARLIEST, LATEST, NO_OFFSET, ClusterClient
from zhumq.spark.options import Bound, OptionInvalid, ReadOptions
from zhumq.spark.ranges import OffsetRange, Offsets, TopicIds


def connect(options: ReadOptions) -> ClusterClient:
    """A client of the cluster that the options name."""
    return ClusterClient(
        options.bootstrap,
        retry_seconds_max=options.poll_ms_max / 1000,
        security=options.security.security(),
    )


def find_partitions(
    client: ClusterClient, options: ReadOptions, *, all_must_exist: bool = True
) -> list[TopicPartition]:
    """The partitions that the options subscribe to."""
    subscription = options.subscription
    if subscription.topics is not None:
        named: Iterable[str] | None = subscription.topics
    elif subscription.partitions is not None:
        named = {each.topic for each in subscription.partitions}
    else:
        named = None
    found = client.partitions(named)
    if all_must_exist:
        for topic in sorted(set(named or ()) - set(found)):
            raise TopicMissing(
                f"there is no topic {topic!r} at {options.bootstrap}:"
                f" create it with `zhumq topic create {topic}`"
            )
    places = [
        TopicPartition(topic, partition)
        for topic, partitions in sorted(found.items())
        for partition in partitions
        if subscription.picks(TopicPartition(topic, partition))
    ]
    if subscription.partitions is not None and all_must_exist:
        for place in sorted(set(subscription.partitions) - set(places)):
            raise TopicMissing(
                f"the topic {place.topic!r} has no partition {place.partition}:"
                f" it has {len(found[place.topic])}"
            )
    return places


def topic_ids_of(client: ClusterClient, places: Iterable[TopicPartition]) -> TopicIds:
    """The ids of the topics of partitions that were just found."""
    found = {place.topic: client.topic_id(place.topic) for place in places}
    return {topic: topic_id for topic, topic_id in found.items() if topic_id is not None}


def resolve_bound(
    client: ClusterClient, bound: Bound, places: list[TopicPartition], options: ReadOptions
) -> Offsets:
    """The offset of each partition at a bound."""
    isolation = int(options.read_committed)
    if bound.everywhere is not None:
        timestamps = dict.fromkeys(places, bound.everywhere)
        return client.list_offsets(timestamps, isolation_level=isolation)
    if bound.timestamp_ms is not None:
        return _by_timestamp(client, bound, dict.fromkeys(places, bound.timestamp_ms), options)
    given = bound.offsets if bound.offsets is not None else bound.timestamps_ms
    assert given is not None
    _check_complete(bound, set(given), set(places))
    if bound.timestamps_ms is not None:
        return _by_timestamp(client, bound, dict(bound.timestamps_ms), options)
    relative = {place: offset for place, offset in given.items() if offset < 0}
    return dict(given) | client.list_offsets(relative, isolation_level=isolation)


def plan_batch(client: ClusterClient, options: ReadOptions) -> list[OffsetRange]:
    """The range of each partition that a batch reads, not yet split."""
    places = find_partitions(client, options)
    starts = resolve_bound(client, options.start, places, options)
    ends = resolve_bound(client, options.end, places, options)
    for place in places:
        # An end that is "latest" or a timestamp may be before the start: then the range is empty.
        if starts[place] > ends[place] and options.end.offsets is not None:
            raise OptionInvalid(
                f"{options.end.option} of {place} is {ends[place]}, before the start {starts[place]}"
            )
    return [
        OffsetRange(
            place=place,
            first_offset=starts[place],
            until_offset=ends[place],
            topic_id=client.topic_id(place.topic),
        )
        for place in places
    ]


def _by_timestamp(
    client: ClusterClient, bound: Bound, timestamps: Offsets, options: ReadOptions
) -> Offsets:
    """The first offsets at or after a timestamp.

    For a partition without such a record, as in Spark's connector: the end of a read is the end of the
    log; a start is an error unless startingOffsetsByTimestampStrategy is latest.
    """
    found = client.list_offsets(timestamps)
    late = [place for place, offset in found.items() if offset == NO_OFFSET]
    if late and bound.option.startswith("starting") and not options.late_start_is_latest:
        raise OptionInvalid(
            f"{bound.option}: {late[0]} has no record at or after {timestamps[late[0]]}; set"
            " startingOffsetsByTimestampStrategy to latest to begin at its end"
        )
    latest = client.list_offsets(
        dict.fromkeys(late, LATEST), isolation_level=int(options.read_committed)
    )
    return found | latest


def _check_complete(bound: Bound, given: set[TopicPartition], places: set[TopicPartition]) -> None:
    """Check that a bound names every partition that is read, and no other. Raises OptionInvalid."""
    missing, unknown = sorted(places - given), sorted(given - places)
    if missing:
        raise OptionInvalid(
            f"{bound.option} has no offset for {missing[0]}: name every partition that is read"
            f" ({EARLIEST}: earliest, {LATEST}: latest)"
        )
    if unknown:
        raise OptionInvalid(f"{bound.option} names {unknown[0]}, which is not read")
