"""Helpers of archive tests under faults: a steady producer, a reader of the table."""

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import KafkaError, Message, Producer
from pyspark.sql import SparkSession

from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.runner import RunOptions, run_pipeline
from zhumq.pipelines.spec_reader import load_pipeline
from zhumq.pipelines.status import RunStatus

RECORDS_PER_ROUND = 50
ROUND_SECONDS = 0.1


class Feeder:
    """Sends numbered records until it is stopped, and keeps the acknowledged ones."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        records_per_round: int = RECORDS_PER_ROUND,
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._records_per_round = records_per_round
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.failed: list[str] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._send, name="feeder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, and return once all records are acknowledged."""
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(120) == 0
        assert not self.failed, self.failed[:3]

    def _send(self) -> None:
        number = 0
        while not self._stopped.wait(ROUND_SECONDS):
            for _ in range(self._records_per_round):
                self._producer.produce(
                    self._topic, b"%012d" % number, b"%d" % number, number % self._partitions,
                    on_delivery=self._delivered,
                )  # fmt: skip
                number += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        place = (message.partition(), message.offset())
        assert place not in self.acknowledged, f"{place} was given to two records"
        self.acknowledged[place] = message.value()


class Table:
    """A table of the archive pipeline, read without Spark."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def batches(self) -> int:
        """How many micro-batches of all runs are in the table."""
        states = (self.path / "_zhumq").glob("*.state.json")
        return sum(json.loads(each.read_text())["last_batch"] + 1 for each in states)

    def files(self) -> list[Path]:
        found = (each for each in self.path.rglob("*.parquet") if not each.name.startswith("."))
        return sorted(each for each in found if "_zhumq" not in each.parts)

    def rows(self) -> Iterator[tuple[int, int, bytes]]:
        for each in self.files():
            columns = pq.ParquetFile(each).read(["partition", "offset", "value"])
            yield from zip(*(column.to_pylist() for column in columns.columns), strict=True)

    def check_against(self, acknowledged: Mapping[tuple[int, int], bytes]) -> None:
        """Check that the table holds every acknowledged record once with its value, and nothing else."""
        rows = list(self.rows())
        counts = Counter((partition, offset) for partition, offset, _ in rows)
        twice = sorted(place for place, count in counts.items() if count > 1)
        missing = sorted(set(acknowledged) - set(counts))
        assert not twice, f"{len(twice)} rows are in twice, first {twice[0]}"
        assert not missing, f"{len(missing)} rows are missing, first {missing[0]}"
        assert {(partition, offset): value for partition, offset, value in rows} == acknowledged

    @contextmanager
    def without_a_row(self) -> Iterator[tuple[int, int]]:
        """Remove one row by hand; gives its partition and offset."""
        file, rows, index = self._a_row()
        with _changed(file, pa.concat_tables([rows.slice(0, index), rows.slice(index + 1)])):
            yield _place(rows, index)

    @contextmanager
    def with_a_row_twice(self) -> Iterator[tuple[int, int]]:
        """Duplicate one row by hand; gives its partition and offset."""
        file, rows, index = self._a_row()
        with _changed(file, pa.concat_tables([rows, rows.slice(index, 1)])):
            yield _place(rows, index)

    def _a_row(self) -> tuple[Path, Any, int]:
        """A row in the middle, with others before and after it."""
        file = max(self.files(), key=lambda each: each.stat().st_size)
        rows = pq.ParquetFile(file).read()
        return file, rows, rows.num_rows // 2


def _place(rows: Any, index: int) -> tuple[int, int]:
    row = rows.slice(index, 1).to_pylist()[0]
    return row["partition"], row["offset"]


@contextmanager
def _changed(file: Path, rows: Any) -> Iterator[None]:
    """Replace the rows of a file, and restore them at the end."""
    before = file.read_bytes()
    # Hadoop keeps a checksum beside each file, and would take the change for damage.
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    pq.write_table(rows, file)
    try:
        yield
    finally:
        file.write_bytes(before)


@dataclass
class Silent:
    """A display that shows nothing."""

    lines: list[str] = field(default_factory=list)

    def update(self, status: RunStatus) -> None: ...

    def show(self, title: str, columns: list[str], rows: list[dict[str, Any]]) -> None: ...

    def say(self, line: str) -> None:
        self.lines.append(line)


def run_here(
    spark: SparkSession, name: str, state_dir: Path, bootstrap: str, **values: str
) -> RunStatus:
    """Run one of the pipelines that come with zhumq in the session of the tests."""
    pipeline = load_pipeline(find_pipeline(name), values)
    options = RunOptions(state_dir=state_dir, bootstrap=bootstrap)
    return run_pipeline(spark, pipeline, options, Silent())
