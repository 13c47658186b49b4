"""Iceberg tables of the tests: a catalog in SQLite, read by PyIceberg itself."""

from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from zhumq.pipelines.iceberg_spec import IcebergTarget

TABLE = "shop.orders"


def options_of(folder: Path) -> dict[str, str]:
    """The options of a catalog whose database and tables are in a folder."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }


def catalog_in(folder: Path) -> Catalog:
    return load_catalog("default", **options_of(folder))


def target_in(folder: Path, table: str = TABLE) -> IcebergTarget:
    return IcebergTarget(
        identifier=tuple(table.split(".")), catalog="default", options=options_of(folder)
    )


def table_in(folder: Path, name: str = TABLE) -> Table:
    catalog = catalog_in(folder)
    try:
        return catalog.load_table(name)
    finally:
        catalog.close()


def rows_in(folder: Path, name: str = TABLE, **scan: Any) -> list[dict[str, Any]]:
    """All rows of a table as PyIceberg reads them."""
    found: list[dict[str, Any]] = table_in(folder, name).scan(**scan).to_arrow().to_pylist()
    return found
