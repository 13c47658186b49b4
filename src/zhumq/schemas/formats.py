"""Parses schemas of all types. The parsed form knows its canonical text, and which schemas it cannot read."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

from zhumq.schemas.errors import InvalidSchema
from zhumq.schemas.protobuf_sources import Compile
from zhumq.schemas.schema import Schema, SchemaType

PARSED_MAX: Final = 256  # schemas that are kept in parsed form

# The schemas that one uses, with their names, each after those that it uses itself.
Resolved = Sequence[tuple[str, Schema]]


class Parsed(Protocol):
    """A schema that is valid."""

    @property
    def type(self) -> SchemaType: ...

    @property
    def text(self) -> str:
        """The text that is kept: the same for texts that differ in spaces and the like."""

    def normalized(self) -> str:
        """The text that is the same for schemas that mean the same."""

    def formatted(self, name: str) -> str:
        """The text in another form that clients know by its name; `text` if it has no such form."""

    def as_json(self, data: bytes, characters_max: int) -> str:
        """JSON of data that was written with this schema. Raises NotDecoded, also if it would be longer."""

    def message_of(self, data: bytes) -> str | None:
        """Which message of a .proto file data is; None for the other types. Raises NotDecoded."""

    def from_json(self, value: Any, message: str | None) -> bytes | None:
        """The data of a value of JSON; `message` is the name of one of Protobuf. Raises NotEncoded.

        None: the data is the JSON itself, as it was written.
        """

    def cannot_read(self, writer: Any) -> list[str]:
        """Why this schema cannot read what was written with another of its type; empty if it can."""


class Formats:
    """The types of schemas. `compile_protobuf` is the compiler of .proto files, which works with files."""

    def __init__(self, compile_protobuf: Compile) -> None:
        self._compile_protobuf = compile_protobuf
        self._parse = lru_cache(maxsize=PARSED_MAX)(self._parse_anew)

    def parse(self, schema: Schema, resolved: Resolved) -> Parsed:
        """Raises InvalidSchema."""
        for name, each in resolved:
            if each.type is not schema.type:
                raise InvalidSchema(f"the reference {name!r} is {each.type}, not {schema.type}")
        texts = tuple((name, each.text) for name, each in resolved)
        return self._parse(schema.type, schema.text, texts)

    def _parse_anew(
        self, type_: SchemaType, text: str, texts: tuple[tuple[str, str], ...]
    ) -> Parsed:
        try:
            # Imported here: each needs packages that a client of the brokers does without.
            match type_:
                case SchemaType.AVRO:
                    from zhumq.schemas.avro import parse as parse_avro  # noqa: PLC0415

                    return parse_avro(text, [each for _, each in texts])
                case SchemaType.JSON:
                    from zhumq.schemas.json_schema import parse as parse_json  # noqa: PLC0415

                    return parse_json(text, dict(texts))
                case SchemaType.PROTOBUF:
                    from zhumq.schemas.protobuf import parse as parse_protobuf  # noqa: PLC0415

                    return parse_protobuf(text, dict(texts), self._compile_protobuf)
        except ImportError as error:
            raise InvalidSchema(
                f"schemas of type {type_} need {error.name}: pip install 'zhumq[registry]'"
            ) from None
        except RecursionError:
            raise InvalidSchema("the schema is nested too deeply") from None
