"""The transaction log of a Delta table: which files are the table, and which batches are in it."""

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, unquote

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from zhumq.pipelines.delta_checkpoint import checkpoint_actions, checkpoint_bytes
from zhumq.pipelines.delta_layout import READER_VERSION, WRITER_VERSION, DeltaFailed
from zhumq.pipelines.folder import Folder

LOG_FOLDER: Final = "_delta_log"
LAST_CHECKPOINT: Final = f"{LOG_FOLDER}/_last_checkpoint"
CHECKPOINT_EVERY: Final = 20  # commits; a reader has to read those after the last checkpoint
ACTIVE_FILES_MAX: Final = 100_000  # in one table; the log of each is in memory
REMOVED_KEPT_MS: Final = 7 * 86_400_000  # in checkpoints, so that other engines' VACUUM knows them
_SIMPLE: Final = (
    BinaryType, BooleanType, ByteType, DateType, DecimalType, DoubleType, FloatType, IntegerType,
    LongType, ShortType, StringType, TimestampType,
)  # fmt: skip

Action = dict[str, Any]  # of the log: {"add": {...}}


class TooManyFiles(DeltaFailed):
    """A commit that the limit of the files of a table excludes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file of the table, as its `add` action names it."""

    path: str  # relative to the table, as in the file system
    size: int
    modified_ms: int
    partition_values: Mapping[str, str | None]
    rows: int | None

    @classmethod
    def of(cls, add: Mapping[str, Any]) -> "DataFile":
        rows = json.loads(add["stats"]).get("numRecords") if add.get("stats") else None
        return cls(
            path=unquote(add["path"]),
            size=int(add["size"]),
            modified_ms=int(add["modificationTime"]),
            partition_values=dict(add.get("partitionValues") or {}),
            rows=rows,
        )

    def added(self, *, data_change: bool) -> Action:
        return {
            "add": {
                "path": quote(self.path, safe="/="),
                "partitionValues": dict(self.partition_values),
                "size": self.size,
                "modificationTime": self.modified_ms,
                "dataChange": data_change,
                "stats": json.dumps({"numRecords": self.rows}),
            }
        }

    def removed(self, now_ms: int, *, data_change: bool) -> Action:
        return {
            "remove": {
                "path": quote(self.path, safe="/="),
                "deletionTimestamp": now_ms,
                "dataChange": data_change,
                "extendedFileMetadata": True,
                "partitionValues": dict(self.partition_values),
                "size": self.size,
            }
        }


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """The table as it is after one commit."""

    version: int = -1
    protocol: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)  # by path
    removed: dict[str, int] = field(default_factory=dict)  # by path: when
    batches: dict[str, int] = field(default_factory=dict)  # by query: Delta's txn actions

    @property
    def exists(self) -> bool:
        return self.version >= 0

    @property
    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.metadata["schemaString"]))

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self.metadata.get("partitionColumns") or ())

    def apply(self, action: Mapping[str, Any]) -> None:
        if add := action.get("add"):
            each = DataFile.of(add)
            self.files[each.path] = each
            self.removed.pop(each.path, None)
        elif remove := action.get("remove"):
            path = unquote(remove["path"])
            self.files.pop(path, None)
            self.removed[path] = int(remove.get("deletionTimestamp") or 0)
        elif txn := action.get("txn"):
            self.batches[txn["appId"]] = int(txn["version"])
        elif metadata := action.get("metaData"):
            self.metadata = metadata
        elif protocol := action.get("protocol"):
            self.protocol = protocol


