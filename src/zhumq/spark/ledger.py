"""The sink's ledger: a compacted topic with the last micro-batch that each task has written."""

import logging
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from zhumq.client.errors import ClusterFailed
from zhumq.client.kafka_settings import security_settings
from zhumq.client.security import PLAINTEXT, ClientSecurity
from zhumq.model.errors import ZhumqError
from zhumq.model.ids import TopicPartition
from zhumq.spark.batching import record_batches
from zhumq.spark.cluster_client import EARLIEST, LATEST, ClusterClient
from zhumq.spark.columns import KEY, VALUE, Selection
from zhumq.spark.fetcher import FetchSettings, RangeFetcher
from zhumq.spark.options import SINK_LEDGER_TOPIC

LEDGER: Final = TopicPartition(SINK_LEDGER_TOPIC, 0)
# A running query writes the notes of its tasks again with every batch: only notes of ended queries expire.
LEDGER_SETTINGS: Final = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(30 * 24 * 60 * 60 * 1000),
    "segment.bytes": str(1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
BROKERS_DEFAULT: Final = -1  # the broker's default.replication.factor
REQUEST_SECONDS_MAX: Final = 30.0
# Earlier versions kept the batch number as the committed offset of one group per task.
OLD_GROUP_PREFIX: Final = "zhumq-sink"


logger = logging.getLogger(__name__)


class LedgerFailed(ZhumqError):
    """The ledger's topic could not be created."""


class _Notes:
    """The notes of all queries: a process reads the topic once, then only what is new."""

    def __init__(self) -> None:
        self._topic_id: str | None = None
        self._position = 0
        self._last_batches: dict[str, int] = {}

    def last_batch(self, client: ClusterClient, task: str) -> int | None:
        """The last batch that a task has noted."""
        end = client.list_offsets({LEDGER: LATEST})[LEDGER]
        topic_id = client.topic_id(LEDGER.topic)
        if topic_id != self._topic_id or end < self._position:
            self._topic_id, self._last_batches = topic_id, {}
            self._position = client.list_offsets({LEDGER: EARLIEST})[LEDGER]
        if self._position < end:
            self._read_to(client, end)
        return self._last_batches.get(task)

    def _read_to(self, client: ClusterClient, end: int) -> None:
        settings = FetchSettings(fail_on_data_loss=False)
        fetcher = RangeFetcher(client, LEDGER, self._position, end, settings)
        selection = Selection(
            topic=LEDGER.topic,
            partition=LEDGER.partition,
            columns=(KEY, VALUE),
            first_offset=self._position,
            until_offset=end,
        )
        for batch in record_batches(fetcher.sections(), selection):
            keys, values = (column.to_pylist() for column in batch.columns)
            for key, value in zip(keys, values, strict=True):
                # Any client may write to the topic: records that are no notes are skipped.
                if key is not None and value is not None and value.isdigit():
                    self._last_batches[key.decode(errors="replace")] = int(value)
        self._position = end


# Spark uses its Python processes for many tasks; each of them reads the ledger once.
_notes_of: dict[str, _Notes] = {}


class Ledger:
    """Which micro-batches one task of a query has written."""

    def __init__(
        self, bootstrap: str, query: str, task: int, *, security: ClientSecurity = PLAINTEXT
    ) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self.task = f"{query}/{task}"
        self._old_group = f"{OLD_GROUP_PREFIX}-{query}-{task}"
        self._has_old_group = False

    def is_done(self, batch: int) -> bool:
        """Whether the task's rows of this batch are in their topics already."""
        notes = _notes_of.setdefault(self._bootstrap, _Notes())
        with ClusterClient(self._bootstrap, security=self._security) as client:
            last_batch = notes.last_batch(client, self.task)
            if last_batch is None:
                next_batches = client.committed_offsets(self._old_group).values()
                self._has_old_group = bool(next_batches)
                last_batch = max(next_batches, default=0) - 1
        return last_batch >= batch

    def note(self, batch: int) -> tuple[str, str]:
        """Key and value of the record that marks the batch as written."""
        return self.task, str(batch)

    def drop_old_group(self) -> None:
        """Delete the group of an earlier version: after the first note it is not used."""
        if self._has_old_group:
            try:
                with ClusterClient(self._bootstrap, security=self._security) as client:
                    client.delete_group(self._old_group)
            except ClusterFailed as error:
                logger.warning("%s; the group is no longer used", error)


def ensure_ledger(bootstrap: str, *, security: ClientSecurity = PLAINTEXT) -> None:
    """Create the ledger's topic if it does not exist. Raises LedgerFailed."""
    with ClusterClient(bootstrap, security=security) as client:
        if client.partitions([LEDGER.topic]):
            return
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
    admin = AdminClient(settings | security_settings(security))
    topic = NewTopic(LEDGER.topic, 1, BROKERS_DEFAULT, config=LEDGER_SETTINGS)
    made = admin.create_topics([topic], request_timeout=REQUEST_SECONDS_MAX)
    try:
        made[LEDGER.topic].result(2 * REQUEST_SECONDS_MAX)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise LedgerFailed(
                f"cannot create the topic {LEDGER.topic!r}, in which the sink notes the batches"
                f" that it has written: {error.args[0].str()}"
            ) from None
