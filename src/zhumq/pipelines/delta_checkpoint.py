"""Checkpoints of Delta's log: the actions of a table's state as one Parquet file. Pure."""

import io
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

_TEXTS: Final = pa.map_(pa.string(), pa.string())
SCHEMA: Final = pa.schema(
    [
        (
            "txn",
            pa.struct(
                [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
            ),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
        ),
    ]
)
_MAPS: Final = ("partitionValues", "configuration", "options")


def checkpoint_bytes(actions: Iterable[dict[str, Any]]) -> bytes:
    """The file for these actions."""
    rows = [{kind: _with_pairs(body) for kind, body in action.items()} for action in actions]
    output = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), output)
    return output.getvalue()


def checkpoint_actions(raw: bytes) -> Iterator[dict[str, Any]]:
    """The actions in a file, of this writer or of another."""
    for row in pq.ParquetFile(io.BytesIO(raw)).read().to_pylist():
        for kind, body in row.items():
            if body is not None:
                yield {kind: _with_mappings(body)}


def _with_pairs(body: dict[str, Any]) -> dict[str, Any]:
    """Arrow takes a map as a list of pairs."""
    changed = {}
    for name, value in body.items():
        if isinstance(value, dict):
            changed[name] = list(value.items()) if name in _MAPS else _with_pairs(value)
        else:
            changed[name] = value
    return changed


def _with_mappings(body: dict[str, Any]) -> dict[str, Any]:
    changed = {}
    for name, value in body.items():
        if name in _MAPS:
            changed[name] = dict(value or ())
        else:
            changed[name] = _with_mappings(value) if isinstance(value, dict) else value
    return changed
