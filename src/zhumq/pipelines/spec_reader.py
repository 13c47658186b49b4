"""Reads a pipeline file into its spec: validates every field, and names the line of every error."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from zhumq.pipelines.document import Field, Fields, SpecInvalid, read_document
from zhumq.pipelines.secrets import security_texts, without_prefix
from zhumq.pipelines.spec import (
    DEAD_LETTERS,
    KEPT_COLUMNS,
    TABLE_FORMATS,
    CheckStep,
    ConsoleSink,
    DeadLetters,
    EmptySink,
    JsonStep,
    Pipeline,
    PythonStep,
    Report,
    Rule,
    Sink,
    Source,
    SqlStep,
    Step,
    TableSink,
    TableSource,
    TopicSink,
    TopicSource,
    Trigger,
    TriggerKind,
    Watermark,
)
from zhumq.spark.options import OptionInvalid, read_options

PARAMETERS_MAX: Final = 100
SINKS_MAX: Final = 20  # each is a streaming query with threads and a checkpoint of its own

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_INTERVAL: Final = re.compile(r"(\d+)\s*(ms|s|m|h|milliseconds?|seconds?|minutes?|hours?)")
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}


def load_pipeline(path: Path, given: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline in a file, with values for its parameters. Raises SpecInvalid."""
    return parse_pipeline(read_document(path), str(path), given or {})


def parse_pipeline(whole: Field, file: str, given: Mapping[str, str]) -> Pipeline:
    """The pipeline in a document."""
    top = whole.fields()
    top.only(
        "name", "description", "parameters", "bootstrap", "security", "trigger", "spark", "sources",
        "steps", "sinks", DEAD_LETTERS, "report",
    )  # fmt: skip
    parameters = _parameters(top, file, given)
    top = whole.with_parameters(parameters).fields()
    name = top.need("name")
    if not _NAME.fullmatch(name.text()):
        name.fail(f"{name.text()!r} is not a name: use a-z, A-Z, 0-9, '.', '_' and '-'")
    trigger = _trigger(top.get("trigger"))
    streaming = trigger.kind is not TriggerKind.BATCH
    views: list[str] = []
    sources = _sources(top.need("sources"), views, streaming=streaming)
    steps = _steps(top.get("steps"), views)
    sinks = _sinks(top.need("sinks"), views, streaming=streaming)
    dead_letters = _dead_letters(top.get(DEAD_LETTERS))
    for step in steps:
        if isinstance(step, JsonStep | CheckStep) and dead_letters is None:
            raise step.mark.wrong(
                f"finds bad rows: give the topic for them: {DEAD_LETTERS}: {{topic: NAME}}"
            )
    bootstrap, description, spark = top.get("bootstrap"), top.get("description"), top.get("spark")
    security = top.get("security")
    return Pipeline(
        file=file,
        name=name.text(),
        description=" ".join(description.text().split()) if description else "",
        bootstrap=bootstrap.text() if bootstrap else None,
        security=without_prefix(security) if security else {},
        trigger=trigger,
        spark=spark.fields().as_texts() if spark else {},
        sources=sources,
        steps=steps,
        sinks=sinks,
        dead_letters=dead_letters,
        report=_report(top.get("report")),
    )


def _parameters(top: Fields, file: str, given: Mapping[str, str]) -> dict[str, str]:
    """The values of the parameters: the given ones, else the defaults in the file."""
    declared = top.get("parameters")
    values: dict[str, str] = {}
    for name, field in declared.fields() if declared else ():
        if name in given:
            values[name] = given[name]
        elif field.is_empty:
            field.fail(f"has no value: give it with --set {name}=...")
        else:
            values[name] = field.with_parameters(values).text()
    for name in given:
        if name not in values:
            known = ", ".join(values) or "none"
            raise SpecInvalid(f"{file}: there is no parameter {name!r}; there are: {known}")
    if len(values) > PARAMETERS_MAX:
        raise SpecInvalid(f"{file}: there are more than {PARAMETERS_MAX} parameters")
    return values


