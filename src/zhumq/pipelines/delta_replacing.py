"""Replaces the rows of some offsets in a Delta table, in one commit, beside other writers."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from zhumq.pipelines.archive import RECORD_COLUMNS, of_ranges
from zhumq.pipelines.delta_layout import DeltaFailed
from zhumq.pipelines.delta_log import DataFile, Snapshot, now_ms
from zhumq.pipelines.delta_table import COMMIT_ATTEMPTS_MAX, DeltaTable
from zhumq.spark.ranges import OffsetRange


@dataclass(slots=True, kw_only=True)
class Replacing:
    """One batch that takes the place of the rows of its offsets."""

    table: DeltaTable
    rows: DataFrame
    ranges: Iterable[OffsetRange]
    query: str
    batch: int

    def carry_out(self) -> int | None:
        """Replace. Returns how many rows there are of the batch; None if the table has had it."""
        table = self.table
        snapshot = table.log.snapshot()
        if self._is_in(snapshot):
            return None
        table.clear_staging(self.query)
        self._check(snapshot)
        fresh = table.write_files(self.rows, self.query, room=table.log.room(snapshot))
        touched, kept = self._split(snapshot)
        for _ in range(COMMIT_ATTEMPTS_MAX):
            at_ms = now_ms()
            actions = table.preparing(snapshot, self.rows.schema, at_ms)
            actions.append(
                {"txn": {"appId": self.query, "version": self.batch, "lastUpdated": at_ms}}
            )
            actions += [each.removed(at_ms, data_change=True) for each in touched]
            actions += [each.added(data_change=True) for each in (*fresh, *kept)]
            if table.commit(snapshot, actions, [*fresh, *kept], operation="WRITE", at_ms=at_ms):
                table.clear_staging(self.query)
                return sum(each.rows or 0 for each in fresh)
            before, snapshot = snapshot, table.log.snapshot()
            if self._is_in(snapshot):
                # Another run of the same backfill, which is thought to be dead.
                table.discard([*fresh, *kept])
                return None
            self._check(snapshot)
            # The stream mostly appends rows of other offsets: then what was prepared is right as it is.
            came = [each for path, each in snapshot.files.items() if path not in before.files]
            is_whole = all(each.path in snapshot.files for each in touched)
            if not is_whole or self._touched(snapshot, came):
                table.discard(kept)
                touched, kept = self._split(snapshot)
        table.discard([*fresh, *kept])
        raise table.too_many_attempts()

    def _is_in(self, snapshot: Snapshot) -> bool:
        return snapshot.batches.get(self.query, -1) >= self.batch

    def _check(self, snapshot: Snapshot) -> None:
        self.table.check_rows(snapshot, self.rows.schema)
        lacking = [
            name for name in RECORD_COLUMNS if snapshot.exists and name not in snapshot.schema.names
        ]
        if lacking:
            raise DeltaFailed(
                f"{self.table.path} has no column {' and no '.join(lacking)}, by which its rows could be found"
            )

    def _split(self, snapshot: Snapshot) -> tuple[list[DataFile], list[DataFile]]:
        """The files with rows of these offsets, and new ones with their other rows, which no commit names yet."""
        touched = self._touched(snapshot, snapshot.files.values())
        if not touched:
            return [], []
        others = self.table.read(self.rows.sparkSession, snapshot, touched).where(~self._is_old)
        room = self.table.log.room(snapshot) + len(touched)
        return touched, self.table.write_files(others, self.query, room=room)

    def _touched(self, snapshot: Snapshot, files: Iterable[DataFile]) -> list[DataFile]:
        chosen = list(files)
        if not chosen:
            return []
        name = F.col("_metadata.file_path").alias("_file")
        rows = self.table.scan(self.rows.sparkSession, snapshot, chosen, name)
        found = rows.where(self._is_old).select("_file").distinct().collect()
        return [snapshot.files[self.table.relative(row["_file"])] for row in found]

    @property
    def _is_old(self) -> Column:
        return of_ranges(self.ranges)
