"""Reads the sources of a pipeline file: topics, segment folders, files, databases and tables."""

import re
from typing import Final

from zhumq.pipelines.document import Field, did_you_mean
from zhumq.pipelines.files_reader import read_files
from zhumq.pipelines.jdbc_source_reader import read_source
from zhumq.pipelines.secrets import security_texts
from zhumq.pipelines.spec import Source, TableSource, TopicSource, is_read_whole
from zhumq.pipelines.step_reader import add_view, read_watermark
from zhumq.pipelines.topic_fields import refuse_both, topic_names
from zhumq.spark.options import OptionInvalid, read_options

# Formats of tables that Spark reads itself. One of a jar has a name that is not nearly one of them.
_FORMATS: Final = ("parquet", "orc", "json", "csv", "text", "delta", "jdbc")
# The options that fields of a topic source stand for.
_OPTIONS_OF_FIELDS: Final = {
    "topic": "subscribe",
    "topics": "subscribe",
    "pattern": "subscribePattern",
    "segments": "path",
    "from": "startingOffsets",
    "until": "endingOffsets",
    "headers": "includeHeaders",
    "columns": "columns",
}


def read_sources(field: Field, views: list[str], *, streaming: bool) -> tuple[Source, ...]:
    """The sources; adds the names of their views. Raises SpecInvalid."""
    found: list[Source] = []
    for name, source in field.fields():
        add_view(source, name, views)
        found.append(_source(name, source, streaming=streaming))
    if not found:
        field.fail("names no source")
    if streaming and all(is_read_whole(each) for each in found):
        field.fail(
            "a stream needs a topic, files or a jdbc with `grows` among its sources; without them, set"
            " trigger: batch"
        )
    return tuple(found)


def table_path(field: Field) -> str:
    """The path or the name of a table. Raises SpecInvalid."""
    text = field.text()
    if not text.strip():
        field.fail("must name a table")
    return text


def _source(name: str, field: Field, *, streaming: bool) -> Source:
    fields = field.fields()
    # `pattern` is that of the names of topics, and beside `files` that of the names of files.
    if fields.get("files") is not None:
        return read_files(name, fields, fields.need("files"))
    if fields.get("jdbc") is not None:
        return read_source(name, fields, fields.need("jdbc"), streaming=streaming)
    kind, what = fields.one_of("topic", "topics", "pattern", "segments", "table")
    given = fields.get("options")
    options = security_texts(given) if given else {}
    if kind == "table":
        fields.only("table", "format", "options")
        return TableSource(
            name=name,
            mark=field.mark,
            path=table_path(what),
            format=_table_format(fields.get("format")),
            options=options,
        )
    fields.only(kind, "from", "until", "headers", "columns", "watermark", "options")
    refuse_both(fields, options, _OPTIONS_OF_FIELDS)
    if kind == "segments":
        if streaming:
            what.fail("a stream needs a broker; segment folders are for trigger: batch")
        options["path"] = what.text()
    elif kind == "pattern":
        options["subscribePattern"] = what.text()
    else:
        options["subscribe"] = ",".join(topic_names(what))
    start, until = fields.get("from"), fields.get("until")
    if start is not None or streaming:
        options.setdefault("startingOffsets", start.text() if start else "earliest")
    if until is not None:
        options["endingOffsets"] = until.text()
    headers, columns = fields.get("headers"), fields.get("columns")
    if headers is not None:
        options["includeHeaders"] = "true" if headers.flag() else "false"
    if columns is not None:
        options["columns"] = ", ".join(columns.texts())
    try:
        read_options(options, streaming=streaming)
    except OptionInvalid as error:
        _culprit(field, str(error)).fail(str(error))
    return TopicSource(
        name=name,
        mark=field.mark,
        options=options,
        watermark=read_watermark(fields.get("watermark")),
    )


def _culprit(source: Field, words: str) -> Field:
    """The field or the option that an error of the options begins with; else the source."""
    fields = source.fields()
    for name, option in _OPTIONS_OF_FIELDS.items():
        field = fields.get(name)
        if field is not None and re.match(rf"{option}\b", words):
            return field
    options = fields.get("options")
    for name, part in options.fields() if options is not None else ():
        if name.lower() in words.lower():
            return part
    return source


def _table_format(field: Field | None) -> str:
    if field is None:
        return "parquet"
    text = field.text()
    near = did_you_mean(text, _FORMATS)
    if text not in _FORMATS and near:
        field.fail(f"there is no format {text!r}{near}")
    return text
