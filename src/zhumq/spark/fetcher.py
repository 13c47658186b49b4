"""Fetches one offset range of a partition from its leader, one request ahead of the reader."""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from zhumq.client.brokers import RetriableFailure, TopicMissing
from zhumq.client.errors import ClusterFailed
from zhumq.client.wire import Connection
from zhumq.model.errors import ErrorCode, MalformedFrame, ZhumqError
from zhumq.model.ids import TopicPartition
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from zhumq.records.batch import RecordBatch
from zhumq.records.sections import AbortedTransactions, Section, section_of, whole_batches
from zhumq.spark.cluster_client import EARLIEST, ClusterClient

FETCH_BYTES_MAX: Final = 8 * 1024 * 1024  # per request; a larger batch comes whole
FETCH_BYTES_FIRST: Final = 1024 * 1024  # while nothing is known about the size of the records
FETCH_BYTES_MIN: Final = 64 * 1024
FETCH_WAIT_MS: Final = 500
RETRY_SECONDS: Final = 0.2
SAMPLE_BYTES: Final = 64 * 1024
# After this many empty responses from a log that reaches past the range, the range has no records.
EMPTY_ANSWERS_MAX: Final = 3

logger = logging.getLogger(__name__)


class DataLost(ZhumqError):
    """Records of the requested range no longer exist."""


class TopicRecreated(ZhumqError):
    """The topic of this name has another id than the one that the offsets belong to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How a range is read."""

    fail_on_data_loss: bool = True
    read_committed: bool = False
    poll_seconds_max: float = 120.0  # without records from the broker
    fetch_bytes_max: int = FETCH_BYTES_MAX


