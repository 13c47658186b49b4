"""The sink's ledger: a compacted topic with the last micro-batch that each task has written."""

import logging
from typing import Final

from zhumq.client.errors import ClusterFailed
from zhumq.client.security import PLAINTEXT, ClientSecurity
from zhumq.model.ids import TopicPartition
from zhumq.spark.cluster_client import ClusterClient
from zhumq.spark.options import SINK_LEDGER_TOPIC
from zhumq.spark.topic_table import TopicTable, ensure_topic

LEDGER: Final = TopicPartition(SINK_LEDGER_TOPIC, 0)
# A running query writes the notes of its tasks again with every batch: only notes of ended queries expire.
LEDGER_SETTINGS: Final = {
    "cleanup.policy": "compact,delete",
    "retention.ms": str(30 * 24 * 60 * 60 * 1000),
    "segment.bytes": str(1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
# Earlier versions kept the batch number as the committed offset of one group per task.
OLD_GROUP_PREFIX: Final = "zhumq-sink"


logger = logging.getLogger(__name__)


# Spark uses its Python processes for many tasks; each of them reads the ledger once.
_notes_of: dict[str, TopicTable] = {}


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
        notes = _notes_of.setdefault(self._bootstrap, TopicTable(LEDGER))
        with ClusterClient(self._bootstrap, security=self._security) as client:
            value = notes.read(client).get(self.task, b"")
            # Any client may write to the topic: records that are no notes are skipped.
            last_batch = int(value) if value.isdigit() else None
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
    """Create the ledger's topic if it does not exist. Raises TopicNotMade."""
    purpose = "in which the sink notes the batches that it has written"
    ensure_topic(bootstrap, LEDGER.topic, purpose, LEDGER_SETTINGS, security=security)
