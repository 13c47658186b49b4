"""Which sinks of a stream can share one read of a topic, and why others read on their own. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from zhumq.pipelines.spec import (
    DEAD_LETTERS,
    FILE_FORMATS,
    QUARANTINE,
    CheckStep,
    ConsoleSink,
    DeduplicateStep,
    EmptySink,
    EnrichStep,
    ExpectStep,
    FilesSource,
    JdbcSource,
    MergeSink,
    Missing,
    OnChange,
    OnError,
    ParseStep,
    Pipeline,
    PythonStep,
    Sink,
    Source,
    SqlStep,
    Step,
    TableSink,
    TopicSink,
    is_read_whole,
)
from zhumq.pipelines.sql_text import views_in, words_of

# Words of queries that may need more rows than those of one micro-batch. Spark's plan has the last word.
STATEFUL_WORDS: Final = frozenset(
    {
        "group", "having", "distinct", "over", "window", "limit", "order", "sort", "qualify", "pivot",
        "intersect", "except", "minus", "tablesample",
    }
)  # fmt: skip
ONCE_FORMATS: Final = (*FILE_FORMATS, "delta", "iceberg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """How the sinks of a pipeline read: together from a source, or on their own for a reason."""

    shared: Mapping[str, tuple[str, ...]]  # source: sinks, at least two
    own: Mapping[str, str]  # sink: reason

    def of(self, sink: str) -> str | None:
        """How one sink reads, in words."""
        for source, names in self.shared.items():
            if sink in names:
                others = ", ".join(each for each in names if each != sink)
                if not others:
                    return f"goes on alone in the read of {source} that it shared"
                return f"shares one read of {source} with {others}"
        return f"reads on its own: {self.own[sink]}" if sink in self.own else None

    def without(self, reasons: Mapping[str, str]) -> "Reads":
        """The same, but for sinks that cannot share a read for reasons that the file does not show."""
        own = {**self.own, **reasons}
        shared: dict[str, tuple[str, ...]] = {}
        for source, names in self.shared.items():
            kept = tuple(name for name in names if name not in reasons)
            if len(kept) > 1:
                shared[source] = kept
            else:
                own |= dict.fromkeys(kept, alone(source))
        return Reads(shared=shared, own=own)

    def words(self) -> list[str]:
        """Lines for people, if there is more than one sink."""
        if sum(map(len, self.shared.values())) + len(self.own) < 2:
            return []
        return [
            *(f"one read of {name} for {', '.join(each)}" for name, each in self.shared.items()),
            *(f"own read for {name}: {reason}" for name, reason in self.own.items()),
        ]


@dataclass(frozen=True, slots=True)
class _View:
    sources: frozenset[str] = frozenset()  # the topics and folders that its rows come from
    state: str | None = None  # why its rows cannot be made of one micro-batch of a topic


def reads_of(pipeline: Pipeline) -> Reads:
    """How the sinks read, as far as the file says. Spark's plan may show that a step keeps state."""
    return able_to_share(pipeline).without({})


def able_to_share(pipeline: Pipeline) -> Reads:
    """The sinks that can share a read of a source, also where there is but one; others with a reason."""
    if not pipeline.is_stream:
        return Reads(shared={}, own={})
    views = {
        source.name: _View(
            frozenset(() if is_read_whole(source) else {source.name}),
            _own_read_of(source),
        )
        for source in pipeline.sources
    }
    rejected: dict[str, list[str]] = {}  # input of a sink: the steps that send rows to it
    for step in pipeline.steps:
        inputs = inputs_of(step, list(views))
        views[step.name] = _union([views[name] for name in inputs], _state_of(step))
        if has_dead_letters(step):
            rejected.setdefault(DEAD_LETTERS, []).append(step.name)
        if isinstance(step, ExpectStep):
            for name in {rule.sink for rule in step.rules if rule.sink is not None}:
                rejected.setdefault(QUARANTINE + name, []).append(step.name)
    inputs_of_sinks = {sink.name: sink.input for sink in pipeline.sinks}
    if pipeline.dead_letters is not None:
        inputs_of_sinks[DEAD_LETTERS] = DEAD_LETTERS
    by_name = {sink.name: sink for sink in pipeline.sinks}
    grouped: dict[str, list[str]] = {}
    own: dict[str, str] = {}
    tables: set[str] = set()
    for name, source in inputs_of_sinks.items():
        steps = rejected.get(source, [source] if source in views else [])
        view = _union([views[each] for each in steps], None)
        sink = by_name.get(name)
        reason = (None if sink is None else not_repeatable(sink)) or view.state
        if reason is None and len(view.sources) != 1:
            reason = f"reads {' and '.join(sorted(view.sources)) or 'no topic'}"
        if reason is None and isinstance(sink, TableSink):
            if sink.path in tables:
                reason = "another sink writes to the same table"
            tables.add(sink.path)
        if reason is None:
            grouped.setdefault(min(view.sources), []).append(name)
        else:
            own[name] = reason
    return Reads(shared={name: tuple(each) for name, each in grouped.items()}, own=own)


