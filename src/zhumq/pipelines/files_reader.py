"""Reads the sources of a pipeline file that are files which arrive in a folder."""

from typing import Final

from zhumq.pipelines.ddl import SchemaWrong, parse_ddl
from zhumq.pipelines.document import Field, Fields
from zhumq.pipelines.spec import FileFormat, FilesSource, OnError
from zhumq.pipelines.step_reader import read_watermark

FILES_PER_BATCH: Final = 1000
# What the file says with fields of its own.
_OPTIONS_OF_FIELDS: Final = {
    "maxfilespertrigger": "files_per_batch",
    "pathglobfilter": "pattern",
    "mode": "on_error",
    "columnnameofcorruptrecord": "on_error",
}


def read_files(name: str, fields: Fields, what: Field) -> FilesSource:
    """The source of these fields. Raises SpecInvalid."""
    fields.only(
        "files",
        "format",
        "schema",
        "pattern",
        "files_per_batch",
        "on_error",
        "watermark",
        "options",
    )
    if not what.text().strip():
        what.fail("must name a folder")
    kind = FileFormat(fields.need("format").choice(*FileFormat))
    pattern, per_batch = fields.get("pattern"), fields.get("files_per_batch")
    return FilesSource(
        name=name,
        mark=what.mark,
        path=what.text(),
        format=kind,
        schema=_schema(fields, kind),
        pattern=pattern.text() if pattern else None,
        files_per_batch=per_batch.number() if per_batch else FILES_PER_BATCH,
        on_error=_on_error(fields.get("on_error"), kind),
        options=_options(fields.get("options")),
        watermark=read_watermark(fields.get("watermark")),
    )


def _schema(fields: Fields, kind: FileFormat) -> str | None:
    given = fields.get("schema")
    if kind is FileFormat.TEXT:
        if given is not None:
            given.fail(
                "is not for text, whose only column is `value`: a `parse` step has the schema"
            )
        return None
    if given is None:
        fields.whole.fail(
            "needs the field 'schema', as id BIGINT, name STRING: files that come later may differ"
        )
    text = given.text()
    try:
        parse_ddl(text)
    except SchemaWrong as error:
        raise given.mark.wrong(str(error), text_line=error.line) from None
    return text


def _on_error(field: Field | None, kind: FileFormat) -> OnError:
    if field is None:
        return OnError.FAIL
    if kind not in (FileFormat.JSON, FileFormat.CSV):
        field.fail(f"is for json and csv, not for {kind}")
    if field.text() == OnError.DEAD_LETTERS:
        field.fail("is fail or drop: for dead letters use format: text and a `parse` step")
    return OnError(field.choice(OnError.FAIL, OnError.DROP))


def _options(field: Field | None) -> dict[str, str]:
    if field is None:
        return {}
    fields = field.fields()
    for name, part in fields:
        own = _OPTIONS_OF_FIELDS.get(name.lower())
        if own is not None:
            part.fail(f"is not an option here: give {own}")
    return fields.as_texts()
