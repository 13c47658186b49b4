"""Draws the graph of a pipeline as SVG: sources, steps and sinks in layers. Pure: the same file gives the same bytes."""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never
from xml.sax.saxutils import escape

from zhumq.pipelines.sharing import has_dead_letters, inputs_of, reads_of
from zhumq.pipelines.spec import (
    DEAD_LETTERS,
    QUARANTINE,
    Action,
    CheckStep,
    ConsoleSink,
    DeduplicateStep,
    EmptySink,
    EnrichStep,
    ExpectStep,
    FilesSource,
    JdbcSource,
    MergeSink,
    ParseStep,
    Pipeline,
    PythonStep,
    Sink,
    Source,
    SqlStep,
    Step,
    TableSink,
    TableSource,
    TopicSink,
    TopicSource,
)

# All in pixels. The width of a character is that of the fonts below, at most.
MARGIN: Final = 24
BOX_HEIGHT: Final = 48
BOX_WIDTH_MIN: Final = 96
GAP_ACROSS: Final = 72  # between layers
GAP_DOWN: Final = 20  # between boxes of a layer
LANE: Final = "~"  # no name begins with it
LANE_HEIGHT: Final = 12
ARROW: Final = 8
CHARACTER_WIDTH: Final = 7.3
PADDING: Final = 14
TITLE_HEIGHT: Final = 36
NOTE_HEIGHT: Final = 16
NOTE_LENGTH_MAX: Final = 120
TEXT_LENGTH_MAX: Final = 36
SWEEPS: Final = 4  # over the layers, to uncross edges
COLORS: Final = {
    "source": ("#e3f0fc", "#2f6fab"),
    "step": ("#f4f4f1", "#6b6b63"),
    "sink": ("#e6f4e6", "#3b7d3b"),
    "rejected": ("#fbe9e7", "#b3472f"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A source, a step or a sink."""

    id: str
    kind: str  # one of COLORS
    title: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Rows go from one box to another."""

    source: str
    target: str
    is_rejected: bool  # whether they are those that a step rejects


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The boxes in the order of the file, and their edges."""

    name: str
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    notes: tuple[str, ...] = ()  # which sinks share a read


def graph_of(pipeline: Pipeline) -> Graph:
    """What a pipeline reads, does and writes."""
    boxes = [
        Box(id=each.name, kind="source", title=each.name, detail=_read_from(each))
        for each in pipeline.sources
    ]
    edges: list[Edge] = []
    views = [each.name for each in (*pipeline.sources, *pipeline.steps)]
    rejecting: list[str] = []
    for step in pipeline.steps:
        boxes.append(Box(id=step.name, kind="step", title=step.name, detail=_done_by(step)))
        edges += (
            Edge(source=name, target=step.name, is_rejected=False)
            for name in inputs_of(step, views[: views.index(step.name)])
        )
        if has_dead_letters(step):
            rejecting.append(step.name)
        if isinstance(step, ExpectStep):
            sinks = dict.fromkeys(rule.sink for rule in step.rules if rule.sink is not None)
            edges += (
                Edge(source=step.name, target=f"sink {name}", is_rejected=True) for name in sinks
            )
    for sink in pipeline.sinks:
        rejected = sink.input.startswith(QUARANTINE)
        kind = "rejected" if rejected else "sink"
        boxes.append(
            Box(id=f"sink {sink.name}", kind=kind, title=sink.name, detail=_written_to(sink))
        )
        if not rejected:
            edges.append(Edge(source=sink.input, target=f"sink {sink.name}", is_rejected=False))
    if pipeline.dead_letters is not None:
        target = f"sink {DEAD_LETTERS}"
        topic = f"topic {pipeline.dead_letters.topic}"
        boxes.append(Box(id=target, kind="rejected", title="dead letters", detail=topic))
        edges += (Edge(source=name, target=target, is_rejected=True) for name in rejecting)
    notes = tuple(reads_of(pipeline).words())
    return Graph(name=pipeline.name, boxes=tuple(boxes), edges=tuple(edges), notes=notes)


def layers_of(graph: Graph) -> list[list[str]]:
    """The ids of the boxes by their distance from the sources; within a layer near what they read.

    Where an edge passes a layer, that layer has a lane for it, whose id begins with LANE.
    """
    depth = _depths(graph)
    layers: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for box in graph.boxes:
        layers[depth[box.id]].append(box.id)
    before: dict[str, list[str]] = {box.id: [] for box in graph.boxes}
    after: dict[str, list[str]] = {box.id: [] for box in graph.boxes}
    for edge in graph.edges:
        lanes = lanes_of(edge, depth)
        for passed, lane in enumerate(lanes, start=depth[edge.source] + 1):
            layers[passed].append(lane)
            before[lane], after[lane] = [], []
        for left, right in itertools.pairwise([edge.source, *lanes, edge.target]):
            after[left].append(right)
            before[right].append(left)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        near = before if forward else after
        for layer in layers if forward else reversed(layers):
            # From the middle, as layers are drawn.
            places = {
                name: index - len(each) / 2 for each in layers for index, name in enumerate(each)
            }
            goals = {
                name: statistics.fmean([places[each] for each in near[name]] or [places[name]])
                for name in layer
            }
            layer.sort(key=goals.__getitem__)
    return layers


def lanes_of(edge: Edge, depth: Mapping[str, int]) -> list[str]:
    """The ids of the lanes of an edge in the layers that it passes."""
    passed = range(depth[edge.source] + 1, depth[edge.target])
    return [f"{LANE}{edge.source} to {edge.target}, {layer}" for layer in passed]


def _depths(graph: Graph) -> dict[str, int]:
    depth: dict[str, int] = {}
    # A box reads only what is above it in the file, so one pass is enough.
    for box in graph.boxes:
        sources = [edge.source for edge in graph.edges if edge.target == box.id]
        depth[box.id] = max((depth[name] + 1 for name in sources), default=0)
    # Sinks share the last layer, which is easier to read.
    last = max(depth[box.id] + 1 for box in graph.boxes if box.kind in ("source", "step"))
    sinks = {box.id: last for box in graph.boxes if box.kind in ("sink", "rejected")}
    return {**depth, **sinks}


def draw(graph: Graph) -> str:
    """The graph as an SVG document."""
    boxes = {box.id: box for box in graph.boxes}
    layers = layers_of(graph)
    places, width, top = _places(layers, boxes)
    notes = [each[:NOTE_LENGTH_MAX] for each in graph.notes]
    width = max([width, *(round(len(each) * CHARACTER_WIDTH) + 2 * MARGIN for each in notes)])
    height = top + NOTE_HEIGHT * len(notes)
    depth = _depths(graph)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" font-family="DejaVu Sans, Verdana, sans-serif"'
            ' font-size="12" role="img">'
        ),
        f"<title>{escape(graph.name)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="{MARGIN}" font-size="15" font-weight="bold">{escape(graph.name)}</text>',
    ]
    for edge in graph.edges:
        passed = [edge.source, *lanes_of(edge, depth), edge.target]
        parts.append(_line([places[name] for name in passed], is_rejected=edge.is_rejected))
    for layer in layers:
        parts += [_drawn(boxes[name], places[name]) for name in layer if name in boxes]
    parts += (
        f'<text x="{MARGIN}" y="{top + NOTE_HEIGHT * row}" font-size="11" fill="#555555">{escape(note)}</text>'
        for row, note in enumerate(notes)
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


@dataclass(frozen=True, slots=True)
class _Place:
    x: int
    y: int
    width: int
    height: int


def _places(
    layers: Sequence[Sequence[str]], boxes: Mapping[str, Box]
) -> tuple[dict[str, _Place], int, int]:
    """Where each box and each lane is, and the size of the whole. Layers are centred."""
    heights = [[BOX_HEIGHT if name in boxes else LANE_HEIGHT for name in layer] for layer in layers]
    sizes = [sum(each) + GAP_DOWN * (len(each) - 1) for each in heights]
    found: dict[str, _Place] = {}
    x = MARGIN
    for layer, own, size in zip(layers, heights, sizes, strict=True):
        width = max((_width(boxes[name]) for name in layer if name in boxes), default=BOX_WIDTH_MIN)
        y = MARGIN + TITLE_HEIGHT + (max(sizes) - size) // 2
        for name, height in zip(layer, own, strict=True):
            found[name] = _Place(x, y, width, height)
            y += height + GAP_DOWN
        x += width + GAP_ACROSS
    return found, x - GAP_ACROSS + MARGIN, max(sizes) + 2 * MARGIN + TITLE_HEIGHT


def _width(box: Box) -> int:
    characters = max(len(_short(box.title)), len(_short(box.detail)))
    return max(BOX_WIDTH_MIN, round(characters * CHARACTER_WIDTH) + 2 * PADDING)


def _drawn(box: Box, place: _Place) -> str:
    fill, stroke = COLORS[box.kind]
    middle = place.x + place.width // 2
    return (
        f'<g><rect x="{place.x}" y="{place.y}" width="{place.width}" height="{BOX_HEIGHT}" rx="6"'
        f' fill="{fill}" stroke="{stroke}"/>'
        f'<text x="{middle}" y="{place.y + 20}" text-anchor="middle" font-weight="bold"'
        f' fill="#222222">{escape(_short(box.title))}</text>'
        f'<text x="{middle}" y="{place.y + 37}" text-anchor="middle" font-size="11"'
        f' fill="#555555">{escape(_short(box.detail))}</text></g>'
    )


def _line(places: Sequence[_Place], *, is_rejected: bool) -> str:
    """A curve between two boxes that is level where it passes a layer, with an arrow at its end."""
    color = "#b3472f" if is_rejected else "#777777"
    dashes = ' stroke-dasharray="5 4"' if is_rejected else ""
    first, last = places[0], places[-1]
    path = f"M{first.x + first.width} {_middle(first)}"
    for left, right in itertools.pairwise(places):
        x1, x2 = left.x + left.width, right.x - (ARROW if right is last else 0)
        bend = (x2 - x1) // 2
        path += f" C{x1 + bend} {_middle(left)} {x2 - bend} {_middle(right)} {x2} {_middle(right)}"
        path += f" H{right.x + right.width}" if right is not last else ""
    x, y = last.x, _middle(last)
    return (
        f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.5"{dashes}/>'
        f'<path d="M{x} {y} l-{ARROW} -4 v8 z" fill="{color}"/>'
    )


def _middle(place: _Place) -> int:
    return place.y + place.height // 2


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_LENGTH_MAX else line[: TEXT_LENGTH_MAX - 1] + "…"


def _read_from(source: Source) -> str:
    match source:
        case TopicSource():
            options = source.options
            if "path" in options:
                return f"segments {options['path']}"
            if "subscribePattern" in options:
                return f"topics {options['subscribePattern']}"
            return f"topic {options.get('subscribe', options.get('assign', ''))}"
        case TableSource():
            return f"{source.format} {source.path}"
        case FilesSource():
            return f"{source.format} files {source.path}"
        case JdbcSource():
            name = "query" if source.is_query else source.what
            return f"{source.database} {name}" + (f" by {source.grows}" if source.grows else "")
        case _:
            assert_never(source)


def _done_by(step: Step) -> str:
    match step:
        case SqlStep():
            return "sql"
        case PythonStep():
            return f"python {step.function}"
        case ParseStep():
            return f"parse {step.format}"
        case CheckStep():
            return f"check {_count(len(step.rules))}"
        case ExpectStep():
            fails = any(rule.action is Action.FAIL for rule in step.rules)
            return f"expect {_count(len(step.rules))}{', may fail' if fails else ''}"
        case DeduplicateStep():
            return f"deduplicate by {', '.join(step.by)}"
        case EnrichStep():
            return f"enrich by {', '.join(name for name, _ in step.by)}"
        case _:
            assert_never(step)


def _count(rules: int) -> str:
    return "1 rule" if rules == 1 else f"{rules} rules"


def _written_to(sink: Sink) -> str:
    match sink:
        case TopicSink():
            return f"topic {sink.topic}"
        case TableSink():
            return f"{sink.format} {sink.path}"
        case MergeSink():
            return f"merge {sink.path}"
        case ConsoleSink():
            return "console"
        case EmptySink():
            return "must be empty"
        case _:
            assert_never(sink)
