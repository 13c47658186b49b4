"""Reads a pipeline file into its spec: validates every field, and names the line of every error."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from zhumq.model.address import parse_addresses
from zhumq.pipelines.document import Field, Fields, SpecInvalid, read_document
from zhumq.pipelines.function_check import check_functions
from zhumq.pipelines.iceberg_reader import read_iceberg
from zhumq.pipelines.jdbc_reader import read_database, read_target, refuse_keys
from zhumq.pipelines.merge_reader import read_merge
from zhumq.pipelines.schedule_reader import read_schedule, read_upkeep
from zhumq.pipelines.secrets import security_texts, without_prefix
from zhumq.pipelines.source_reader import read_sources, table_path
from zhumq.pipelines.spec import (
    DEAD_LETTERS,
    KEPT_COLUMNS,
    QUARANTINE,
    TABLE_FORMATS,
    CheckStep,
    ConsoleSink,
    DeadLetters,
    EmptySink,
    EnrichStep,
    ExpectStep,
    MergeSink,
    Missing,
    OnChange,
    OnError,
    ParseStep,
    Pipeline,
    Report,
    Sink,
    Source,
    Step,
    TableSink,
    TableUpkeep,
    TopicSink,
    TopicSource,
    Trigger,
    TriggerKind,
    is_read_whole,
)
from zhumq.pipelines.sql_text import views_in
from zhumq.pipelines.step_reader import (
    check_function,
    check_query,
    check_sql,
    read_steps,
    view_of,
)
from zhumq.pipelines.stream_joins import check_stream_joins
from zhumq.pipelines.topic_fields import (
    refuse_endless_dead_letters,
    sink_options,
    target_topic,
)

PARAMETERS_MAX: Final = 100
BATCH: Final = "batch"  # the view of a micro-batch
SINKS_MAX: Final = 20  # each is a streaming query with threads and a checkpoint of its own

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_INTERVAL: Final = re.compile(r"(\d+)\s*(ms|s|m|h|milliseconds?|seconds?|minutes?|hours?)")
_UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}


def load_pipeline(path: Path, given: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline in a file, with values for its parameters. Raises SpecInvalid."""
    pipeline = parse_pipeline(read_document(path), str(path), given or {})
    check_functions(pipeline)
    check_stream_joins(pipeline)
    return pipeline


def parse_pipeline(whole: Field, file: str, given: Mapping[str, str]) -> Pipeline:
    """The pipeline in a document."""
    top = with_values(whole, file, given).fields()
    name = top.need("name")
    if not _NAME.fullmatch(name.text()):
        name.fail(f"{name.text()!r} is not a name: use a-z, A-Z, 0-9, '.', '_' and '-'")
    trigger = _trigger(top.get("trigger"))
    streaming = trigger.kind is not TriggerKind.BATCH
    views: list[str] = []
    sources = read_sources(top.need("sources"), views, streaming=streaming)
    tables = [each.name for each in sources if is_read_whole(each)]
    steps = read_steps(top.get("steps"), views, folder=Path(file).parent, tables=tables)
    sinks = _sinks(top.need("sinks"), views, _quarantines(steps), streaming=streaming)
    dead_letters = _dead_letters(top.get(DEAD_LETTERS), sources if streaming else ())
    _check_targets(steps, sinks, dead_letters)
    description, security = top.get("description"), top.get("security")
    return Pipeline(
        file=file,
        name=name.text(),
        description=" ".join(description.text().split()) if description else "",
        bootstrap=_bootstrap(top.get("bootstrap")),
        security=without_prefix(security) if security else {},
        trigger=trigger,
        schedule=read_schedule(top.get("schedule"), trigger),
        spark=_spark(top.get("spark")),
        sources=sources,
        steps=steps,
        sinks=sinks,
        dead_letters=dead_letters,
        report=_report(top.get("report")),
    )


