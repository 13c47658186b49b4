"""What decoders make of messages: their fields, or why they have none."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

NESTING_MAX: Final = 20  # of types in each other


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A message: its fields, or why it has none; and the fields that only its writer knows."""

    fields: Mapping[str, Any]
    reason: str | None = None
    change: str | None = None
    added: Mapping[str, str] | None = None


class MessageDecoder(Protocol):
    """Decodes messages of a schema. It is sent to Spark's workers."""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The names and the Spark types of the fields."""

    def decode(self, raw: bytes | None) -> Decoded: ...


def without_id() -> Decoded:
    return Decoded(fields={}, reason="it does not begin with the id of a schema")


def of_unknown_schema(schema_id: int) -> Decoded:
    words = f"the schema {schema_id} was not registered for it when the run started"
    return Decoded(fields={}, reason=words, change=words)
