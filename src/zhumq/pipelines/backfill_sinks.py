"""What a backfill does to each sink: which rows come twice, what a repeat adds, what is not whole at the edges. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, assert_never

from zhumq.pipelines.archive import RECORD_COLUMNS
from zhumq.pipelines.backfill_note import BackfillRefused
from zhumq.pipelines.sharing import inputs_of, sources_for, steps_for
from zhumq.pipelines.spec import (
    FILE_FORMATS,
    ConsoleSink,
    EmptySink,
    FilesSource,
    JdbcSource,
    MergeSink,
    Pipeline,
    Sink,
    Step,
    TableSink,
    TopicSink,
    TopicSource,
    is_read_whole,
)

# Parts of Spark's plan of a stream whose functions keep a state from batch to batch.
NEED_A_STREAM: Final = frozenset(
    {
        "FlatMapGroupsInPandasWithState", "FlatMapGroupsWithState", "TransformWithState",
        "TransformWithStateInPySpark",
    }
)  # fmt: skip
_EDGES: Final = {
    "Aggregate": "counts messages of the range alone: a window or a group that reaches over its edges is not"
    " whole, and is written as it is",
    "Deduplicate": "does not know the keys of before the range: the first message of a key stays, also where"
    " another was just before it",
    "Distinct": "finds duplicates within the range alone",
    "Join": "joins messages of the range alone: one whose partner is outside of it finds none",
}
_OTHER_EDGES: Final = "sees the range alone, as one batch"


class Way(StrEnum):
    """How a sink is written."""

    ONCE = "once"  # by a name and a number: a repeat adds nothing
    FILL = "fill"  # a folder of files: beside the batches of its stream
    PLAIN = "plain"  # a repeat writes everything again
    REPLACE = "replace"  # a Delta table: the rows of these offsets, in one commit
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkBackfill:
    """What a backfill means for one sink."""

    sink: str
    way: Way
    words: str
    is_idempotent: bool = (
        False  # rows that it has leave it as it is, also if the stream writes them later
    )
    edges: tuple[str, ...] = ()  # what its steps make of the edges of the range

    def line(self) -> str:
        return f"{self.sink}: {self.words}"


def chosen_sinks(pipeline: Pipeline, sinks: Sequence[Sink], names: Collection[str]) -> list[Sink]:
    """The sinks that a backfill is for, of all if none is named. Raises BackfillRefused."""
    known = {sink.name: sink for sink in sinks}
    for name in names:
        if name not in known:
            raise BackfillRefused(
                f"{pipeline.file} has no sink {name!r}; it has {', '.join(known)}"
            )
    chosen = [sink for name, sink in known.items() if not names or name in names]
    written = [sink for sink in chosen if not isinstance(sink, ConsoleSink)]
    if not written:
        raise BackfillRefused(f"{', '.join(each.name for each in chosen)} only shows rows")
    for sink in written:
        _check_sources(pipeline, sink, [each.name for each in written])
    return chosen


def way_of(sink: Sink, columns: Collection[str], *, shuffles: bool) -> SinkBackfill:
    """What becomes of the rows of a sink, which has these columns.

    `shuffles`: its tasks are not those of the offsets, so a repeat may divide the rows otherwise.
    """
    match sink:
        case TopicSink():
            return _topic(sink, shuffles=shuffles)
        case MergeSink():
            words = (
                f"merges the changes into {sink.path} by {', '.join(sink.keys)}: changes that it has leave it"
                " as it is, and an older one does not win over a newer one; until the last is merged, a key"
                " may be there whose delete `upkeep` has forgotten"
            )
            return SinkBackfill(sink=sink.name, way=Way.ONCE, words=words, is_idempotent=True)
        case TableSink():
            return _table(sink, columns)
        case ConsoleSink():
            return SinkBackfill(
                sink=sink.name, way=Way.LEFT_OUT, words="is left out: it only shows rows"
            )
        case EmptySink():
            raise AssertionError("it is for trigger: batch, which has no stream")
        case _:
            assert_never(sink)


def replacing(sink: Sink, columns: Collection[str]) -> SinkBackfill:
    """What becomes of the rows of a sink with --replace. Raises BackfillRefused if it cannot tell them."""
    if isinstance(sink, ConsoleSink):
        return way_of(sink, columns, shuffles=False)
    if not isinstance(sink, TableSink) or sink.format != "delta" or not has_offsets(columns):
        raise BackfillRefused(
            f"--replace is for Delta tables whose rows have {', '.join(RECORD_COLUMNS)}, which {sink.name} is"
            " not: name those with --sink"
        )
    words = (
        f"replaces the rows of these offsets in {sink.path}, in one commit; rows of other offsets stay, and a"
        " repeat of this backfill changes nothing"
    )
    return SinkBackfill(sink=sink.name, way=Way.REPLACE, words=words)


def edges_of(pipeline: Pipeline, sink: Sink, kept: Mapping[str, Counter[str]]) -> tuple[str, ...]:
    """What the steps of a sink make of the edges of the range.

    `kept` has the parts of each view's plan that keep a state. Raises SpecInvalid for what only a stream has.
    """
    found = []
    views = [each.name for each in (*pipeline.sources, *pipeline.steps)]
    for step in steps_for(pipeline, {sink.name}):
        own = Counter(kept.get(step.name, Counter()))
        for each in inputs_of(step, views[: views.index(step.name)]):
            own -= kept.get(each, Counter())
        for name in own:
            if name in NEED_A_STREAM:
                raise step.mark.wrong(
                    f"step {step.name!r} keeps a state from batch to batch ({name}), which only a stream has:"
                    " leave its sinks out of the backfill, by naming the others with --sink"
                )
        words = dict.fromkeys(_EDGES.get(_kind(name), _OTHER_EDGES) for name in own)
        found += [f"{_place(step)} {each}" for each in words]
    if isinstance(sink, TableSink) and sink.batch_sql is not None:
        found.append("its batch_sql gets the whole range as one batch")
    for source in sources_for(pipeline, sink.name):
        if not isinstance(source, TopicSource):
            found.append(f"{source.name} is read as it is now")
    return tuple(found)


def has_offsets(columns: Collection[str]) -> bool:
    """Whether rows name the message that they come from."""
    return set(RECORD_COLUMNS) <= set(columns)


def is_exactly_once(sink: TopicSink) -> bool:
    given = {name.lower(): text for name, text in sink.options.items()}
    return given.get("exactlyonce", "").lower() == "true"


def _topic(sink: TopicSink, *, shuffles: bool) -> SinkBackfill:
    again = (
        f"sends each of its rows to {sink.topic}, also those that the stream has sent or will send"
    )
    if is_exactly_once(sink):
        words = f"{again}; all in one transaction, and once however often this backfill is repeated"
        return SinkBackfill(sink=sink.name, way=Way.ONCE, words=words)
    if shuffles:
        words = f"{again}; repeated after a kill, it sends all of them again"
        return SinkBackfill(sink=sink.name, way=Way.PLAIN, words=words)
    words = f"{again}; repeated after a kill, it sends again what unfinished tasks had sent: exactlyOnce would not"
    return SinkBackfill(sink=sink.name, way=Way.ONCE, words=words)


def _table(sink: TableSink, columns: Collection[str]) -> SinkBackfill:
    stream = "also those that the stream has written or will write"
    if sink.format in FILE_FORMATS:
        if has_offsets(columns):
            words = (
                f"adds to {sink.path} the rows whose {', '.join(RECORD_COLUMNS)} it does not have:"
                " nothing that is there comes twice or is replaced"
            )
        else:
            words = (
                f"appends each of its rows to {sink.path}, {stream}: they have no offsets to tell"
            )
        return SinkBackfill(sink=sink.name, way=Way.FILL, words=words)
    if sink.jdbc is not None and sink.jdbc.keys:
        words = (
            f"writes its rows to {sink.path} by {', '.join(sink.jdbc.keys)}: the same rows leave it as it is,"
            f" and one with a lower {sink.jdbc.sequence} than that of the table is left out"
        )
        return SinkBackfill(sink=sink.name, way=Way.ONCE, words=words, is_idempotent=True)
    again = f"appends each of its rows to {sink.path}, {stream}"
    if sink.format in ("delta", "iceberg") or sink.jdbc is not None:
        words = f"{again}; all in one commit, and once however often this backfill is repeated"
        return SinkBackfill(sink=sink.name, way=Way.ONCE, words=words)
    words = f"{again} ({sink.format}); repeated after a kill, it may append all of them again"
    return SinkBackfill(sink=sink.name, way=Way.PLAIN, words=words)


def _check_sources(pipeline: Pipeline, sink: Sink, names: Sequence[str]) -> None:
    sources = sources_for(pipeline, sink.name)
    others = [name for name in names if name != sink.name]
    todo = f": name the others, {' '.join(f'--sink {x}' for x in others)}" if others else ""
    for source in sources:
        if isinstance(source, FilesSource | JdbcSource) and not is_read_whole(source):
            what = "files" if isinstance(source, FilesSource) else "rows"
            raise BackfillRefused(
                f"the sink {sink.name} reads the {what} of {source.name}, which have no offsets{todo}"
            )
    if not any(isinstance(each, TopicSource) for each in sources):
        raise BackfillRefused(f"the sink {sink.name} reads no topic{todo}")


def _kind(name: str) -> str:
    return "Deduplicate" if name.startswith("Deduplicate") else name


def _place(step: Step) -> str:
    return f"{step.name} ({Path(step.mark.file).name}:{step.mark.line})"
