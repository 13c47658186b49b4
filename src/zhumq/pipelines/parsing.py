"""Parses messages into columns with Spark expressions: JSON, Debezium, CSV, logfmt, Avro, Protobuf and log lines."""

import re
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.types import BinaryType, StringType, StructType

from zhumq.pipelines.ddl import parse_ddl
from zhumq.pipelines.decoded import MessageDecoder
from zhumq.pipelines.inspect import parse_lines
from zhumq.pipelines.message_schemas import MessageSchema
from zhumq.pipelines.routing import MESSAGE, MESSAGE_COLUMNS, REASON
from zhumq.pipelines.spec import RESERVED_COLUMNS, OnChange, ParseFormat, ParseStep
from zhumq.pipelines.spec_errors import need_column, spec_errors
from zhumq.schemas import framing

CHANGE: Final = "_change"  # the fields of a message that the schema does not have, or null
ADDED: Final = "_added"  # the same with their values, as texts
MALFORMED: Final = {
    ParseFormat.JSON: "not JSON of the given schema",
    ParseFormat.CSV: "not CSV of the given schema",
    ParseFormat.LOGFMT: "not logfmt of the given schema",
    ParseFormat.DEBEZIUM: "not a change of Debezium of the given schema",
}
UNKNOWN_LINE: Final = "not a log line of a known format"
UNKNOWN_TIME: Final = "its time cannot be read"
NAMES_SHOWN_MAX: Final = 5
CSV_FIELDS_MAX: Final = 20_480  # maxColumns of Spark's parser

_PARSED: Final = "_parsed"
_CORRUPT: Final = "_corrupt"
_KEYS: Final = "_keys"
_VALUES: Final = "_values"
# Java's engine recurses for a repeated group, so it has a bound: so many escapes in one text.
_ESCAPES_MAX: Final = 1000
_MAP: Final = "MAP<STRING, STRING>"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    """The rows with helper columns, and how the parts of the result are made of them."""

    rows: DataFrame
    columns: dict[str, Column]
    reason: Column
    added: Column | None  # a map, null or empty if there is nothing new
    change: Column | None = None


def parse(frame: DataFrame, step: ParseStep, schema: MessageSchema) -> DataFrame:
    """The rows with the fields of their messages, and with REASON and CHANGE where they are not as expected.

    A field with the name of a column replaces it; the message itself is then in MESSAGE.
    """
    need_column(frame, step.column, step.column_mark)
    kind = frame.schema[step.column].dataType
    if not isinstance(kind, BinaryType | StringType):
        raise step.column_mark.wrong(f"the column {step.column!r} is {kind.simpleString()}")
    with spec_errors(step.schema_mark, step.schema or None):
        match step.format:
            case ParseFormat.JSON:
                found = _json(frame, step, step.schema or schema.columns)
            case ParseFormat.CSV:
                found = _csv(frame, step)
            case ParseFormat.LOGFMT:
                found = _logfmt(frame, step)
            case ParseFormat.DEBEZIUM:
                found = _debezium(frame, step)
            case ParseFormat.AVRO | ParseFormat.PROTOBUF:
                assert schema.decoder is not None
                found = _with_decoder(frame, step, schema.decoder)
            case ParseFormat.LOG:
                return _log(frame)
        return _assembled(frame, step, found)


def _assembled(frame: DataFrame, step: ParseStep, found: _Fields) -> DataFrame:
    # Spark's column names are case-insensitive.
    taken = {name.lower() for name in found.columns}
    for name in RESERVED_COLUMNS:
        if name in taken:
            raise step.schema_mark.wrong(f"a field cannot be named {name!r}: pipelines use it")
    adds = step.on_change is OnChange.ADD_COLUMNS
    taken |= {ADDED} if adds else set()
    others = [name for name in frame.columns if name.lower() not in taken]
    chosen = [column.alias(name) for name, column in found.columns.items()]
    chosen += [F.col(f"`{name}`") for name in others]
    # A dead letter needs the message itself beside its fields.
    covered = [name for name in MESSAGE_COLUMNS if name in frame.columns]
    if MESSAGE not in others and not set(covered) <= set(others):
        chosen.append(F.struct(*covered).alias(MESSAGE))
    chosen.append(found.reason.alias(REASON))
    if step.on_change is not OnChange.IGNORE and found.added is not None:
        chosen.append(_change(found).alias(CHANGE))
        if adds:
            chosen.append(F.when(F.size(found.added) > 0, found.added).alias(ADDED))
    return found.rows.select(*chosen)


