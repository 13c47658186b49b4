"""The dashboard, the alert rules and the scrape settings: they load, and every metric and label that they name exists."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from zhumq.broker.metrics import cluster_metrics
from zhumq.cluster.store import SessionState
from zhumq.metadata.image import ClusterImage
from zhumq.model.ids import BrokerId
from zhumq.model.metric import Metric
from zhumq.testing.broker import broker
from zhumq.web.pipeline_metrics import pipeline_metrics

FOLDER = Path(__file__).parents[2] / "packaging" / "monitoring"
DOCS = Path(__file__).parents[2] / "docs"
# Of the scrape, not of the broker.
OUTER_LABELS = {"instance", "job"}
_METRIC = re.compile(r"\bzhumq_[a-z_]+")
_SELECTED = re.compile(r"\b(zhumq_[a-z_]+)\{([^}]*)\}")
_GROUPED = re.compile(r"\bby \(([^)]*)\)")


@pytest.fixture(scope="module")
def metrics() -> dict[str, Metric]:
    """What a broker, a member of a cluster and pipelines have, by the names of their samples."""
    alone = BrokerId(0)
    image = ClusterImage(
        version=0, cluster_id="", controller_id=alone, brokers={}, topics={}, topics_by_id={}
    )
    with broker() as running:
        found = [
            *running.app.metrics(),
            *cluster_metrics(alone, image, SessionState.CONNECTED, ()),
            *pipeline_metrics([]),
        ]
    named = {}
    for each in found:
        if each.kind == "histogram":
            named |= {f"{each.name}{end}": each for end in ("_bucket", "_sum", "_count")}
        else:
            named[each.name] = each
    return named


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text())
    return loaded


def rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load((FOLDER / "alerts.yml").read_text())
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def expressions() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]
    yield from (rule["expr"] for rule in rules())


def test_every_metric_that_they_name_exists(metrics: dict[str, Metric]) -> None:
    named = {name for each in expressions() for name in _METRIC.findall(each)}
    assert len(named) > 40
    assert named - set(metrics) == set()


def test_every_label_that_they_name_exists(metrics: dict[str, Metric]) -> None:
    wrong = []
    for each in expressions():
        of_all = {label for name in _METRIC.findall(each) for label in metrics[name].labels}
        for labels in _GROUPED.findall(each):
            used = {label.strip() for label in labels.split(",")}
            wrong += [(each, label) for label in used - of_all - OUTER_LABELS]
        for name, selector in _SELECTED.findall(each):
            used = set(re.findall(r"(\w+)\s*[=!]~?", selector))
            wrong += [(each, label) for label in used - {*metrics[name].labels, *OUTER_LABELS}]
    assert wrong == []


def test_counters_are_only_used_as_rates(metrics: dict[str, Metric]) -> None:
    for each in expressions():
        if each.startswith("label_values"):
            continue
        rest = re.sub(r"(rate|increase)\([^()]*\)", "", each)
        plain = [name for name in _METRIC.findall(rest) if metrics[name].kind != "gauge"]
        assert plain == [], each


def test_expressions_are_balanced() -> None:
    for each in expressions():
        for one, other in ("()", "{}", "[]"):
            assert each.count(one) == each.count(other), each


def test_every_rule_says_what_is_wrong_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) > 15
    for rule in rules():
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert re.fullmatch(r"\d+[smh]", rule["for"])
        assert set(rule["annotations"]) == {"summary", "description"}
        assert all(text.endswith(".") for text in rule["annotations"].values())


def test_the_panels_have_their_own_places_and_numbers() -> None:
    panels = dashboard()["panels"]
    numbers = [panel["id"] for panel in panels]
    assert len(numbers) == len(set(numbers))
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["targets"], panel["title"]


def test_the_scrape_settings_name_the_rules_and_the_job_that_they_are_about() -> None:
    loaded = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert [(FOLDER / name).exists() for name in loaded["rule_files"]] == [True]
    jobs = [job["job_name"] for job in loaded["scrape_configs"]]
    assert jobs == ["zhumq", "zhumq-pipelines"]


def test_every_metric_is_documented(metrics: dict[str, Metric]) -> None:
    text = (DOCS / "metrics.md").read_text()
    missing = {each.name for each in metrics.values() if f"`{each.name}`" not in text}
    assert missing == set()
