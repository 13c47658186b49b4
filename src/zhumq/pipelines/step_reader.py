"""Reads the steps of a pipeline file: every kind, its fields and what they exclude."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

from zhumq.pipelines.ddl import SchemaWrong, parse_ddl
from zhumq.pipelines.document import Field, Fields
from zhumq.pipelines.durations import DURATION_MS_MAX, parse_duration_ms
from zhumq.pipelines.schema_files import WITH_SCHEMA_SOURCE, read_schema_source
from zhumq.pipelines.spec import (
    RESERVED_COLUMNS,
    Action,
    CheckStep,
    DeduplicateStep,
    EnrichStep,
    Expectation,
    ExpectStep,
    Missing,
    OnChange,
    OnError,
    ParseFormat,
    ParseStep,
    PythonStep,
    Rule,
    SqlStep,
    Step,
    Watermark,
)
from zhumq.pipelines.sql_text import find_mistake, find_query_mistake, views_in

KINDS: Final = ("sql", "python", "json", "parse", "check", "expect", "deduplicate", "enrich")
STEPS_MAX: Final = 200
RULES_MAX: Final = 100
REFRESH_MS: Final = 10 * 60_000
COLUMNS_MAX: Final = 100  # that an enrich step adds, or compares
# Options of Spark's from_csv that do not change what a broken row is.
CSV_OPTIONS: Final = (
    "sep", "quote", "escape", "comment", "nullValue", "emptyValue", "dateFormat", "timestampFormat",
    "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "locale",
)  # fmt: skip
JSON_OPTIONS: Final = (
    "dateFormat", "timestampFormat", "allowComments", "allowSingleQuotes", "allowNonNumericNumbers",
    "locale",
)  # fmt: skip

_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def read_steps(
    field: Field | None, views: list[str], *, folder: Path, tables: Collection[str]
) -> tuple[Step, ...]:
    """The steps in their order; adds the names of their views. Raises SpecInvalid.

    `tables` are the sources that an enrich step may take columns from.
    """
    items = field.items() if field is not None else []
    if field is not None and len(items) > STEPS_MAX:
        field.fail(f"there are more than {STEPS_MAX} steps")
    names = [item.fields().need("name").name() for item in items]
    found: list[Step] = []
    for index, item in enumerate(items):
        found.append(_step(item, views, below=names[index:], folder=folder, tables=tables))
        add_view(item.fields().need("name"), found[-1].name, views)
    return tuple(found)


def check_function(field: Field) -> None:
    if not _FUNCTION.fullmatch(field.text()):
        field.fail(f"is module:function, not {field.text()!r}")


def check_sql(field: Field) -> str:
    """A text of SQL whose quotes and brackets are closed."""
    text = field.text()
    mistake = find_mistake(text)
    if mistake is not None:
        raise field.mark.wrong(mistake.words, text_line=mistake.line)
    return text


def check_query(field: Field, views: list[str]) -> str:
    """One query whose tables are these views."""
    text = check_sql(field)
    mistake = find_query_mistake(text, views)
    if mistake is not None:
        raise field.mark.wrong(mistake.words, text_line=mistake.line)
    return text


def read_watermark(field: Field | None) -> Watermark | None:
    if field is None:
        return None
    fields = field.fields()
    fields.only("column", "delay")
    column, delay = fields.need("column"), fields.need("delay")
    return Watermark(
        column=column.text(), delay=f"{duration_ms(delay)} milliseconds", mark=column.mark
    )


def duration_ms(field: Field) -> int:
    """A time such as `10 minutes` or `10m`."""
    text = field.text()
    total_ms = parse_duration_ms(text)
    if total_ms is None:
        field.fail(f"is a time such as 10s, 5 minutes or 2h, not {text!r}")
    if total_ms > DURATION_MS_MAX:
        field.fail(f"is longer than a year: {text!r}")
    return total_ms


def view_of(field: Field, views: list[str]) -> str:
    """The name of a source or of a step above."""
    name = field.text()
    if name not in views:
        field.fail(f"there is no source or step {name!r} above; there are: {', '.join(views)}")
    return name


def add_view(field: Field, name: str, views: list[str]) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == "batch":
        field.fail(f"{name!r} cannot name a view: use a-z, 0-9 and _, and begin with a-z")
    if name in views:
        field.fail(f"there are two views named {name!r}")
    views.append(name)


def _step(
    field: Field, views: list[str], *, below: list[str], folder: Path, tables: Collection[str]
) -> Step:
    fields = field.fields()
    name = fields.need("name").name()
    kind, what = fields.one_of(*KINDS)
    match kind:
        case "sql":
            return _sql(name, fields, what, views, below)
        case "python":
            return _python(name, fields, what, views)
        case "json":
            fields.only("name", "json", "column", "schema")
            return _parse(name, fields, what, views, folder=folder, only_json=True)
        case "parse":
            return _parse(name, fields, what, views, folder=folder, only_json=False)
        case "check":
            return _check(name, fields, what, views)
        case "expect":
            return _expect(name, fields, what, views)
        case "enrich":
            return _enrich(name, fields, what, views, tables)
        case _:
            return _deduplicate(name, fields, what, views)


def _sql(name: str, fields: Fields, what: Field, views: list[str], below: list[str]) -> SqlStep:
    fields.only("name", "sql", "watermark")
    sql = check_sql(what)
    for view in views_in(sql, below):
        if view not in views:
            itself = "itself" if view == name else f"the step {view!r} below"
            what.fail(f"reads {itself}: a step reads the sources and the steps above it")
    check_query(what, views)
    watermark = read_watermark(fields.get("watermark"))
    return SqlStep(name=name, mark=what.mark, sql=sql, watermark=watermark)


def _python(name: str, fields: Fields, what: Field, views: list[str]) -> PythonStep:
    fields.only("name", "python", "inputs", "arguments", "watermark")
    check_function(what)
    inputs, arguments = fields.get("inputs"), fields.get("arguments")
    if inputs is not None:
        chosen = tuple(view_of(item, views) for item in inputs.items())
    else:
        chosen = (views[-1],)
    return PythonStep(
        name=name,
        mark=what.mark,
        function=what.text(),
        inputs=chosen,
        arguments=arguments.fields().as_texts() if arguments else {},
        watermark=read_watermark(fields.get("watermark")),
    )


def _parse(
    name: str, fields: Fields, what: Field, views: list[str], *, folder: Path, only_json: bool
) -> ParseStep:
    if only_json:
        kind = ParseFormat.JSON
    else:
        fields.only(
            "name", "parse", "format", "column", "schema", "schema_file", "registry", "message",
            "options", "on_error", "on_change",
        )  # fmt: skip
        kind = ParseFormat(fields.need("format").choice(*ParseFormat))
    view = view_of(what, views)
    column, on_error, on_change = (fields.get(each) for each in ("column", "on_error", "on_change"))
    changed = OnChange(on_change.choice(*OnChange)) if on_change else OnChange.IGNORE
    if on_change is not None and changed is not OnChange.IGNORE:
        if kind is ParseFormat.CSV:
            on_change.fail(
                "is not for csv, whose fields have no names: a row with more or fewer fields is"
                " broken, see on_error"
            )
        if kind is ParseFormat.DEBEZIUM:
            on_change.fail("is not for debezium, whose envelope has fields of its own")
        if kind is ParseFormat.LOG:
            on_change.fail("is not for log lines: their columns are always the same")
    if column is not None and kind is ParseFormat.LOG and column.text() != "value":
        column.fail("is not for log lines: they are in the column 'value'")
    _exclude(fields, kind)
    has_source = fields.get("schema_file") is not None or fields.get("registry") is not None
    needs_source = kind in WITH_SCHEMA_SOURCE and kind not in _WITH_SCHEMA
    schema = fields.need("schema") if kind in _WITH_SCHEMA and not has_source else None
    return ParseStep(
        name=name,
        mark=what.mark,
        input=view,
        format=kind,
        column=column.text() if column else "value",
        column_mark=(column or what).mark,
        schema=_schema(schema, kind) if schema else "",
        schema_mark=(schema or what).mark,
        source=read_schema_source(fields, kind, folder) if has_source or needs_source else None,
        options=_options(fields.get("options"), kind),
        on_error=OnError(on_error.choice(*OnError)) if on_error else OnError.DEAD_LETTERS,
        on_change=changed,
    )


_WITH_SCHEMA: Final = (
    ParseFormat.JSON,
    ParseFormat.CSV,
    ParseFormat.LOGFMT,
    ParseFormat.DEBEZIUM,
)


def _exclude(fields: Fields, kind: ParseFormat) -> None:
    """Refuse the fields that other formats have."""
    schema = fields.get("schema")
    if schema is not None and kind in WITH_SCHEMA_SOURCE and kind not in _WITH_SCHEMA:
        schema.fail(f"is not for {kind}: name its schema with schema_file or registry")
    if schema is not None and kind is ParseFormat.LOG:
        schema.fail("is not for log lines: their columns are always the same")
    for name in ("schema_file", "registry"):
        given = fields.get(name)
        if given is not None and kind not in WITH_SCHEMA_SOURCE:
            given.fail(f"is for format: json, avro and protobuf, not for {kind}")
        if given is not None and schema is not None:
            given.fail("excludes the field 'schema'")
    message = fields.get("message")
    if message is not None and kind is not ParseFormat.PROTOBUF:
        message.fail(f"is for format: protobuf, not for {kind}")


def _schema(field: Field, kind: ParseFormat) -> str:
    text = field.text()
    try:
        columns = parse_ddl(text)
    except SchemaWrong as error:
        raise field.mark.wrong(str(error), text_line=error.line) from None
    for each in columns:
        if each.name.lower() in RESERVED_COLUMNS:
            field.fail(f"a field cannot be named {each.name!r}: pipelines use it")
    if kind not in (ParseFormat.JSON, ParseFormat.DEBEZIUM):
        for each in columns:
            if each.is_nested:
                field.fail(
                    f"the column {each.name!r} is {each.base_type}, and {kind} has no nested values:"
                    " give it as STRING"
                )
    return text


def _options(field: Field | None, kind: ParseFormat) -> dict[str, str]:
    if field is None:
        return {}
    known = {
        ParseFormat.CSV: CSV_OPTIONS,
        ParseFormat.JSON: JSON_OPTIONS,
        ParseFormat.DEBEZIUM: JSON_OPTIONS,
    }.get(kind)
    if known is None:
        field.fail(f"is for json, csv and debezium: {kind} has no options")
    fields = field.fields()
    fields.only(*known)
    for name in ("sep", "quote", "escape", "comment"):
        given = fields.get(name)
        if given is not None and len(given.text()) != 1:
            given.fail(f"is one character, not {given.text()!r}")
    return fields.as_texts()


def _check(name: str, fields: Fields, what: Field, views: list[str]) -> CheckStep:
    fields.only("name", "check", "rules")
    rules = tuple(_rule(item) for item in _rules(fields))
    return CheckStep(name=name, mark=what.mark, input=view_of(what, views), rules=rules)


def _rules(fields: Fields) -> list[Field]:
    rules = fields.need("rules")
    items = rules.items()
    if not items:
        rules.fail("has no rule")
    if len(items) > RULES_MAX:
        rules.fail(f"there are more than {RULES_MAX} rules")
    return items


def _rule(field: Field) -> Rule:
    fields = field.fields()
    fields.only("rule", "reason")
    rule = fields.need("rule")
    return Rule(expression=check_sql(rule), reason=fields.need("reason").text(), mark=rule.mark)


def _expect(name: str, fields: Fields, what: Field, views: list[str]) -> ExpectStep:
    fields.only("name", "expect", "rules")
    rules: list[Expectation] = []
    for item in _rules(fields):
        rules.append(_expectation(item))
        if any(rules[-1].name == each.name for each in rules[:-1]):
            item.fields().need("name").fail(f"there are two rules named {rules[-1].name!r}")
    return ExpectStep(name=name, mark=what.mark, input=view_of(what, views), rules=tuple(rules))


def _expectation(field: Field) -> Expectation:
    fields = field.fields()
    fields.only("name", "rule", "action", "sink")
    rule, sink = fields.need("rule"), fields.get("sink")
    action = Action(fields.need("action").choice(*Action))
    if action is Action.QUARANTINE and sink is None:
        field.fail("needs the field 'sink': which of the sinks gets the rows")
    if action is not Action.QUARANTINE and sink is not None:
        sink.fail(f"is for action: quarantine, not for {action}")
    return Expectation(
        name=fields.need("name").name(),
        expression=check_sql(rule),
        action=action,
        sink=sink.text() if sink else None,
        mark=rule.mark,
    )


def _deduplicate(name: str, fields: Fields, what: Field, views: list[str]) -> DeduplicateStep:
    fields.only("name", "deduplicate", "by", "time", "within")
    by, time, within = fields.need("by"), fields.get("time"), fields.need("within")
    columns = by.texts()
    if not columns:
        by.fail("names no column")
    for each in columns:
        if columns.count(each) > 1:
            by.fail(f"names the column {each!r} twice")
    within_ms = duration_ms(within)
    if within_ms == 0:
        within.fail("must be longer than 0")
    return DeduplicateStep(
        name=name,
        mark=what.mark,
        input=view_of(what, views),
        by=columns,
        by_mark=by.mark,
        time=time.text() if time else "timestamp",
        time_mark=(time or what).mark,
        within_ms=within_ms,
    )


def _enrich(
    name: str, fields: Fields, what: Field, views: list[str], tables: Collection[str]
) -> EnrichStep:
    fields.only(
        "name", "enrich", "table", "by", "columns", "where", "sequence_by", "refresh", "missing"
    )
    table, by, columns = fields.need("table"), fields.need("by"), fields.need("columns")
    if table.text() not in tables:
        known = ", ".join(tables) or "none"
        table.fail(
            f"there is no table {table.text()!r} among the sources: it is one with `table`, or with `jdbc`"
            f" and without `grows`; there are: {known}"
        )
    compared, added = _pairs(by), _pairs(columns)
    for each, _ in added:
        if each.lower() in RESERVED_COLUMNS:
            columns.fail(f"a column cannot be named {each!r}: pipelines use it")
    where, sequence, refresh, missing = (
        fields.get(each) for each in ("where", "sequence_by", "refresh", "missing")
    )
    if sequence is not None and any(sequence.text() == each for _, each in compared):
        sequence.fail(f"names the column {sequence.text()!r}, which is in the key")
    return EnrichStep(
        name=name,
        mark=what.mark,
        input=view_of(what, views),
        table=table.text(),
        table_mark=table.mark,
        by=compared,
        by_mark=by.mark,
        columns=added,
        columns_mark=columns.mark,
        where=(check_sql(where), where.mark) if where else None,
        sequence=sequence.text() if sequence else None,
        sequence_mark=(sequence or what).mark,
        refresh_ms=duration_ms(refresh) if refresh else REFRESH_MS,
        missing=Missing(missing.choice(*Missing)) if missing else Missing.KEEP,
    )


def _pairs(field: Field) -> tuple[tuple[str, str], ...]:
    """Names of columns, `[a, b]`, or pairs of them, `{a: b}`; a name alone stands for both."""
    if field.is_mapping:
        found = tuple((name, each.text()) for name, each in field.fields())
    else:
        found = tuple((name, name) for name in field.texts())
    if not found:
        field.fail("names no column")
    if len(found) > COLUMNS_MAX:
        field.fail(f"names more than {COLUMNS_MAX} columns")
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1:
            field.fail(f"names the column {name!r} twice")
    return found