def alone(source: str) -> str:
    """Why a sink that could share a read does not."""
    return f"no other sink can share a read of {source}"


def steps_for(pipeline: Pipeline, sinks: Collection[str]) -> tuple[Step, ...]:
    """The steps that the rows of some sinks come through."""
    inputs = {sink.input for sink in pipeline.sinks if sink.name in sinks}
    needed = set(inputs)
    for step in pipeline.steps:
        if isinstance(step, ExpectStep):
            targets = {QUARANTINE + rule.sink for rule in step.rules if rule.sink is not None}
            needed |= {step.name} if targets & inputs else set()
        if DEAD_LETTERS in sinks and has_dead_letters(step):
            needed.add(step.name)
    above = [each.name for each in (*pipeline.sources, *pipeline.steps)]
    for step in reversed(pipeline.steps):
        if step.name in needed:
            needed |= set(inputs_of(step, above[: above.index(step.name)]))
    return tuple(step for step in pipeline.steps if step.name in needed)


def sources_for(pipeline: Pipeline, sink: str) -> tuple[Source, ...]:
    """The sources that the rows of a sink come from."""
    needed = {each.input for each in pipeline.sinks if each.name == sink}
    above = [each.name for each in (*pipeline.sources, *pipeline.steps)]
    for step in steps_for(pipeline, {sink}):
        needed |= set(inputs_of(step, above[: above.index(step.name)]))
    return tuple(each for each in pipeline.sources if each.name in needed)


def not_repeatable(sink: Sink) -> str | None:
    """Why a sink cannot leave out a micro-batch that it has written; None if it can.

    Those that can are written by `sinks.write_batch`, which gets the name of the writer and the number of the batch.
    """
    match sink:
        case MergeSink():
            return None
        case TopicSink():
            return None if sink.mode == "append" else f"its mode is {sink.mode}"
        case TableSink():
            is_once = sink.format in ONCE_FORMATS or sink.jdbc is not None
            return None if is_once else f"{sink.format} repeats rows"
        case ConsoleSink() | EmptySink():
            return "it only shows rows"
        case _:
            assert_never(sink)


def inputs_of(step: Step, above: Sequence[str]) -> tuple[str, ...]:
    """The views that a step reads, of those above it."""
    match step:
        case SqlStep():
            return views_in(step.sql, above)
        case PythonStep():
            return tuple(dict.fromkeys(step.inputs))
        case ParseStep() | CheckStep() | ExpectStep() | DeduplicateStep():
            return (step.input,)
        case EnrichStep():
            return (step.input, step.table)
        case _:
            assert_never(step)


def views_that_are_read(pipeline: Pipeline) -> frozenset[str]:
    """The sources and steps that a step or a sink reads as a view; a table that only enriches is none."""
    found = {sink.input for sink in pipeline.sinks}
    above = [each.name for each in (*pipeline.sources, *pipeline.steps)]
    for sink in pipeline.sinks:
        if isinstance(sink, TableSink) and sink.batch_sql is not None:
            found.update(views_in(sink.batch_sql[0], above))
    for step in pipeline.steps:
        if isinstance(step, EnrichStep):
            found.add(step.input)
        else:
            found.update(inputs_of(step, above[: above.index(step.name)]))
    return frozenset(found)


def has_dead_letters(step: Step) -> bool:
    match step:
        case CheckStep():
            return True
        case ParseStep():
            return step.on_error is OnError.DEAD_LETTERS or step.on_change is OnChange.DEAD_LETTERS
        case EnrichStep():
            return step.missing is Missing.DEAD_LETTERS
        case _:
            return False


def _union(views: Sequence[_View], state: str | None) -> _View:
    sources = frozenset().union(*(each.sources for each in views))
    return _View(sources, next((each.state for each in views if each.state), state))


def _own_read_of(source: Source) -> str | None:
    """Why each sink reads a source itself; None if they can share a read."""
    if isinstance(source, FilesSource):
        return f"reads the files of {source.name}"
    if isinstance(source, JdbcSource) and source.grows is not None:
        return f"reads the rows of {source.name}"
    return None


def _state_of(step: Step) -> str | None:
    if isinstance(step, DeduplicateStep):
        return f"{step.name} keeps state"
    if isinstance(step, SqlStep):
        words = sorted(STATEFUL_WORDS.intersection(words_of(step.sql)))
        return f"{step.name} may keep state ({words[0].upper()})" if words else None
    return None
