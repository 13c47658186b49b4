"""Where the sources of a pipeline begin: at what the file says, or at a position that was given instead."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from zhumq.admin.offsets import Position
from zhumq.model.errors import ZhumqError
from zhumq.model.ids import TopicPartition
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.checkpoints import Start
from zhumq.pipelines.spec import Pipeline, TopicSource
from zhumq.spark.cluster_client import EARLIEST, ClusterClient
from zhumq.spark.options import ReadOptions, read_options
from zhumq.spark.planner import connect, find_partitions, resolve_bound, topic_ids_of
from zhumq.spark.ranges import Offsets, TopicIds, from_json, to_json

GROUP_SECONDS_MAX: Final = 5.0  # that a start waits for the offsets of a group
_BEGINNINGS: Final = frozenset(
    {"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"}
)
# What the offsets of a range stand for, and filters, which a range has none of.
_BOUNDS: Final = _BEGINNINGS | {
    "subscribe", "subscribepattern", "assign", "pushfilters", "startingoffsetsbytimestampstrategy",
}  # fmt: skip


def offsets_at(source: TopicSource, brokers: Brokers, position: Position | None) -> Offsets:
    """The offset of each partition of a source at a position; None: where the file lets it begin."""
    given = {} if position is None else _options_of(position)
    options = _read_options(source, brokers, given)
    with connect(options) as client:
        places = find_partitions(client, options)
        return resolve_bound(client, options.start, places, options)


def offsets_at_each(
    source: TopicSource, brokers: Brokers, positions: Sequence[Position]
) -> tuple[list[Offsets], TopicIds]:
    """The offsets of each partition of a source at several positions, and the ids of its topics."""
    options = [_read_options(source, brokers, _options_of(each)) for each in positions]
    with connect(options[0]) as client:
        places = find_partitions(client, options[0])
        found = [resolve_bound(client, each.start, places, each) for each in options]
        return found, topic_ids_of(client, places)


def options_between(source: TopicSource, first: Offsets, until: Offsets) -> dict[str, str]:
    """The options of a source for a batch of these offsets, `until` exclusive, in tasks as those of a stream."""
    kept = {
        name: text for name, text in source.batch_options.items() if name.lower() not in _BOUNDS
    }
    assigned: dict[str, list[int]] = {}
    for place in sorted(until):
        assigned.setdefault(place.topic, []).append(place.partition)
    return {
        **kept,
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(to_json(first)),
        "endingOffsets": json.dumps(to_json(until)),
    }


def beginning_at(pipeline: Pipeline, start: Start | None, brokers: Brokers) -> Pipeline:
    """The pipeline whose sources begin where a reset has put them. Those with a checkpoint go on from it."""
    if not start:
        return pipeline
    return replace(
        pipeline,
        sources=tuple(
            _at(each, from_json(start[each.name]), brokers)
            if isinstance(each, TopicSource) and each.name in start
            else each
            for each in pipeline.sources
        ),
    )


def partitions_of(source: TopicSource, brokers: Brokers) -> list[TopicPartition]:
    """The partitions that a source reads."""
    options = _read_options(source, brokers, {})
    with connect(options) as client:
        return find_partitions(client, options)


def has_read(pipeline: Pipeline, brokers: Brokers) -> bool:
    """Whether the group of a pipeline has committed progress in a topic that it reads, as far as the brokers say."""
    sources = [each for each in pipeline.sources if isinstance(each, TopicSource)]
    try:
        topics = {
            place.topic
            for each in sources
            if "path" not in each.options
            for place in partitions_of(each, brokers)
        }
        with ClusterClient(
            brokers.bootstrap, retry_seconds_max=GROUP_SECONDS_MAX, security=brokers.security()
        ) as client:
            found = client.committed_offsets(pipeline.name)
    except ZhumqError:
        return False  # This user may not look at groups. The queries say what else is wrong.
    return any(offset and place.topic in topics for place, offset in found.items())


def start_of(offsets: Mapping[str, Offsets]) -> Start:
    """The offsets of some sources as a document."""
    return {name: to_json(each) for name, each in offsets.items()}


def _at(source: TopicSource, start: Offsets, brokers: Brokers) -> TopicSource:
    """The source with these offsets. A partition that came later is read from its beginning."""
    offsets = {place: start.get(place, EARLIEST) for place in partitions_of(source, brokers)}
    text = json.dumps(to_json(offsets))
    return replace(source, options={**_without_beginning(source.options), "startingOffsets": text})


def _read_options(source: TopicSource, brokers: Brokers, given: Mapping[str, str]) -> ReadOptions:
    own = _without_beginning(source.options) if given else source.options
    return read_options({**brokers.options(), **own, **given}, streaming=True)


def _without_beginning(options: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in options.items() if name.lower() not in _BEGINNINGS}


def _options_of(position: Position) -> dict[str, str]:
    if position.edge is not None:
        return {"startingOffsets": position.edge}
    assert position.timestamp_ms is not None, "an offset is of one partition"
    return {
        "startingTimestamp": str(position.timestamp_ms),
        # A time behind the last record is the end.
        "startingOffsetsByTimestampStrategy": "latest",
    }
