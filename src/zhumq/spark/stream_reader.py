"""The stream reader: what each trigger reads, and the query's progress as offsets of a group."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from zhumq.client.brokers import TopicMissing
from zhumq.client.errors import ClusterFailed
from zhumq.model.ids import TopicPartition
from zhumq.spark.cluster_client import EARLIEST, LATEST, ClusterClient
from zhumq.spark.fetcher import DataLost, sample_row_bytes
from zhumq.spark.options import ReadOptions
from zhumq.spark.planner import connect, find_partitions, resolve_bound, topic_ids_of
from zhumq.spark.ranges import (
    OffsetRange,
    Offsets,
    TopicIds,
    from_json,
    limit_offsets,
    recreated_topics,
    split_ranges,
    to_json,
    topic_ids_from_json,
)
from zhumq.spark.reader import RangePartition, read_range

Document = dict[str, Any]
# The group only shows the progress in the checkpoint: a query waits less long for it than for records.
COMMIT_SECONDS_MAX: Final = 5.0

logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One instance on the driver for as long as the query runs; tasks only call read()."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._target: Offsets | None = None  # where an available-now run ends
        self._latest: Offsets = {}  # the ends of the partitions, as last seen
        self._topic_ids: TopicIds = {}  # of their topics
        self._committed: Offsets = {}  # the offsets that were last committed to the group
        self._commit_failure: str | None = None  # logged once, not at each trigger
        self._triggered_at = time.monotonic()

    def initialOffset(self) -> Document:  # noqa: N802
        with connect(self._options) as client:
            places = find_partitions(client, self._options)
            offsets = resolve_bound(client, self._options.start, places, self._options)
            return to_json(offsets, topic_ids_of(client, places))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with connect(self._options) as client:
            places = find_partitions(client, self._options)
            self._target = self._list(client, places, LATEST)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark takes one limit only, here to know that there is one; latestOffset applies all of them.
        options = self._options
        if options.rows_per_trigger_max is not None:
            return ReadMaxRows(options.rows_per_trigger_max)
        if options.bytes_per_trigger_max is not None:
            return ReadMaxBytes(options.bytes_per_trigger_max)
        if options.rows_per_trigger_min is not None:
            return ReadMinRows(options.rows_per_trigger_min)
        return ReadAllAvailable()

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:  # noqa: N802
        begin = from_json(start)
        with connect(self._options) as client:
            # Spark calls this when every batch before `start` is finished. Unlike commit(), it also
            # does so after the last batch of an available-now run.
            self._show_progress(begin)
            try:
                end = self._next_end(client, start, limit)
            except TopicMissing:
                # It was deleted after the partitions were listed. Listed again, it is gone.
                end = self._next_end(client, start, limit)
        if end is None:
            return start
        document = to_json(end, self._topic_ids)
        if document != start:
            self._triggered_at = time.monotonic()
        return document

    def reportLatestOffset(self) -> Document | None:  # noqa: N802
        return to_json(self._latest) or None

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        begin, until = from_json(start), from_json(end)
        topic_ids = topic_ids_from_json(end)
        with connect(self._options) as client:
            self._drop_recreated(client, topic_ids, until)
            recreated = set(recreated_topics(topic_ids_from_json(start), topic_ids))
            new = [place for place in until if place not in begin]
            again = [
                place
                for place in until
                if place in begin and (place.topic in recreated or until[place] < begin[place])
            ]
            # With failOnDataLoss=false, a topic that was created again is read from its start.
            begin |= self._list(client, new + again, EARLIEST)
        for place in new:
            # As in Spark's connector: records were deleted before the query knew of the partition.
            if begin[place] > 0 and place.topic not in recreated:
                self._report_loss(
                    f"{place} is new to the query and begins at {begin[place]}, not at 0"
                )
        ranges = split_ranges(
            [
                OffsetRange(
                    place=place,
                    first_offset=begin[place],
                    until_offset=until[place],
                    topic_id=topic_ids.get(place.topic),
                )
                for place in sorted(until)
            ],
            partitions_min=self._options.partitions_min,
            rows_max=self._options.rows_per_partition_max,
        )
        return [RangePartition(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, RangePartition):
            return iter(())
        return read_range(partition.range, self._options)

    def commit(self, end: Document) -> None:
        self._show_progress(from_json(end))

    def _next_end(self, client: ClusterClient, start: Document, limit: ReadLimit) -> Offsets | None:
        """Where the next batch ends; None if there is too little for one. Raises TopicMissing for one that was just deleted."""
        begin = from_json(start)
        latest = self._latest_of(client, begin, topic_ids_from_json(start))
        new = [place for place in latest if place not in begin]
        begin |= self._list(client, new, EARLIEST)
        if isinstance(limit, ReadAllAvailable):
            return latest
        if self._is_too_little(begin, latest):
            return None
        return self._limited(client, begin, latest)

    def _latest_of(
        self, client: ClusterClient, begin: Offsets, topic_ids: Mapping[str, str]
    ) -> Offsets:
        """The ends of the partitions that exist. Logs data loss, or raises DataLost."""
        places = find_partitions(client, self._options, all_must_exist=False)
        self._topic_ids = topic_ids_of(client, places)
        recreated = recreated_topics(topic_ids, self._topic_ids)
        for topic in recreated:
            self._report_loss(_recreated_message(topic, topic_ids[topic], self._topic_ids[topic]))
            for place in [each for each in begin if each.topic == topic]:
                del begin[place]  # The new topic is read from its first offset.
        gone = sorted(set(begin) - set(places))
        if gone:
            self._report_loss(f"{gone[0]} is gone, from offset {begin[gone[0]]} on")
        if self._target is None:
            latest = self._list(client, places, LATEST)
        else:
            known = set(places)
            latest = {place: end for place, end in self._target.items() if place in known}
            # The next run reads partitions that were added after the target was set.
            latest |= {place: begin[place] for place in begin if place in known - set(latest)}
            # The target holds offsets of the deleted topic.
            latest |= self._list(
                client, [each for each in places if each.topic in recreated], LATEST
            )
        for place, end in latest.items():
            if end < begin.get(place, 0):
                self._report_loss(
                    f"{place} ends at {end}, before the offset {begin[place]} reached"
                )
        self._latest = latest
        return dict(latest)

    def _is_too_little(self, begin: Offsets, latest: Offsets) -> bool:
        options = self._options
        if options.rows_per_trigger_min is None or self._target is not None:
            return False  # An available-now run would wait forever.
        waited_ms = (time.monotonic() - self._triggered_at) * 1000
        rows = sum(max(0, latest[place] - begin[place]) for place in latest)
        return rows < options.rows_per_trigger_min and waited_ms < options.trigger_delay_ms_max

    def _limited(self, client: ClusterClient, begin: Offsets, latest: Offsets) -> Offsets:
        rows_max = self._options.rows_per_trigger_max
        bytes_max = self._options.bytes_per_trigger_max
        lags = {place: latest[place] - begin[place] for place in latest}
        behind = max(lags, key=lambda place: lags[place], default=None)
        if bytes_max is not None and behind is not None and lags[behind] > 0:
            # The next few batches of the longest backlog give the bytes per offset.
            row_bytes = sample_row_bytes(client, behind, begin[behind])
            if row_bytes is not None:
                rows = max(1, int(bytes_max / row_bytes))
                rows_max = rows if rows_max is None else min(rows, rows_max)
        return latest if rows_max is None else limit_offsets(begin, latest, rows_max)

    def _list(self, client: ClusterClient, places: Sequence[TopicPartition], which: int) -> Offsets:
        return client.list_offsets(
            dict.fromkeys(places, which), isolation_level=int(self._options.read_committed)
        )

    def _drop_recreated(
        self, client: ClusterClient, topic_ids: Mapping[str, str], until: Offsets
    ) -> None:
        """Drop the ranges of topics that were created again after the batch was planned.

        Spark plans a batch before it runs it, and runs it again after a restart.
        """
        if not topic_ids:
            return
        client.partitions(topic_ids)
        now = {topic: client.topic_id(topic) or topic_ids[topic] for topic in topic_ids}
        for topic in recreated_topics(topic_ids, now):
            self._report_loss(_recreated_message(topic, topic_ids[topic], now[topic]))
            for place in [each for each in until if each.topic == topic]:
                del until[place]

    def _show_progress(self, offsets: Offsets) -> None:
        """Commit to the group what the query has read, for the tools that show its lag.

        A commit that failed is tried again at the next trigger.
        """
        group = self._options.group
        if group is None or not offsets or offsets == self._committed:
            return
        try:
            with ClusterClient(
                self._options.bootstrap,
                retry_seconds_max=COMMIT_SECONDS_MAX,
                security=self._options.security.security(),
            ) as client:
                client.commit_offsets(group, offsets)
        except ClusterFailed as error:
            # The query reads from its checkpoint; the group only shows the progress.
            if str(error) != self._commit_failure:
                logger.warning("cannot commit the progress of the query to its group: %s", error)
            self._commit_failure = str(error)
        else:
            self._committed = dict(offsets)
            self._commit_failure = None

    def _report_loss(self, words: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLost(
                f"{words}; records may have been missed. Set failOnDataLoss to false to go on"
            )
        logger.warning("%s; going on, as failOnDataLoss is false", words)


def _recreated_message(topic: str, before: str, now: str) -> str:
    return f"the topic {topic} was deleted and created again: its id was {before} and is {now}"
