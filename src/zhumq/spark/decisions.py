"""The decisions about micro-batches and batch writes: a compacted topic that one driver at a time can write to."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from zhumq.client.security import ClientSecurity
from zhumq.client.transaction_core import PreparedState
from zhumq.client.transactional_producer import TransactionalProducer
from zhumq.model.ids import TopicPartition
from zhumq.spark.cluster_client import ClusterClient
from zhumq.spark.options import SINK_DECISIONS_TOPIC, WriteOptions
from zhumq.spark.topic_table import TopicTable, ensure_topic

DECISIONS: Final = TopicPartition(SINK_DECISIONS_TOPIC, 0)
# The last decision of a query is kept for ever: a query may be down for long.
DECISIONS_SETTINGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}
ID_PREFIX: Final = "zhumq-spark"  # of all transactional ids of the sink
NO_BATCH: Final = -1
# A driver that dies while it records a decision holds the other queries' back for this long.
RECORDING_MS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The transactions that are the rows of a batch. All of them are committed; no others are."""

    run: str  # the run of the query that recorded it
    batch: int = NO_BATCH
    chosen: tuple[tuple[str, PreparedState], ...] = ()  # transactional ids and their transactions

    def encoded(self) -> bytes:
        content = {
            "run": self.run,
            "batch": self.batch,
            "transactions": {name: str(state) for name, state in self.chosen},
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @staticmethod
    def decoded(value: bytes) -> "Decision":
        """Raises ValueError, KeyError or TypeError for anything else than a decision."""
        content = json.loads(value)
        return Decision(
            run=str(content["run"]),
            batch=int(content["batch"]),
            chosen=tuple(
                (name, PreparedState.parse(state))
                for name, state in content["transactions"].items()
            ),
        )


# Spark uses its Python processes for many tasks; each of them reads the topic once.
_tables: dict[str, TopicTable] = {}


def ensure_decisions(bootstrap: str, *, security: ClientSecurity) -> None:
    """Create the topic of the decisions if it does not exist. Raises TopicNotMade."""
    purpose = "in which the sink records which transactions it commits"
    ensure_topic(bootstrap, DECISIONS.topic, purpose, DECISIONS_SETTINGS, security=security)


def read_decisions(options: WriteOptions) -> Mapping[str, Decision]:
    """The last decision of each group: all that were recorded before this call."""
    table = _tables.setdefault(options.bootstrap, TopicTable(DECISIONS, read_committed=True))
    with ClusterClient(options.bootstrap, security=options.security.security()) as client:
        values = table.read(client)
    found: dict[str, Decision] = {}
    for group, value in values.items():
        try:
            found[group] = Decision.decoded(value)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # Any client may write to the topic.
    return found


class DecisionLog:
    """Records the decisions of a group: a query or a batch write.

    Who opens it last may record. So between opening it and recording, no other process has recorded anything.
    """

    def __init__(self, options: WriteOptions, group: str) -> None:
        self._options = options
        self._group = group
        self._producer = TransactionalProducer(
            options.bootstrap,
            transactional_id=log_id(group),
            transaction_timeout_ms=RECORDING_MS_MAX,
            security=options.security.security(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.close()

    def open(self) -> Decision | None:
        """Fence the others. The last decision of the group."""
        self._producer.connect()
        return read_decisions(self._options).get(self._group)

    def record(self, decision: Decision) -> None:
        """Raises ProducerFenced if another process has opened the log since."""
        self._write(decision.encoded())

    def remove(self) -> None:
        """Remove the decision, which has been carried out."""
        self._write(None)

    def _write(self, value: bytes | None) -> None:
        with self._producer.transaction() as transaction:
            transaction.send(
                DECISIONS.topic, value, key=self._group.encode(), partition=DECISIONS.partition
            )


def ids_of(group: str) -> str:
    """The prefix of the transactional ids of a group."""
    return f"{ID_PREFIX}.{group}."


def log_id(group: str) -> str:
    """The transactional id under which the decisions of a group are recorded."""
    return f"{ids_of(group)}decisions"
