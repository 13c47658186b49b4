"""The part of a pipeline's spec that says which Iceberg table gets rows, and how its catalog is reached. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from zhumq.model.errors import ZhumqError
from zhumq.pipelines.spec import TableSink

PACKAGE: Final = "pyiceberg"
# An option of the sink that is ours; the others are PyIceberg's own.
CATALOG_NAME: Final = "catalog"
CATALOG_NAME_DEFAULT: Final = "default"  # as PyIceberg's


class IcebergFailed(ZhumqError):
    """An Iceberg table that cannot be read or written."""


class IcebergUnreachable(IcebergFailed):
    """A catalog that does not answer, or refuses the login."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergTarget:
    """A table in a catalog."""

    identifier: tuple[str, ...]  # the namespace, and the table
    catalog: str  # a database may hold several catalogs, and tells them apart by their names
    options: Mapping[str, str]  # of PyIceberg's load_catalog; secrets by reference

    @staticmethod
    def of(sink: TableSink) -> "IcebergTarget":
        """The target of a sink with `format: iceberg`, which the reader of the file has checked."""
        options = dict(sink.options)
        catalog = options.pop(CATALOG_NAME, CATALOG_NAME_DEFAULT)
        return IcebergTarget(
            identifier=tuple(sink.path.split(".")), catalog=catalog, options=options
        )

    @property
    def name(self) -> str:
        return ".".join(self.identifier)

    @property
    def namespace(self) -> tuple[str, ...]:
        return self.identifier[:-1]
