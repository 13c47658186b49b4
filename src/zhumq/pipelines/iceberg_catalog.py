"""Catalogs of Iceberg tables, opened with PyIceberg by the driver. Every failure is one line without a secret."""

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyspark.errors import PySparkException

from zhumq.host.references import SystemReferences
from zhumq.model.errors import SettingInvalid, ZhumqError
from zhumq.model.secret_references import has_reference, resolve_references
from zhumq.pipelines.causes import one_line
from zhumq.pipelines.iceberg_spec import IcebergFailed, IcebergTarget, IcebergUnreachable

_HIDDEN: Final = "***"
# SQLAlchemy's pointer to its documentation, and the statement with its values.
_SQL_DETAILS: Final = re.compile(r"\s*(\[SQL: .*|\(Background on this error at: .*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CatalogLogin:
    """The options of a catalog, with what their references lead to. Never printed."""

    options: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @staticmethod
    def of(given: Mapping[str, str]) -> "CatalogLogin":
        """Raises IcebergUnreachable if a reference leads nowhere."""
        try:
            texts = resolve_references(given, SystemReferences()).texts
        except SettingInvalid as error:
            raise IcebergUnreachable(f"options: {error}") from None
        secrets = (texts[name] for name, text in given.items() if has_reference(text))
        return CatalogLogin(texts, tuple(each for each in secrets if each))

    def without_secrets(self, text: str) -> str:
        for each in self.secrets:
            text = text.replace(each, _HIDDEN)
        return one_line(_SQL_DETAILS.sub("", text))


class OpenCatalog:
    """A catalog with the one table that a sink writes to. Every method raises IcebergFailed."""

    def __init__(self, catalog: Catalog, target: IcebergTarget, login: CatalogLogin) -> None:
        self._catalog = catalog
        self._target = target
        self._login = login

    def table(self) -> Table | None:
        """The table as it is now; None if there is none."""
        with self.failures("read the table"):
            try:
                return self._catalog.load_table(self._target.identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def create(self, schema: Schema, spec: PartitionSpec, properties: Mapping[str, str]) -> Table:
        """Make the table, and its namespace; the table of another writer if that was first."""
        with self.failures("make the table"):
            if not self._catalog.namespace_exists(self._target.namespace):
                self._catalog.create_namespace_if_not_exists(self._target.namespace)
            try:
                return self._catalog.create_table(
                    self._target.identifier,
                    schema,
                    partition_spec=spec,
                    properties=dict(properties),
                )
            except TableAlreadyExistsError:
                return self._catalog.load_table(self._target.identifier)

    @contextmanager
    def failures(self, doing: str) -> Iterator[None]:
        """Raise what PyIceberg and the library of a catalog raise as IcebergFailed.

        Conflicts stay as they are, and so do errors of Spark's, which may be those of a step.
        """
        try:
            yield
        except (CommitFailedException, ZhumqError, PySparkException, Py4JError):
            raise
        # Errors of SQLAlchemy, requests, Thrift, botocore and PyArrow have no common class.
        except Exception as error:
            words = self._login.without_secrets(f"{type(error).__name__}: {error}")
            # Without what it came from, whose text may hold a secret.
            raise IcebergFailed(f"cannot {doing} {self._target.name}: {words}") from None


@contextmanager
def opened(target: IcebergTarget) -> Iterator[OpenCatalog]:
    """The catalog of a table. Raises IcebergUnreachable."""
    login = CatalogLogin.of(target.options)
    try:
        catalog = load_catalog(target.catalog, **login.options)
    # As above: each kind of catalog has errors of its own.
    except Exception as error:
        words = login.without_secrets(f"{type(error).__name__}: {error}")
        raise IcebergUnreachable(
            f"the catalog of {target.name} cannot be opened: {words}"
        ) from None
    with closing(catalog):
        yield OpenCatalog(catalog, target, login)
