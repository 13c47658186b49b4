"""What the registry keeps: schemas, versions of subjects, compatibility levels and modes."""

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

TEXT_CHARACTERS_MAX: Final = 1_000_000  # of one schema: a message of the log holds it
SUBJECT_CHARACTERS_MAX: Final = 1000
_DIGEST_BYTES: Final = 16  # as many as a UUID has: the guid of a schema


class SchemaType(StrEnum):
    """The languages of schemas, with Confluent's names."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Level(StrEnum):
    """Compatibility levels: which earlier versions a new one is compared with, and in which direction."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        return self.endswith("_TRANSITIVE")

    @property
    def is_backward(self) -> bool:
        """The new schema reads what was written with the old one."""
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        """The old schema reads what is written with the new one."""
        return self.startswith(("FORWARD", "FULL"))


class Mode(StrEnum):
    """What may be done with a subject. IMPORT: schemas come with the ids and versions that they have elsewhere."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    IMPORT = "IMPORT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Another schema that a schema uses: by its Avro name, its URI or its import path."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema as it was registered. `metadata` and `rule_set` are JSON that is kept for clients."""

    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None

    @property
    def digest(self) -> bytes:
        """Equal for schemas that get one id."""
        references = [[each.name, each.subject, each.version] for each in self.references]
        parts = [self.type, self.text, references, self.metadata, self.rule_set]
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A schema in a subject. A deleted one is left out of lists, and still found by its id."""

    subject: str
    version: int
    id: int
    schema: Schema
    is_deleted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectConfig:
    """The settings of a subject, or of all. None: those of all, or the default."""

    level: Level | None = None
    normalize: bool | None = None