class DeltaLog:
    """Reads and extends the log. A commit is one new file, whose name only one writer can take."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    @property
    def path(self) -> str:
        return self._folder.path

    def snapshot(self) -> Snapshot:
        """The newest state of the table; its version is -1 if there is none yet."""
        versions = self.versions()
        found = Snapshot()
        last = self._folder.read_document(LAST_CHECKPOINT)
        if last is not None:
            if last.get("parts") or last.get("v2Checkpoint"):
                raise DeltaFailed(
                    f"{self.path} has a checkpoint of another kind than one Parquet file: use another"
                    " table, or write it with the engine that made it"
                )
            found.version = int(last["version"])
            name = f"{LOG_FOLDER}/{found.version:020d}.checkpoint.parquet"
            for action in checkpoint_actions(self._folder.read_bytes(name)):
                found.apply(action)
        for version in versions:
            if version <= found.version:
                continue
            if version != found.version + 1:
                raise DeltaFailed(
                    f"{self.path}: the commit {found.version + 1} is missing in {LOG_FOLDER}, whose next"
                    f" is {version}: restore it, or use another table"
                )
            for action in self._actions(version):
                found.apply(action)
            found.version = version
        if found.exists:
            self._check_protocol(found)
        return found

    def versions(self) -> list[int]:
        """The commits that are in the log as files of their own."""
        names = (name.removesuffix(".json") for name in self._folder.names(LOG_FOLDER))
        return sorted(int(name) for name in names if len(name) == 20 and name.isdigit())

    def commit(
        self, snapshot: Snapshot, actions: Iterable[Action], *, operation: str, now_ms: int
    ) -> bool:
        """Make the actions the next version after the snapshot's; False if another writer was first."""
        version = snapshot.version + 1
        actions = list(actions)
        self._check_room(snapshot, actions)
        lines = [
            {
                "commitInfo": {
                    "timestamp": now_ms,
                    "operation": operation,
                    "operationParameters": {},
                    "engineInfo": "zhumq",
                    "txnId": str(uuid.uuid4()),
                }
            },
            *actions,
        ]
        raw = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in lines).encode()
        if not self._folder.write_new(f"{LOG_FOLDER}/{version:020d}.json", raw):
            return False
        for action in lines:
            snapshot.apply(action)
        snapshot.version = version
        if version % CHECKPOINT_EVERY == 0 and version > 0:
            self.write_checkpoint(snapshot, now_ms)
        return True

    def room(self, snapshot: Snapshot) -> int:
        """How many files may be added."""
        return max(ACTIVE_FILES_MAX - len(snapshot.files), 0)

    def too_many_files(self, more: int) -> TooManyFiles:
        return TooManyFiles(
            f"{self.path} may have {ACTIVE_FILES_MAX:,} files, and would have {more:,} more: make fewer of"
            f" them with `zhumq pipeline upkeep {self.path}`, or use a table of fewer partitions"
        )

    def write_checkpoint(self, snapshot: Snapshot, now_ms: int) -> None:
        """Write the whole state as one file, so that readers need not read all commits."""
        recent = {
            path: at_ms
            for path, at_ms in snapshot.removed.items()
            if at_ms >= now_ms - REMOVED_KEPT_MS
        }
        actions: list[Action] = [
            {"protocol": dict(snapshot.protocol)},
            {"metaData": dict(snapshot.metadata)},
            *(
                {"txn": {"appId": query, "version": batch}}
                for query, batch in snapshot.batches.items()
            ),
            *(each.added(data_change=False) for each in snapshot.files.values()),
            *(
                {
                    "remove": {
                        "path": quote(path, safe="/="),
                        "deletionTimestamp": at_ms,
                        "dataChange": False,
                    }
                }
                for path, at_ms in recent.items()
            ),
        ]
        raw = checkpoint_bytes(actions)
        # Another writer may have written the same one: both hold the same state.
        self._folder.write_new(f"{LOG_FOLDER}/{snapshot.version:020d}.checkpoint.parquet", raw)
        self._folder.write_document(
            LAST_CHECKPOINT, {"version": snapshot.version, "size": len(actions)}
        )

    def _check_room(self, snapshot: Snapshot, actions: Iterable[Action]) -> None:
        paths = set(snapshot.files)
        for action in actions:
            if add := action.get("add"):
                paths.add(unquote(add["path"]))
            elif remove := action.get("remove"):
                paths.discard(unquote(remove["path"]))
        # A table that another engine has made too large may still become smaller.
        if len(paths) > max(ACTIVE_FILES_MAX, len(snapshot.files)):
            raise self.too_many_files(len(paths) - ACTIVE_FILES_MAX)

    def _actions(self, version: int) -> list[Action]:
        name = f"{LOG_FOLDER}/{version:020d}.json"
        try:
            return [json.loads(line) for line in self._folder.read_bytes(name).splitlines() if line]
        except ValueError as error:
            raise DeltaFailed(f"{self._folder.inside(name)} is damaged: {error}") from None

    def _check_protocol(self, found: Snapshot) -> None:
        reader = int(found.protocol.get("minReaderVersion", 0))
        writer = int(found.protocol.get("minWriterVersion", 0))
        if reader > READER_VERSION or writer > WRITER_VERSION:
            features = sorted(
                {
                    *(found.protocol.get("readerFeatures") or ()),
                    *(found.protocol.get("writerFeatures") or ()),
                }
            )
            more = f", with {', '.join(features)}" if features else ""
            raise DeltaFailed(
                f"{self.path} is a Delta table of reader version {reader} and writer version {writer}{more};"
                f" zhumq knows {READER_VERSION} and {WRITER_VERSION}: use a table without these features"
            )