def _trigger(field: Field | None) -> Trigger:
    if field is None:
        return Trigger(kind=TriggerKind.AVAILABLE_NOW)
    text = field.text()
    if text in (TriggerKind.BATCH, TriggerKind.AVAILABLE_NOW):
        return Trigger(kind=TriggerKind(text))
    match = _INTERVAL.fullmatch(text)
    if match is None:
        field.fail(f"is batch, available-now, or a time such as 10s, not {text!r}")
    unit = _UNITS.get(match[2], match[2])
    return Trigger(kind=TriggerKind.INTERVAL, interval=f"{match[1]} {unit}")


def _sources(field: Field, views: list[str], *, streaming: bool) -> tuple[Source, ...]:
    found: list[Source] = []
    for name, source in field.fields():
        _new_view(source, name, views)
        found.append(_source(name, source, streaming=streaming))
    if not found:
        field.fail("names no source")
    if streaming and not any(isinstance(each, TopicSource) for each in found):
        field.fail("a stream needs a topic among its sources; without one, set trigger: batch")
    return tuple(found)


def _source(name: str, field: Field, *, streaming: bool) -> Source:
    fields = field.fields()
    kind, what = fields.one_of("topic", "topics", "pattern", "segments", "table")
    given = fields.get("options")
    options = security_texts(given) if given else {}
    if kind == "table":
        fields.only("table", "format", "options")
        kind_of_table = fields.get("format")
        return TableSource(
            name=name,
            mark=field.mark,
            path=what.text(),
            format=kind_of_table.text() if kind_of_table else "parquet",
            options=options,
        )
    fields.only(kind, "from", "until", "headers", "columns", "watermark", "options")
    if kind == "segments":
        if streaming:
            what.fail("a stream needs a broker; segment folders are for trigger: batch")
        options["path"] = what.text()
    elif kind == "pattern":
        options["subscribePattern"] = what.text()
    else:
        options["subscribe"] = ",".join(what.texts())
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
        field.fail(str(error))
    return TopicSource(
        name=name, mark=field.mark, options=options, watermark=_watermark(fields.get("watermark"))
    )


def _steps(field: Field | None, views: list[str]) -> tuple[Step, ...]:
    found: list[Step] = []
    for item in field.items() if field is not None else ():
        found.append(_step(item, views))
        _new_view(item.fields().need("name"), found[-1].name, views)
    return tuple(found)


def _step(field: Field, views: list[str]) -> Step:
    fields = field.fields()
    name = fields.need("name").name()
    kind, what = fields.one_of("sql", "python", "json", "check")
    watermark = _watermark(fields.get("watermark"))
    if kind == "sql":
        fields.only("name", "sql", "watermark")
        return SqlStep(name=name, mark=what.mark, sql=what.text(), watermark=watermark)
    if kind == "python":
        fields.only("name", "python", "inputs", "arguments", "watermark")
        _check_function(what)
        inputs, arguments = fields.get("inputs"), fields.get("arguments")
        if inputs is not None:
            chosen = tuple(_view(item, views) for item in inputs.items())
        else:
            chosen = (views[-1],)
        return PythonStep(
            name=name,
            mark=what.mark,
            function=what.text(),
            inputs=chosen,
            arguments=arguments.fields().as_texts() if arguments else {},
            watermark=watermark,
        )
    if kind == "json":
        fields.only("name", "json", "column", "schema")
        column, schema = fields.get("column"), fields.need("schema")
        return JsonStep(
            name=name,
            mark=what.mark,
            input=_view(what, views),
            column=column.text() if column else "value",
            column_mark=(column or what).mark,
            schema=schema.text(),
            schema_mark=schema.mark,
        )
    fields.only("name", "check", "rules")
    rules = tuple(_rule(item) for item in fields.need("rules").items())
    if not rules:
        fields.need("rules").fail("has no rule")
    return CheckStep(name=name, mark=what.mark, input=_view(what, views), rules=rules)


def _rule(field: Field) -> Rule:
    fields = field.fields()
    fields.only("rule", "reason")
    rule = fields.need("rule")
    return Rule(expression=rule.text(), reason=fields.need("reason").text(), mark=rule.mark)


