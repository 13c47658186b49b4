"""The data source for Spark, which reads and writes topics; `attach` makes views of them."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """`attach`, of the room above: without it, this room does not need that one."""
    if name != "attach":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("zhumq.sql.attached").attach
