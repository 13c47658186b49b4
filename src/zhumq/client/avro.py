"""The serializer of Avro: single-object encoding, in which each message names its schema by a fingerprint."""

import dataclasses
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic

from zhumq.client.errors import ExtraMissing
from zhumq.client.json_types import converter, dataclass_of
from zhumq.client.serializers import J

# | marker | fingerprint of the schema, 8 bytes | record |
MARKER: Final = b"\xc3\x01"
HEADER_BYTES: Final = 10
FINGERPRINT: Final = "CRC-64-AVRO"

Schema = str | Mapping[str, Any]


class Avro(Generic[J]):
    """Avro: `Avro(schema)` of dicts, `Avro(schema, Order)` of a dataclass. Needs `zhumq[avro]`.

    Each message names the schema it was written with by a fingerprint, so no registry is needed. Messages of one of
    the `older` schemas are read as the new one, by Avro's rules of schema resolution.
    """

    def __init__(
        self,
        schema: Schema,
        type_: type[J] = Any,  # type: ignore[assignment]
        *,
        older: Sequence[Schema] = (),
    ) -> None:
        """A schema is a dict, or JSON text. Raises ExtraMissing, and fastavro's errors for a schema that is none."""
        try:
            import fastavro  # noqa: PLC0415 (an extra)
        except ImportError:
            raise ExtraMissing("Avro needs fastavro: pip install 'zhumq[avro]'") from None
        self._fastavro = fastavro
        self._dataclass = dataclass_of(type_)
        self._convert = None if type_ is Any else converter(type_)
        self._fingerprint, self._schema = self._parse(schema)
        self._writers = dict([self._parse(each) for each in older])
        self._writers[self._fingerprint] = self._schema

    def serialize(self, topic: str, value: J) -> bytes:
        del topic
        record: Any = value
        if self._dataclass is not None:
            if not isinstance(value, self._dataclass):
                raise TypeError(f"a {type(value).__name__} is not a {self._dataclass.__name__}")
            record = dataclasses.asdict(record)
        written = io.BytesIO(MARKER + self._fingerprint)
        written.seek(HEADER_BYTES)
        self._fastavro.schemaless_writer(written, self._schema, record, strict=True)
        return written.getvalue()

    def deserialize(self, topic: str, data: bytes) -> J:
        del topic
        if data[:1] == b"\0":
            raise ValueError("it is in the format of a schema registry, not Avro's single-object")
        if data[:2] != MARKER or len(data) < HEADER_BYTES:
            raise ValueError("it is not in Avro's single-object encoding")
        fingerprint = data[2:HEADER_BYTES]
        writer = self._writers.get(fingerprint)
        if writer is None:
            raise ValueError(
                f"no schema has the fingerprint {fingerprint.hex()}: add the one it was written with to `older`"
            )
        record: Any = self._fastavro.schemaless_reader(
            io.BytesIO(data[HEADER_BYTES:]), writer, self._schema
        )
        return record if self._convert is None else self._convert(record, "")  # type: ignore[no-any-return]

    def _parse(self, schema: Schema) -> tuple[bytes, Any]:
        parsed: Any = json.loads(schema) if isinstance(schema, str) else dict(schema)
        canonical = self._fastavro.schema.to_parsing_canonical_form(parsed)
        fingerprint = self._fastavro.schema.fingerprint(canonical, FINGERPRINT)
        return bytes.fromhex(fingerprint), self._fastavro.parse_schema(parsed)