def _sinks(field: Field, views: list[str], *, streaming: bool) -> tuple[Sink, ...]:
    found: list[Sink] = []
    for name, item in field.fields():
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == DEAD_LETTERS:
            item.fail(f"{name!r} cannot name a sink: use a-z, 0-9 and _, and begin with a-z")
        found.append(_sink(name, item, views, streaming=streaming))
    if not found:
        field.fail("names no sink")
    if len(found) > SINKS_MAX:
        field.fail(f"there are more than {SINKS_MAX} sinks")
    return tuple(found)


def _sink(name: str, field: Field, views: list[str], *, streaming: bool) -> Sink:
    fields = field.fields()
    kind, what = fields.one_of("topic", "table", "console", "must_be_empty")
    source = fields.get("from")
    chosen = _view(source, views) if source is not None else views[-1]
    given, mode = fields.get("options"), fields.get("mode")
    options = security_texts(given) if given else {}
    output = mode.choice("append", "update", "complete") if mode else "append"
    if kind == "topic":
        fields.only("topic", "from", "key", "value", "keep", "mode", "rate", "options")
        key, value, rate = fields.get("key"), fields.get("value"), fields.get("rate")
        keep = fields.get("keep")
        if rate is not None and streaming:
            rate.fail("is for trigger: batch; a stream has maxOffsetsPerTrigger of its source")
        return TopicSink(
            name=name,
            mark=field.mark,
            input=chosen,
            topic=what.text(),
            key=(key.text(), key.mark) if key else None,
            value=(value.text(), value.mark) if value else None,
            keep=(
                tuple(item.choice(*KEPT_COLUMNS) for item in keep.items()) if keep else ("headers",)
            ),
            mode=output,
            rate=(rate.number(minimum=0) or None) if rate else None,
            options=options,
        )
    if kind == "table":
        fields.only("table", "from", "format", "partition_by", "batch_sql", "options")
        columns, batch_sql = fields.get("partition_by"), fields.get("batch_sql")
        kind_of_table = fields.get("format")
        return TableSink(
            name=name,
            mark=field.mark,
            input=chosen,
            path=what.text(),
            format=kind_of_table.choice(*TABLE_FORMATS) if kind_of_table else "parquet",
            partition_by=columns.texts() if columns else (),
            partition_mark=(columns or field).mark,
            batch_sql=(batch_sql.text(), batch_sql.mark) if batch_sql else None,
            options=options,
        )
    if kind == "console":
        fields.only("console", "from", "mode")
        return ConsoleSink(
            name=name, mark=field.mark, input=chosen, rows=what.number(), mode=output
        )
    fields.only("must_be_empty", "from", "report")
    if streaming:
        what.fail("is for trigger: batch")
    if not what.flag():
        what.fail("must be true")
    report = fields.get("report")
    return EmptySink(
        name=name, mark=field.mark, input=chosen, report=report.text() if report else None
    )


def _dead_letters(field: Field | None) -> DeadLetters | None:
    if field is None:
        return None
    fields = field.fields()
    fields.only("topic")
    return DeadLetters(topic=fields.need("topic").text(), mark=field.mark)


def _report(field: Field | None) -> Report | None:
    if field is None:
        return None
    fields = field.fields()
    fields.only("python", "arguments")
    function, arguments = fields.need("python"), fields.get("arguments")
    _check_function(function)
    return Report(
        function=function.text(),
        mark=function.mark,
        arguments=arguments.fields().as_texts() if arguments else {},
    )


def _check_function(field: Field) -> None:
    if not _FUNCTION.fullmatch(field.text()):
        field.fail(f"is module:function, not {field.text()!r}")


def _watermark(field: Field | None) -> Watermark | None:
    if field is None:
        return None
    fields = field.fields()
    fields.only("column", "delay")
    column = fields.need("column")
    return Watermark(column=column.text(), delay=fields.need("delay").text(), mark=column.mark)


def _view(field: Field, views: list[str]) -> str:
    name = field.text()
    if name not in views:
        field.fail(f"there is no source or step {name!r} above; there are: {', '.join(views)}")
    return name


def _new_view(field: Field, name: str, views: list[str]) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == "batch":
        field.fail(f"{name!r} cannot name a view: use a-z, 0-9 and _, and begin with a-z")
    if name in views:
        field.fail(f"there are two views named {name!r}")
    views.append(name)