def creation(schema: StructType, partition_by: tuple[str, ...], now_ms: int) -> list[Action]:
    """The actions that make a new table."""
    return [
        {"protocol": {"minReaderVersion": READER_VERSION, "minWriterVersion": WRITER_VERSION}},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": table_schema(schema).json(),
                "partitionColumns": list(partition_by),
                "configuration": {},
                "createdTime": now_ms,
            }
        },
    ]


def evolved(snapshot: Snapshot, schema: StructType, path: str) -> list[Action]:
    """The action that adds the new columns of these rows; none if there are none. Types never change."""
    known = {each.name.lower(): each for each in snapshot.schema.fields}
    added: list[StructField] = []
    for each in table_schema(schema).fields:
        old = known.get(each.name.lower())
        if old is None:
            added.append(each)
        elif table_schema(StructType([old])).fields[0].dataType != each.dataType:
            raise DeltaFailed(
                f"the column {each.name!r} of {path} is {old.dataType.simpleString()}, and the rows have"
                f" {each.dataType.simpleString()}: CAST it, or use another table"
            )
    if not added:
        return []
    whole = StructType([*snapshot.schema.fields, *added])
    return [{"metaData": {**snapshot.metadata, "schemaString": whole.json()}}]


def table_schema(schema: StructType) -> StructType:
    """The same columns, all of them nullable, without the metadata that Spark keeps of them."""
    plain = _nullable(schema)
    assert isinstance(plain, StructType)
    return plain


def unsupported_column(schema: StructType) -> StructField | None:
    """The first column of a type that such a table cannot hold."""
    return next((each for each in schema.fields if not _is_supported(each.dataType)), None)


def _is_supported(kind: DataType) -> bool:
    match kind:
        case StructType():
            return unsupported_column(kind) is None
        case ArrayType():
            return _is_supported(kind.elementType)
        case MapType():
            return _is_supported(kind.keyType) and _is_supported(kind.valueType)
        case _:
            return type(kind) in _SIMPLE


def _nullable(kind: DataType) -> DataType:
    match kind:
        case StructType():
            return StructType(
                [StructField(each.name, _nullable(each.dataType)) for each in kind.fields]
            )
        case ArrayType():
            return ArrayType(_nullable(kind.elementType), containsNull=True)
        case MapType():
            return MapType(_nullable(kind.keyType), _nullable(kind.valueType))
        case _:
            return kind


def now_ms() -> int:
    return time.time_ns() // 1_000_000
