"""The batch reader: one task per offset range, from a broker or from segment folders."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from zhumq.model.ids import TopicPartition
from zhumq.spark.batching import record_batches
from zhumq.spark.cluster_client import NO_OFFSET, ClusterClient
from zhumq.spark.columns import Selection
from zhumq.spark.fetcher import FetchSettings, RangeFetcher
from zhumq.spark.filters import PushedFilters
from zhumq.spark.options import ReadOptions
from zhumq.spark.planner import connect, plan_batch
from zhumq.spark.ranges import OffsetRange, split_ranges
from zhumq.spark.segments import SegmentRange, plan_segments, read_segment


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """What one task reads from a broker."""

    range: OffsetRange


@dataclass(frozen=True)
class SegmentPartition(InputPartition):
    """What one task reads from a segment file."""

    segment: SegmentRange


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in the tasks."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._filters = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        options = self._options
        if options.path is not None:
            return [
                SegmentPartition(replace(each, range=narrowed))
                for each in plan_segments(options)
                if (narrowed := self._narrow(each.range)) is not None
            ]
        with connect(options) as client:
            planned = [self._narrow(each) for each in plan_batch(client, options)]
            ranges = self._begin_at_timestamp(client, [each for each in planned if each])
        ranges = split_ranges(
            ranges,
            partitions_min=options.partitions_min,
            rows_max=options.rows_per_partition_max,
        )
        return [RangePartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        match partition:
            case RangePartition():
                return read_range(partition.range, self._options)
            case SegmentPartition(segment):
                sections = read_segment(segment, fail_on_data_loss=self._options.fail_on_data_loss)
                return record_batches(sections, selection_of(segment.range, self._options))
            case _:
                return iter(())  # PySpark reads one empty partition where there are none.

    def _narrow(self, whole: OffsetRange) -> OffsetRange | None:
        if not self._filters.picks(whole.place):
            return None
        first, until = self._filters.narrow(whole.first_offset, whole.until_offset)
        return replace(whole, first_offset=first, until_offset=until) if first < until else None

    def _begin_at_timestamp(
        self, client: ClusterClient, ranges: list[OffsetRange]
    ) -> list[OffsetRange]:
        """Start each range at the first record whose timestamp can pass the filters."""
        earliest = self._filters.timestamp_ms_min()
        if earliest is None:
            return ranges
        places: dict[TopicPartition, int] = {each.place: max(earliest, 0) for each in ranges}
        firsts = client.list_offsets(places)
        return [
            replace(each, first_offset=max(each.first_offset, firsts[each.place]))
            for each in ranges
            if firsts[each.place] not in (NO_OFFSET, each.until_offset)
        ]


class FilteringReader(BatchReader):
    """A reader that uses the filters of its query to read less.

    PySpark 4.3 keeps the plan of the first query of a DataFrame with its filters, and uses it again
    for an unfiltered query of the same DataFrame. So the option pushFilters is off by default.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        return self._filters.push(filters)


def read_range(part: OffsetRange, options: ReadOptions) -> Iterator[Any]:
    """The Arrow RecordBatches of one range, fetched from its leader."""
    settings = FetchSettings(
        fail_on_data_loss=options.fail_on_data_loss,
        read_committed=options.read_committed,
        poll_seconds_max=options.poll_ms_max / 1000,
    )
    with connect(options) as client:
        fetcher = RangeFetcher(
            client,
            part.place,
            part.first_offset,
            part.until_offset,
            settings,
            topic_id=part.topic_id,
        )
        yield from record_batches(fetcher.sections(), selection_of(part, options))


def selection_of(part: OffsetRange, options: ReadOptions) -> Selection:
    """The columns and offsets that the decoder takes from a range."""
    return Selection(
        topic=part.place.topic,
        partition=part.place.partition,
        columns=options.columns,
        first_offset=part.first_offset,
        until_offset=part.until_offset,
    )