def _change(found: _Fields) -> Column:
    """In words, which fields are new."""
    assert found.added is not None
    names = F.array_sort(F.map_keys(found.added))
    listed = F.array_join(F.slice(names, 1, NAMES_SHOWN_MAX), ", ")
    more = F.when(F.size(names) > NAMES_SHOWN_MAX, F.lit(", ...")).otherwise(F.lit(""))
    words = F.when(
        F.size(names) > 0, F.concat(F.lit("fields that the schema does not have: "), listed, more)
    )
    return words if found.change is None else F.coalesce(words, found.change)


def _json(frame: DataFrame, step: ParseStep, columns: str) -> _Fields:
    options = {**step.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    message = F.col(f"`{step.column}`").cast("binary")
    text = (message if step.source is None else without_frame(message)).cast("string")
    parsed = F.from_json(text, f"{columns}, {_CORRUPT} STRING", options)
    rows = frame.withColumn(_PARSED, parsed)
    names = _names(rows)
    everything = F.from_json(text, _MAP)
    return _Fields(
        rows=rows,
        columns={name: F.col(f"{_PARSED}.`{name}`") for name in names},
        reason=_malformed(step, _is_corrupt()),
        added=F.map_filter(everything, lambda key, _: ~key.isin(*names)),
    )


def without_frame(message: Column) -> Column:
    """JSON behind the id of its schema. Without one, as no JSON begins with a zero, it is as it is."""
    is_framed = F.substring(message, 1, 1) == F.lit(b"\0")
    rest = F.substring(message, F.lit(framing.FRAME_BYTES + 1), F.octet_length(message))
    return F.when(is_framed, rest).otherwise(message)


def _debezium(frame: DataFrame, step: ParseStep) -> _Fields:
    text = F.col(f"`{step.column}`").cast("string")
    # With schemas.enable of its converter, the envelope is within another one, beside its schema.
    envelope = F.coalesce(F.get_json_object(text, "$.payload"), text)
    row = f"STRUCT<{step.schema}>"
    schema = f"before {row}, after {row}, op STRING, ts_ms BIGINT, source {_MAP}, {_CORRUPT} STRING"
    options = {**step.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    # Behind a delete comes a message without a value, for the compaction of the topic.
    with_value = frame.where(text.isNotNull())
    rows = with_value.withColumn(_PARSED, F.from_json(envelope, schema, options))
    return _Fields(
        rows=rows,
        columns={name: F.col(f"{_PARSED}.`{name}`") for name in _names(rows)},
        reason=_malformed(step, _is_corrupt() | F.col(f"{_PARSED}.op").isNull()),
        added=None,
    )


def _csv(frame: DataFrame, step: ParseStep) -> _Fields:
    quote = step.options.get("quote", '"')
    options: dict[str, Any] = {
        "escape": quote,  # RFC 4180: a quote within a text is written twice
        **step.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT,
    }  # fmt: skip
    text = F.col(f"`{step.column}`").cast("string")
    # A line of a file often ends with a newline; it is none of the last field.
    line = F.rtrim(text, F.lit("\r\n"))
    # With more fields Spark's parser fails, and with it the run, instead of calling the line corrupt.
    separator = F.lit(step.options.get("sep", ","))
    separators = F.length(line) - F.length(F.replace(line, separator, F.lit("")))
    parsable = F.when(separators < CSV_FIELDS_MAX, line)
    rows = frame.withColumn(
        _PARSED, F.from_csv(parsable, f"{step.schema}, {_CORRUPT} STRING", options)
    )
    # Spark would read the first row of a message and leave out the others.
    without_texts = F.regexp_replace(line, quoted(quote, options["escape"]), "")
    several = without_texts.contains("\n") | without_texts.contains("\r")
    return _Fields(
        rows=rows,
        columns={name: F.col(f"{_PARSED}.`{name}`") for name in _names(rows)},
        reason=_malformed(step, _is_corrupt() | (F.trim(line) == "") | several),
        added=None,
    )


def _logfmt(frame: DataFrame, step: ParseStep) -> _Fields:
    text = F.col(f"`{step.column}`").cast("string")
    pair = F.lit(LOGFMT_PAIR)
    rows = frame.withColumns(
        {
            _KEYS: F.regexp_extract_all(text, pair, F.lit(1)),
            _VALUES: F.transform(F.regexp_extract_all(text, pair, F.lit(2)), _unquoted),
        }
    )
    columns: dict[str, Column] = {}
    wrong = F.size(_KEYS) == 0
    for each in parse_ddl(step.schema):
        position = F.array_position(_KEYS, each.name)  # the first one, if a key is there twice
        value = F.get(_VALUES, (position - 1).cast("int"))
        columns[each.name] = value if each.base_type == "STRING" else value.try_cast(each.type)
        wrong |= (value != "") & columns[each.name].isNull()
    rest = F.trim(F.regexp_replace(text, LOGFMT_PAIR, ""))
    new = F.array_distinct(F.filter(_KEYS, lambda key: ~key.isin(*columns)))
    values = F.transform(
        new, lambda key: F.get(_VALUES, (F.array_position(_KEYS, key) - 1).cast("int"))
    )
    return _Fields(
        rows=rows,
        columns=columns,
        reason=_malformed(step, text.isNull() | wrong | (rest != "")),
        added=F.map_from_arrays(new, values),
    )


def _with_decoder(frame: DataFrame, step: ParseStep, decoder: MessageDecoder) -> _Fields:
    columns = decoder.columns
    members = ", ".join(f"`{name}`: {kind}" for name, kind in columns)
    decode = F.udf(
        lambda raw: _decoded(decoder, raw),
        f"fields STRUCT<{members}>, reason STRING, change STRING, added {_MAP}",
    )
    with_message = frame.withColumn(_PARSED, decode(F.col(f"`{step.column}`").cast("binary")))
    return _Fields(
        rows=with_message,
        columns={name: F.col(f"{_PARSED}.fields.`{name}`") for name, _ in columns},
        reason=F.col(f"{_PARSED}.reason"),
        added=F.coalesce(F.col(f"{_PARSED}.added"), F.from_json(F.lit("{}"), _MAP)),
        change=F.col(f"{_PARSED}.change"),
    )


def _decoded(decoder: MessageDecoder, raw: bytearray | None) -> tuple[Any, ...]:
    found = decoder.decode(None if raw is None else bytes(raw))
    added = None if found.added is None else dict(found.added)
    return found.fields or None, found.reason, found.change, added


def _log(frame: DataFrame) -> DataFrame:
    lines = parse_lines(frame)
    reason = F.when(F.col("format").isNull(), F.lit(UNKNOWN_LINE)).when(
        F.col("moment").isNull(), F.lit(UNKNOWN_TIME)
    )
    return lines.withColumn(REASON, reason)


def quoted(quote: str, escape: str) -> str:
    """A Java expression for a text in quotes, in which `escape` takes the next character as it is."""
    mark, before = re.escape(quote), re.escape(escape)
    if quote == escape:
        # Two quotes within a text look like the end of one text and the start of the next.
        return rf"{mark}[^{mark}]*+{mark}"
    inside = rf"[^{before}{mark}]"
    return rf"(?s:{mark}{inside}*+(?:{before}.{inside}*+){{0,{_ESCAPES_MAX}}}+{mark})"


LOGFMT_PAIR: Final = rf'(?:^|\s)([^\s="]+)=({quoted(chr(34), chr(92))}|[^\s"]*)(?=\s|$)'


def _unquoted(value: Column) -> Column:
    """A value without its quotes. JSON has the same escapes; another one stays as it is."""
    text = F.get(F.from_json(F.concat(F.lit("["), value, F.lit("]")), "ARRAY<STRING>"), F.lit(0))
    bare = F.substring(value, F.lit(2), F.length(value) - 2)
    return F.when(value.startswith('"'), F.coalesce(text, bare)).otherwise(value)


def _names(rows: DataFrame) -> list[str]:
    kind = rows.schema[_PARSED].dataType
    assert isinstance(kind, StructType)
    return [name for name in kind.names if name != _CORRUPT]


def _is_corrupt() -> Column:
    return F.col(_PARSED).isNull() | F.col(f"{_PARSED}.{_CORRUPT}").isNotNull()


def _malformed(step: ParseStep, condition: Column) -> Column:
    return F.when(condition, F.lit(MALFORMED[step.format]))
