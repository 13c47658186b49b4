"""The columns of a folder of files, and which rows would make its files unlike each other. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumns:
    """The columns that the files of a table have, with those that its folders are named by."""

    types: Mapping[str, str]  # Spark's, in the order of the files
    partition_by: tuple[str, ...]

    @classmethod
    def of_rows(cls, schema: StructType, partition_by: tuple[str, ...]) -> "FileColumns":
        types = {each.name: each.dataType.simpleString() for each in schema.fields}
        return cls(types=types, partition_by=partition_by)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "FileColumns":
        return cls(types=document["types"], partition_by=tuple(document["partition_by"]))

    def document(self) -> dict[str, Any]:
        return {"types": dict(self.types), "partition_by": list(self.partition_by)}

    def with_new(self, other: "FileColumns") -> "FileColumns":
        """These columns, and those that only others have."""
        known = {name.lower() for name in self.types}
        new = {name: kind for name, kind in other.types.items() if name.lower() not in known}
        return FileColumns(types={**self.types, **new}, partition_by=self.partition_by)

    def unlike_words(self, rows: "FileColumns", *, by_position: bool) -> str | None:
        """Why rows of these columns do not go with the files; None if they do.

        Files without names for their columns are read by the places of these.
        """
        if self.partition_by != rows.partition_by:
            return f"is partitioned by {_listed(self.partition_by)}, and would be by {_listed(rows.partition_by)}"
        types = {name.lower(): kind for name, kind in self.types.items()}
        for name, kind in rows.types.items():
            before = types.get(name.lower(), kind)
            if before != kind:
                return f"has the column {name!r} as {before}, and would get it as {kind}: CAST it"
        if by_position and [*types] != [name.lower() for name in rows.types]:
            return f"has the columns {_listed(self.types)} in its files, and would get {_listed(rows.types)}"
        return None


def _listed(names: Mapping[str, str] | tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"
