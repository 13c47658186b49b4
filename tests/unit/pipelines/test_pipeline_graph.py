"""The graph of a pipeline: its boxes, edges and layers, and a drawing that is the same each time."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyspark")

from zhumq.pipelines.document import parse_document
from zhumq.pipelines.graph import LANE, draw, graph_of, layers_of
from zhumq.pipelines.library_files import shipped
from zhumq.pipelines.spec import Pipeline
from zhumq.pipelines.spec_reader import load_pipeline, parse_pipeline

TEXT = """\
name: orders
sources:
  records: {topic: orders}
  customers: {table: tables/customers}
steps:
  - {name: parsed, parse: records, format: json, schema: id INT}
  - name: good
    expect: parsed
    rules: [{name: known, rule: id > 0, action: quarantine, sink: broken}]
  - {name: joined, sql: "SELECT * FROM good JOIN customers USING (id)"}
sinks:
  all: {topic: joined}
  raw: {from: records, table: tables/raw}
  broken: {console: 5}
dead_letters: {topic: bad}
"""


def parse(text: str) -> Pipeline:
    return parse_pipeline(parse_document(text.encode(), "f.yml"), "f.yml", {})


def test_boxes_and_edges_are_those_of_the_file() -> None:
    graph = graph_of(parse(TEXT))
    assert [(edge.source, edge.target) for edge in graph.edges if not edge.is_rejected] == [
        ("records", "parsed"), ("parsed", "good"), ("good", "joined"), ("customers", "joined"),
        ("joined", "sink all"), ("records", "sink raw"),
    ]  # fmt: skip
    assert [(edge.source, edge.target) for edge in graph.edges if edge.is_rejected] == [
        ("good", "sink broken"), ("parsed", "sink dead_letters"),
    ]  # fmt: skip
    layers = layers_of(graph)
    boxes = [{name for name in layer if not name.startswith(LANE)} for layer in layers]
    assert boxes == [
        {"records", "customers"}, {"parsed"}, {"good"}, {"joined"},
        {"sink all", "sink raw", "sink broken", "sink dead_letters"},
    ]  # fmt: skip
    assert sum(name.startswith(LANE) for layer in layers for name in layer) == 8


def test_a_drawing_is_the_same_each_time_and_nothing_overlaps() -> None:
    pipeline = parse(TEXT)
    drawing = draw(graph_of(pipeline))
    assert drawing == draw(graph_of(pipeline))
    root = ET.fromstring(drawing)
    space = "{http://www.w3.org/2000/svg}"
    boxes = [
        tuple(int(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        for rect in root.iterfind(f"{space}g/{space}rect")
    ]
    assert len(boxes) == 9
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    for index, (x, y, w, h) in enumerate(boxes):
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
        for other_x, other_y, other_w, other_h in boxes[index + 1 :]:
            apart = (
                x + w < other_x or other_x + other_w < x or y + h < other_y or other_y + other_h < y
            )
            assert apart
    assert len(list(root.iterfind(f"{space}path"))) == 2 * 8  # a line and its arrow


def test_names_cannot_break_the_document() -> None:
    text = TEXT.replace("table: tables/raw", "table: 'a<b>&\"c'")
    root = ET.fromstring(draw(graph_of(parse(text))))
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert 'parquet a<b>&"c' in texts


def test_the_pipelines_that_come_with_zhumq_can_be_drawn() -> None:
    values = {"topic": "orders", "table": "t", "target": "again"}
    for path in shipped().values():
        names = set(re.findall(r"^  (\w+):", path.read_text(), re.MULTILINE))
        own = {name: value for name, value in values.items() if name in names}
        graph = graph_of(load_pipeline(path, own))
        reached = {edge.target for edge in graph.edges}
        assert all(box.id in reached for box in graph.boxes if box.kind != "source"), path
        ET.fromstring(draw(graph))


def test_the_drawing_in_the_docs_is_that_of_the_file_in_the_docs() -> None:
    docs = Path(__file__).resolve().parents[3] / "docs" / "pipelines"
    (text,) = re.findall(r"```yaml\n(.*?)```", (docs / "README.md").read_text(), re.DOTALL)
    assert (docs / "large-orders.svg").read_text() == draw(graph_of(parse(text)))
