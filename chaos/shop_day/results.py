"""Reads what the pipelines have made, without Spark: Delta tables, Parquet files, topics, the report of an audit."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import deltalake
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Record
from confluent_kafka.admin import AdminClient, OffsetSpec

from chaos.shop_day.compare import Cells

ASK_SECONDS_MAX: Final = 30.0
READ_SECONDS_MAX: Final = 120.0
AUDIT_COLUMNS: Final = ("kind", "topic", "partition", "first_offset", "last_offset")


def delta_rows(path: Path, columns: Sequence[str]) -> list[Cells]:
    """The rows of a Delta table, read by delta-rs; null for a column that it does not have."""
    rows = deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return [tuple(row.get(name) for name in columns) for row in rows]


def session_rows(path: Path) -> list[Cells]:
    return [
        (row["user"], _ms(row["begun"]), _ms(row["ended"]), row["events"], row["promotions"])
        for file in _parquet_files(path)
        for row in pq.ParquetFile(file).read().to_pylist()
    ]


def archive_rows(path: Path) -> list[Cells]:
    """The records of the archive, whose topic is in the names of its folders."""
    names = ["partition", "offset", "key", "value", "timestamp"]
    return [
        (topic, row["partition"], row["offset"], row["key"], row["value"], _ms(row["timestamp"]))
        for file in _parquet_files(path)
        for topic in [_of_folder("topic", file)]
        for row in pq.ParquetFile(file).read(names).to_pylist()
    ]


def rejected_rows(bootstrap: str, topic: str) -> list[Cells]:
    """The dead letters of a topic: where each came from, its reason, key and value."""
    return [_rejected(record) for record in committed(bootstrap, topic)]


def alert_rows(bootstrap: str, topic: str) -> dict[str, list[Cells]]:
    """The alerts of a topic by their kind; their fields in order."""
    found: dict[str, list[Cells]] = {}
    for record in committed(bootstrap, topic):
        fields: dict[str, Any] = json.loads(record.value() or b"{}")
        kind = str(fields.pop("kind", None))
        found.setdefault(kind, []).append(tuple(fields.values()))
    return found


def audit_rows(report: Path) -> list[Cells]:
    """The findings of an audit. A report that is not there is an error of the caller."""
    found = json.loads(report.read_text())
    return [tuple(each[name] for name in AUDIT_COLUMNS) for each in found]


def open_rows(bootstrap: str, topics: Sequence[str]) -> list[Cells]:
    """Partitions whose readers at read_committed wait for a transaction: topic, partition, both ends."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    places = [place for topic in topics for place in _partitions(admin, topic)]
    stable = _ends(admin, places, IsolationLevel.READ_COMMITTED)
    ends = _ends(admin, places, IsolationLevel.READ_UNCOMMITTED)
    return [(*place, stable[place], ends[place]) for place in ends if stable[place] < ends[place]]


def committed(bootstrap: str, topic: str) -> list[Record]:
    """The messages of a topic that a reader at read_committed gets."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    places = _partitions(admin, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "shop-day",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    found: list[Record] = []
    at_end: set[int | None] = set()
    try:
        consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in places])
        deadline = time.monotonic() + READ_SECONDS_MAX
        while len(at_end) < len(places):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} is not read to its end in {READ_SECONDS_MAX:g} s")
            for record in consumer.consume(1000, timeout=1.0):
                error = record.error()
                if error is None:
                    found.append(record)
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(record.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


def _rejected(record: Record) -> Cells:
    headers: Mapping[str, bytes] = dict(record.headers() or [])  # type: ignore[arg-type]
    origin = {name: (headers.get(f"zhumq.{name}") or b"?").decode() for name in _PLACE}
    reason = (headers.get("zhumq.reason") or b"?").decode()
    place = (origin["topic"], int(origin["partition"]), int(origin["offset"]))
    return (*place, reason, record.key(), record.value())


_PLACE: Final = ("topic", "partition", "offset")


def _partitions(admin: AdminClient, topic: str) -> list[TopicPartition]:
    known = admin.list_topics(topic, timeout=ASK_SECONDS_MAX).topics[topic].partitions
    return [TopicPartition(topic, number) for number in sorted(known)]


def _ends(
    admin: AdminClient, places: Sequence[TopicPartition], level: IsolationLevel
) -> dict[tuple[str, int], int]:
    futures = admin.list_offsets(
        {place: OffsetSpec.latest() for place in places}, isolation_level=level
    )
    return {
        (place.topic, place.partition): future.result(ASK_SECONDS_MAX).offset
        for place, future in futures.items()
    }


def _parquet_files(path: Path) -> Iterator[Path]:
    for file in sorted(path.rglob("*.parquet")):
        if not file.name.startswith(".") and "_zhumq" not in file.parts:
            yield file


def _of_folder(column: str, file: Path) -> str:
    return next(
        part.removeprefix(f"{column}=") for part in file.parts if part.startswith(f"{column}=")
    )


def _ms(moment: datetime) -> int:
    """A datetime in UTC as milliseconds since 1970."""
    return round(moment.timestamp() * 1000)