class RangeFetcher:
    """Fetches the sections of a range in order, without control batches and aborted transactions."""

    def __init__(
        self,
        client: ClusterClient,
        place: TopicPartition,
        first_offset: int,
        until_offset: int,
        settings: FetchSettings,
        *,
        topic_id: str | None = None,
    ) -> None:
        self._client = client
        self._place = place
        self._topic_id = topic_id  # of the topic that the offsets belong to
        self._position = first_offset
        self._log_start = 0  # set when the range begins before it
        self._until = until_offset
        self._settings = settings
        self._fetch_bytes = min(FETCH_BYTES_FIRST, settings.fetch_bytes_max)

    def sections(self) -> Iterator[Section]:
        """Read the range once. While the reader decodes one response, the next request is in flight."""
        asked: Connection | None = None  # has a request in flight
        deadline = time.monotonic() + self._settings.poll_seconds_max
        empty_answers = 0
        while self._position < self._until:
            try:
                batches, answer = self._receive(asked or self._ask())
            except TopicMissing:
                self._report_loss("the topic no longer exists")
                return
            except TopicRecreated as error:
                self._report_loss(str(error))
                return
            except (OSError, RetriableFailure, MalformedFrame) as error:
                asked = None
                self._wait_out(error, deadline)
                continue
            asked = None
            if batches:
                deadline = time.monotonic() + self._settings.poll_seconds_max
                empty_answers = 0
                self._position = batches[-1].header.next_offset
                self._fetch_bytes = self._bytes_left(batches)
                asked = self._ask_ahead()
                yield from self._visible(batches, answer)
            elif self._end(answer) >= self._until:
                empty_answers += 1
                if empty_answers == EMPTY_ANSWERS_MAX:
                    return  # Compaction has removed these records.
            elif time.monotonic() > deadline:
                self._report_loss(f"the log ends at {self._end(answer)}")
                return

    def sample(self) -> list[RecordBatch]:
        """The first few batches of the range."""
        return self._receive(self._ask())[0]

    def _ask_ahead(self) -> Connection | None:
        """Send the next request early. If that fails, sections() sends it again."""
        if self._position >= self._until:
            return None
        try:
            return self._ask()
        except (OSError, RetriableFailure, TopicMissing, TopicRecreated):
            self._client.forget()
            return None

    def _ask(self) -> Connection:
        connection = self._client.leader(self._place)
        topic_id = self._client.topic_id(self._place.topic)
        if self._topic_id is not None and topic_id not in (None, self._topic_id):
            raise TopicRecreated(f"the topic was deleted and created again (id {topic_id})")
        settings = self._settings
        connection.send(
            ApiKey.FETCH,
            FetchRequest(
                max_wait_ms=FETCH_WAIT_MS,
                min_bytes=1,
                max_bytes=self._fetch_bytes,
                isolation_level=int(settings.read_committed),
                topics=[
                    FetchTopic(
                        topic=self._place.topic,
                        partitions=[
                            FetchPartition(
                                partition=self._place.partition,
                                fetch_offset=self._position,
                                partition_max_bytes=self._fetch_bytes,
                            )
                        ],
                    )
                ],
            ),
        )
        return connection

    def _bytes_left(self, batches: list[RecordBatch]) -> int:
        """About the size of the rest of the range, so that a short range does not fetch beyond its end."""
        offsets = self._position - batches[0].header.base_offset
        size = sum(each.header.size for each in batches)
        left = size * max(0, self._until - self._position) // max(1, offsets)
        # Somewhat more, so that the last few records do not need a request of their own.
        return min(max(left + left // 8, FETCH_BYTES_MIN), self._settings.fetch_bytes_max)

    def _receive(self, connection: Connection) -> tuple[list[RecordBatch], Any]:
        response = connection.receive(ApiKey.FETCH)
        self._client.check(response.error_code, self._doing)
        answer = response.responses[0].partitions[0]
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._skip_to_start()
            return [], answer
        self._client.check(answer.error_code, self._doing)
        if not answer.records:
            return [], answer
        batches = list(whole_batches(answer.records))
        if not batches:
            raise MalformedFrame(f"cannot {self._doing}: the broker sent an incomplete batch")
        return batches, answer

    def _visible(self, batches: list[RecordBatch], answer: Any) -> Iterator[Section]:
        aborted = AbortedTransactions(
            (each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()
        )
        for batch in batches:
            if batch.header.base_offset >= self._until:
                return
            if not aborted.hides(batch):
                yield section_of(batch, self._log_start)

    def _skip_to_start(self) -> None:
        """The position is outside the log: its beginning was deleted, or its end was lost."""
        start = self._client.list_offsets({self._place: EARLIEST})[self._place]
        if start > self._position:
            self._report_loss(f"the log begins at {start}")
            self._position = min(start, self._until)
            self._log_start = start
        else:
            self._report_loss("the log has become shorter")
            self._position = self._until

    def _report_loss(self, why: str) -> None:
        words = (
            f"{self._place.topic}-{self._place.partition}: offsets from {self._position} on, up to"
            f" {self._until}, cannot be read, since {why}"
        )
        if self._settings.fail_on_data_loss:
            raise DataLost(
                f"{words}; retention may have deleted them, or the topic was created again."
                " Set failOnDataLoss to false to go on without them"
            )
        logger.warning("%s; going on without them, as failOnDataLoss is false", words)

    def _end(self, answer: Any) -> int:
        """The offset up to which the broker serves records."""
        settings = self._settings
        end: int = answer.last_stable_offset if settings.read_committed else answer.high_watermark
        return end

    def _wait_out(self, error: Exception, deadline: float) -> None:
        """Wait before the next attempt, or fail if the leader has been unavailable for too long."""
        self._client.forget()
        if time.monotonic() > deadline:
            raise ClusterFailed(
                f"cannot {self._doing}: {error or type(error).__name__}"
                f" (tried for {self._settings.poll_seconds_max:.0f} s)"
            ) from error
        time.sleep(RETRY_SECONDS)

    @property
    def _doing(self) -> str:
        return f"read {self._place.topic}-{self._place.partition} at {self._position}"


def sample_row_bytes(client: ClusterClient, place: TopicPartition, offset: int) -> float | None:
    """About how many bytes an offset takes from here on; None if there are no records."""
    fetcher = RangeFetcher(
        client, place, offset, offset + 1, FetchSettings(fetch_bytes_max=SAMPLE_BYTES)
    )
    batches = client.retrying(fetcher.sample, f"sample {place}")
    offsets = sum(each.header.last_offset_delta + 1 for each in batches)
    return sum(each.header.size for each in batches) / offsets if offsets else None
