"""Reads where the schema of JSON, Avro or Protobuf messages comes from: a file with those that it imports, or a subject."""

import re
from pathlib import Path
from typing import Final

from zhumq.pipelines.document import Field, Fields
from zhumq.pipelines.message_schemas import check_file_schema
from zhumq.pipelines.spec import ParseFormat, SchemaSource
from zhumq.schemas.errors import InvalidSchema

BYTES_MAX: Final = 1_000_000  # of a schema with what it imports
FILES_MAX: Final = 200
WITH_SCHEMA_SOURCE: Final = (ParseFormat.JSON, ParseFormat.AVRO, ParseFormat.PROTOBUF)
_IMPORT: Final = re.compile(
    r'(?:^|;)\s*import\s+(?:public\s+|weak\s+)?"([^"\n]+)"\s*;', re.MULTILINE
)
_WELL_KNOWN: Final = "google/protobuf/"  # which the compiler has


def read_schema_source(fields: Fields, format_: ParseFormat, folder: Path) -> SchemaSource:
    """The source that a step names. Raises SpecInvalid, also for a file that is no schema."""
    kind, what = fields.one_of("schema_file", "registry")
    named = fields.get("message")
    message = None if named is None else named.text()
    if kind == "registry":
        own = what.fields()
        own.only("subject", "version")
        version = own.get("version")
        newest = version is None or version.text() == "latest"
        return SchemaSource(
            mark=what.mark,
            format=format_,
            text=None,
            imports=(),
            subject=own.need("subject").text(),
            version=None if newest or version is None else version.number(),
            message=message,
        )
    path = folder / what.text()
    text = _read(what, path, BYTES_MAX)
    imports = _imports(what, path, text) if format_ is ParseFormat.PROTOBUF else ()
    source = SchemaSource(
        mark=what.mark,
        format=format_,
        text=text,
        imports=imports,
        subject=None,
        version=None,
        message=message,
    )
    try:
        check_file_schema(source)
    except InvalidSchema as error:
        what.fail(str(error))
    return source


def _imports(what: Field, path: Path, text: str) -> tuple[tuple[str, str], ...]:
    """The files that a .proto file imports, also through others: their paths begin in its folder."""
    found: dict[str, str] = {}
    left = BYTES_MAX - len(text)
    waiting = [text]
    while waiting:
        for name in _IMPORT.findall(waiting.pop()):
            if name in found or name.startswith(_WELL_KNOWN):
                continue
            if len(found) == FILES_MAX:
                what.fail(f"{path} imports more than {FILES_MAX} files")
            if not (path.parent / name).is_file():
                continue  # The compiler says where it is imported.
            found[name] = _read(what, path.parent / name, left)
            left -= len(found[name])
            waiting.append(found[name])
    return tuple(found.items())


def _read(what: Field, path: Path, bytes_max: int) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(bytes_max + 1)
    except OSError as error:
        what.fail(f"cannot read {path}: {error.strerror}")
    if len(raw) > bytes_max:
        what.fail(f"{path} is larger than {bytes_max} bytes: is this a schema?")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        what.fail(f"{path} is not a text in UTF-8")