def with_values(whole: Field, file: str, given: Mapping[str, str]) -> Field:
    """The document with values for its parameters: the given ones, else the defaults in the file."""
    top = whole.fields()
    top.only(
        "name", "description", "parameters", "bootstrap", "security", "trigger", "schedule", "spark", "sources",
        "steps", "sinks", DEAD_LETTERS, "report", "tests",
    )  # fmt: skip
    return whole.with_parameters(_parameters(top, file, given))


def _quarantines(steps: tuple[Step, ...]) -> frozenset[str]:
    """The sinks that expect steps send rows to."""
    return frozenset(
        rule.sink
        for step in steps
        if isinstance(step, ExpectStep)
        for rule in step.rules
        if rule.sink is not None
    )


def _check_targets(
    steps: tuple[Step, ...], sinks: tuple[Sink, ...], dead_letters: DeadLetters | None
) -> None:
    """Fail if there is no place for the rows that a step rejects."""
    names = [sink.name for sink in sinks]
    for step in steps:
        match step:
            case CheckStep():
                rejects = True
            case ParseStep():
                rejects = (
                    step.on_error is OnError.DEAD_LETTERS or step.on_change is OnChange.DEAD_LETTERS
                )
            case EnrichStep():
                rejects = step.missing is Missing.DEAD_LETTERS
            case ExpectStep():
                rejects = False
                for rule in step.rules:
                    if rule.sink is not None and rule.sink not in names:
                        raise rule.mark.wrong(
                            f"there is no sink {rule.sink!r} for the quarantine; there are:"
                            f" {', '.join(names)}"
                        )
            case _:
                rejects = False
        if rejects and dead_letters is None:
            raise step.mark.wrong(
                f"finds bad rows: give the topic for them: {DEAD_LETTERS}: {{topic: NAME}}"
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


def _bootstrap(field: Field | None) -> str | None:
    if field is None:
        return None
    text = field.text()
    try:
        parse_addresses(text)
    except ValueError as error:
        field.fail(f"{error}; a broker listens at 127.0.0.1:9092, for example")
    return text


def _spark(field: Field | None) -> dict[str, str]:
    """The settings of the session. Spark ignores those whose names it does not know."""
    if field is None:
        return {}
    for name, part in field.fields():
        if not name.startswith("spark."):
            part.fail(f"is no setting of Spark: their names begin with spark., as spark.{name}")
        if name == "spark.master":
            part.fail("is not given here: zhumq pipeline run --master URL")
    return field.fields().as_texts()


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


def _sinks(
    field: Field, views: list[str], quarantines: frozenset[str], *, streaming: bool
) -> tuple[Sink, ...]:
    found: list[Sink] = []
    for name, item in field.fields():
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == DEAD_LETTERS:
            item.fail(f"{name!r} cannot name a sink: use a-z, 0-9 and _, and begin with a-z")
        found.append(_sink(name, item, views, name in quarantines, streaming=streaming))
        _check_table_is_free(found)
    if not found:
        field.fail("names no sink")
    if len(found) > SINKS_MAX:
        field.fail(f"there are more than {SINKS_MAX} sinks")
    return tuple(found)


def _check_table_is_free(sinks: list[Sink]) -> None:
    """Fail if the last sink merges into a table of another sink, or writes to a merged one."""
    *before, last = sinks
    if not isinstance(last, TableSink | MergeSink):
        return
    for each in before:
        if (
            isinstance(each, TableSink | MergeSink)
            and each.path.rstrip("/") == last.path.rstrip("/")
            and MergeSink in (type(each), type(last))
        ):
            raise last.mark.wrong(f"the sink {each.name!r} writes to {last.path} too")


def _sink(
    name: str, field: Field, views: list[str], is_quarantine: bool, *, streaming: bool
) -> Sink:
    fields = field.fields()
    kind, what = fields.one_of("topic", "table", "merge", "console", "must_be_empty")
    source = fields.get("from")
    if is_quarantine:
        chosen = QUARANTINE + name
        if source is not None:
            source.fail("is not for the sink of a quarantine, whose rows come from expect steps")
    else:
        chosen = view_of(source, views) if source is not None else views[-1]
    if kind == "merge":
        return read_merge(name, fields, what, chosen)
    if kind == "table":
        return _table_sink(name, field, what, chosen, views)
    given, mode = fields.get("options"), fields.get("mode")
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
            topic=target_topic(what),
            key=(check_sql(key), key.mark) if key else None,
            value=(check_sql(value), value.mark) if value else None,
            keep=(
                tuple(item.choice(*KEPT_COLUMNS) for item in keep.items()) if keep else ("headers",)
            ),
            mode=output,
            rate=(rate.number(minimum=0) or None) if rate else None,
            options=sink_options(given),
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


def _table_sink(name: str, field: Field, what: Field, source: str, views: list[str]) -> TableSink:
    fields = field.fields()
    fields.only(
        "table",
        "from",
        "format",
        "partition_by",
        "batch_sql",
        "keys",
        "sequence_by",
        "options",
        "upkeep",
    )
    columns, batch_sql = fields.get("partition_by"), fields.get("batch_sql")
    given, kind_of_table = fields.get("options"), fields.get("format")
    kind = kind_of_table.choice(*TABLE_FORMATS) if kind_of_table else "parquet"
    if kind == "delta" and given is not None:
        given.fail("is not for format: delta, which has no options")
    if kind == "jdbc":
        options = read_database(fields)
    elif kind == "iceberg":
        refuse_keys(fields, kind)
        options = read_iceberg(fields, what)
    else:
        options = security_texts(given) if given else {}
        refuse_keys(fields, kind)
    partition_by = _partition_columns(columns) if columns else ()
    return TableSink(
        name=name,
        mark=field.mark,
        input=source,
        path=table_path(what),
        format=kind,
        partition_by=partition_by,
        partition_mark=(columns or field).mark,
        batch_sql=(_batch_sql(batch_sql, views), batch_sql.mark) if batch_sql else None,
        options=options,
        jdbc=read_target(fields, what) if kind == "jdbc" else None,
        upkeep=_upkeep(fields.get("upkeep"), kind, what, partition_by),
    )


def _upkeep(
    field: Field | None, kind: str, what: Field, partition_by: tuple[str, ...]
) -> TableUpkeep | None:
    if field is not None and kind != "delta":
        field.fail(f"is for format: delta and for merge, not for {kind}")
    return read_upkeep(field, what.text(), partition_by)


def _partition_columns(field: Field) -> tuple[str, ...]:
    names = field.texts()
    for each in names:
        if names.count(each) > 1:
            field.fail(f"names the column {each!r} twice")
    return names


def _batch_sql(field: Field, views: list[str]) -> str:
    text = check_query(field, [BATCH, *views])
    if not views_in(text, [BATCH]):
        field.fail(f"does not read the view {BATCH!r}, which is the micro-batch")
    return text


def _dead_letters(field: Field | None, streamed: tuple[Source, ...]) -> DeadLetters | None:
    if field is None:
        return None
    fields = field.fields()
    fields.only("topic", "options")
    what = fields.need("topic")
    topic = target_topic(what)
    for source in streamed:
        if isinstance(source, TopicSource):
            refuse_endless_dead_letters(what, topic, source.options.get("subscribe", "").split(","))
    options = sink_options(fields.get("options"))
    return DeadLetters(topic=topic, mark=field.mark, options=options)


def _report(field: Field | None) -> Report | None:
    if field is None:
        return None
    fields = field.fields()
    fields.only("python", "arguments")
    function, arguments = fields.need("python"), fields.get("arguments")
    check_function(function)
    return Report(
        function=function.text(),
        mark=function.mark,
        arguments=arguments.fields().as_texts() if arguments else {},
    )
