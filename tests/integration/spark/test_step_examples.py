"""The examples of docs/pipelines/steps.md and of examples/pipelines on a real broker: windows, sessions, joins, state."""

import json
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from chaos.spark_driver import Driver
from pipeline_support import Pipelines, read_topic
from pyspark.sql import SparkSession
from spark_support import create_topic, produce

from zhumq.testing.broker import RunningBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "pipelines" / "steps.md"
EXAMPLES = ROOT / "examples" / "pipelines"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = 60
RUN_SECONDS_MAX = 400.0


def example(heading: str) -> str:
    """The YAML of a section of the page."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    return str(block)


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings={"log.retention.ms": "-1"}) as started:
        yield started


@pytest.fixture
def pipelines(spark: SparkSession, running: RunningBroker, tmp_path: Path) -> Pipelines:
    return Pipelines(spark, running.bootstrap, tmp_path)


def send(bootstrap: str, topic: str, rows: list[tuple[int, dict[str, Any]]]) -> None:
    """Send rows, each with its time in seconds behind noon."""
    at_ms = [int((NOON + timedelta(seconds=at)).timestamp() * 1000) for at, _ in rows]
    values = [json.dumps(row).encode() for _, row in rows]
    produce(bootstrap, topic, values, timestamp=at_ms.__getitem__)


def rows_in(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    return [json.loads(each.value() or b"") for each in read_topic(bootstrap, topic)]


def seconds(text: str) -> int:
    """A time of a row, in seconds behind noon."""
    return round((datetime.fromisoformat(text) - NOON).total_seconds())


@pytest.mark.thorough
def test_windows_and_sessions(pipelines: Pipelines) -> None:
    create_topic(pipelines.bootstrap, "clicks")
    clicks = [(0, "ada"), (10, "ada"), (61, "ada"), (5 * MINUTE, "bob"), (40 * MINUTE, "bob")]
    send(
        pipelines.bootstrap,
        "clicks",
        # The last one moves the watermark on, and its own windows stay open.
        [(at, {"page": "home", "visitor": who}) for at, who in [*clicks, (180 * MINUTE, "eve")]],
    )
    text = example("Windows and sessions")
    sinks = "".join(
        f"  {name}: {{from: {name}, topic: {name}}}\n"
        for name in ("per_minute", "moving", "visits")
    )
    pipelines.run(pipelines.write("clicks.yml", f"name: clicks\n{text}sinks:\n{sinks}"))

    def counts(topic: str) -> list[tuple[int, int]]:
        rows = rows_in(pipelines.bootstrap, topic)
        return sorted((seconds(row["begin"]), row["clicks"]) for row in rows)

    assert counts("per_minute") == [(0, 2), (MINUTE, 1), (5 * MINUTE, 1), (40 * MINUTE, 1)]
    moving = dict(counts("moving"))
    assert len(moving) == 9 + 2 + 4 + 10
    assert [moving[at * MINUTE] for at in (-9, -8, -5, -4, 0, 1, 2, 5)] == [2, 3, 3, 4, 4, 2, 1, 1]
    visits = [
        (row["visitor"], seconds(row["begin"]), seconds(row["end"]), row["clicks"])
        for row in rows_in(pipelines.bootstrap, "visits")
    ]
    half = 30 * MINUTE
    assert sorted(visits) == [
        ("ada", 0, 61 + half, 3), ("bob", 5 * MINUTE, 5 * MINUTE + half, 1),
        ("bob", 40 * MINUTE, 40 * MINUTE + half, 1),
    ]  # fmt: skip


@pytest.mark.thorough
def test_a_join_of_streams(pipelines: Pipelines) -> None:
    for name in ("orders", "payments"):
        create_topic(pipelines.bootstrap, name)
    later = 300 * MINUTE
    send(
        pipelines.bootstrap,
        "orders",
        [(0, {"id": 1}), (1, {"id": 2}), (2, {"id": 3}), (later, {"id": 9})],
    )
    # Of the third order the payment comes too late.
    paid = [(10 * MINUTE, {"id": 1}), (90 * MINUTE, {"id": 3}), (later, {"id": 8})]
    send(pipelines.bootstrap, "payments", paid)
    text = f"name: shop\n{example('Joins of streams')}sinks:\n  all: {{topic: joined}}\n"
    pipelines.run(pipelines.write("shop.yml", text))
    rows = rows_in(pipelines.bootstrap, "joined")
    assert sorted((row["id"], row.get("paid_at") is not None) for row in rows) == [
        (1, True), (2, False), (3, False),
    ]  # fmt: skip


@pytest.mark.long
def test_carts_that_were_not_paid_for(running: RunningBroker, tmp_path: Path) -> None:
    for name in EXAMPLES.iterdir():
        if name.is_file():
            shutil.copy(name, tmp_path)
    text = (EXAMPLES / "abandoned_carts.yml").read_text()
    for line in example("State in Python").splitlines():
        assert line in text, "the page shows a part of the file"
    create_topic(running.bootstrap, "cart-events")
    log = tmp_path / "log"

    def run() -> None:
        words = [str(tmp_path / "abandoned_carts.yml"), "--bootstrap", running.bootstrap]
        words += ["--master", "local[2]", "--state-dir", str(tmp_path / "state")]
        driver = Driver(words, log)
        try:
            assert driver.wait(RUN_SECONDS_MAX) == 0, log.read_text()[-6000:]
        finally:
            driver.end()

    def add(at: int, customer: str, amount: float) -> tuple[int, dict[str, Any]]:
        return at * MINUTE, {"customer": customer, "kind": "add", "amount": amount}

    def found() -> list[tuple[str, int, float, int]]:
        return sorted(
            (row["customer"], row["items"], row["amount"], seconds(row["last_at"]) // MINUTE)
            for row in rows_in(running.bootstrap, "cart-reminders")
        )

    paid = (5 * MINUTE, {"customer": "bob", "kind": "pay", "amount": None})
    first = [add(0, "ada", 5.0), add(0, "bob", 1.0), paid, add(20, "ada", 7.5), add(60, "eve", 2.0)]
    send(running.bootstrap, "cart-events", first)
    run()
    assert found() == [("ada", 2, 12.5, 20)]
    # The cart of eve is in the state of the first run.
    send(running.bootstrap, "cart-events", [add(70, "eve", 3.0), add(200, "zoe", 1.0)])
    run()
    assert found() == [("ada", 2, 12.5, 20), ("eve", 2, 5.0, 70)]
