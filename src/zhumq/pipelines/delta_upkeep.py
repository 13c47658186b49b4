"""Keeps Delta tables small with delta-rs: fewer files, and none that only versions of long ago need."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import deltalake
import pyarrow.compute as pc  # type: ignore[import-untyped]
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from zhumq.pipelines.delta_layout import (
    DELETES_FOLDER,
    HOUR_MS,
    READER_VERSION,
    WRITER_VERSION,
    WRITTEN_MS,
    DeltaFailed,
    Expiry,
)

ATTEMPTS_MAX: Final = 10  # while a run of the pipeline replaces the same files

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """What was done to a table, or would be."""

    table: str
    files: int  # of its newest version
    merged: int  # that were replaced by larger ones; not known before it is done
    removed: int  # that only versions of long ago needed, or none
    forgotten: int  # deletes that no late change will find
    expired: int  # days whose partitions were too old


def keep_up(
    path: str,
    *,
    older_than_ms: int,
    deletes_older_than_ms: int,
    expiry: Expiry | None = None,
    dry_run: bool = False,
) -> list[Upkeep]:
    """Keep up a table, and the deletes that a merge keeps in it. Raises DeltaFailed.

    It may run beside a run that writes to the table: of two commits that exclude each other the second is
    made again, by the pipeline or here.
    """
    path = path.removeprefix("file://").removeprefix("file:")
    if "://" in path:
        raise DeltaFailed(
            f"{path} is not on this machine's file system: use `deltalake` in Python, with the options of"
            " your object store"
        )
    expired = 0 if expiry is None else _expire(path, expiry, dry_run=dry_run)
    found = [_keep_up_one(path, older_than_ms, dry_run=dry_run, expired=expired)]
    deletes = f"{path}/{DELETES_FOLDER}"
    if Path(deletes).is_dir():
        before_ms = time.time_ns() // 1_000_000 - deletes_older_than_ms
        found.append(
            _keep_up_one(deletes, older_than_ms, dry_run=dry_run, written_before_ms=before_ms)
        )
    return found


def _keep_up_one(
    path: str,
    older_than_ms: int,
    *,
    dry_run: bool,
    written_before_ms: int | None = None,
    expired: int = 0,
) -> Upkeep:
    forgotten = merged = 0
    hours = -(-older_than_ms // HOUR_MS)
    if written_before_ms is not None:
        forgotten = _forget(path, written_before_ms, dry_run=dry_run)
    if not dry_run:
        merged = _again(path, lambda table: int(table.optimize.compact()["numFilesRemoved"]))
    removed = _again(
        path,
        # "Full": also the files that a killed run has left and no commit names.
        lambda table: len(
            table.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=True)
        ),
    )
    if not dry_run:
        # Readers begin at a checkpoint. Commits before it are kept for as long as the table says: a month.
        _again(path, lambda table: table.create_checkpoint())
        _again(path, lambda table: table.cleanup_metadata())
    files = _again(path, lambda table: len(table.file_uris()))
    return Upkeep(
        table=path,
        files=files,
        merged=merged,
        removed=removed,
        forgotten=forgotten,
        expired=expired,
    )


def _expire(path: str, expiry: Expiry, *, dry_run: bool) -> int:
    """Take the partitions of days that are too long ago out of the table, and count the days."""
    kept_since = (datetime.now(tz=UTC) - timedelta(milliseconds=expiry.after_ms)).date()

    def expire(table: Any) -> int:
        days = {_day(path, expiry.column, each) for each in _values(path, expiry.column, table)}
        old = [day for day in days if day is not None and day < kept_since]
        if old and not dry_run:
            # A condition on a column of partitions alone: whole files go, and none is written again.
            table.delete(f"\"{expiry.column}\" < '{kept_since.isoformat()}'")
        return len(old)

    return _again(path, expire)


def _values(path: str, column: str, table: Any) -> list[Any]:
    """The values of a column that the table is partitioned by."""
    known = list(table.metadata().partition_columns)
    if column not in known:
        raise DeltaFailed(
            f"{path} is not partitioned by {column!r}, so none of its rows expire by it; it is partitioned"
            f" by {', '.join(known) or 'nothing'}"
        )
    return [each[column] for each in table.partitions()]


def _day(path: str, column: str, value: Any) -> date | None:
    """The day of a partition; None for rows without one, which never expire."""
    if value is None or isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise DeltaFailed(
            f"{path} has a partition {column}={value}: only days, as 2026-01-31, expire"
        ) from None


def _forget(path: str, written_before_ms: int, *, dry_run: bool) -> int:
    def forget(table: Any) -> int:
        is_old = pc.field(WRITTEN_MS) < written_before_ms
        count = int(table.to_pyarrow_dataset().count_rows(filter=is_old))
        if count and not dry_run:
            table.delete(f"{WRITTEN_MS} < {written_before_ms}")
        return count

    return _again(path, forget)


def _again(path: str, action: Callable[[Any], T]) -> T:
    """Do something with the newest version of the table, again if another writer was first."""
    last: CommitFailedError | None = None
    for _ in range(ATTEMPTS_MAX):
        try:
            table = deltalake.DeltaTable(path)
            _check_protocol(path, table)
            return action(table)
        except CommitFailedError as error:
            last = error
        except TableNotFoundError:
            raise DeltaFailed(f"there is no Delta table at {path}") from None
        except DeltaError as error:
            raise DeltaFailed(f"the upkeep of {path} failed: {error}") from error
    raise DeltaFailed(
        f"{path}: other writers committed {ATTEMPTS_MAX} times before the upkeep could: try again when"
        f" fewer batches are written ({last})"
    )


def _check_protocol(path: str, table: Any) -> None:
    protocol = table.protocol()
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if reader > READER_VERSION or writer > WRITER_VERSION:
        raise DeltaFailed(
            f"{path} is a Delta table of reader version {reader} and writer version {writer}, which another"
            " engine has made: keep it up with that engine"
        )
