"""Where the sources of a pipeline begin: at what the file says, or at a position that was given instead."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from zhumq.admin.offsets import Position
from zhumq.model.ids import TopicPartition
from zhumq.pipelines.brokers import Brokers
from zhumq.pipelines.checkpoints import Start
from zhumq.pipelines.spec import Pipeline, TopicSource
from zhumq.spark.cluster_client import EARLIEST
from zhumq.spark.options import ReadOptions, read_options
from zhumq.spark.planner import connect, find_partitions, resolve_bound
from zhumq.spark.ranges import Offsets, from_json, to_json

_BEGINNINGS: Final = frozenset(
    {"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"}
)


def offsets_at(source: TopicSource, brokers: Brokers, position: Position | None) -> Offsets:
    """The offset of each partition of a source at a position; None: where the file lets it begin."""
    given = {} if position is None else _options_of(position)
    options = _read_options(source, brokers, given)
    with connect(options) as client:
        places = find_partitions(client, options)
        return resolve_bound(client, options.start, places, options)


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
