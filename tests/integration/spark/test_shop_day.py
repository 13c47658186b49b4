"""A small day in a shop: each kind of program is killed once, and every row is as the model has it."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("deltalake")

from chaos.shop_day.facts import TOPICS
from chaos.shop_day.pipelines import NAMES
from chaos.shop_day.run import DayOptions, run_day

# `make shop-day KILLS=20` runs a long day.
OPTIONS = DayOptions(rows=1500, kills=1, seed=1, tick_seconds=0.1)

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(2400)]


def test_a_day_with_kills_has_every_row_once(tmp_path: Path) -> None:
    lines: list[str] = []

    def print_line(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    done = run_day(OPTIONS, tmp_path, print_line)
    assert done.found == [], "\n".join(done.lines)
    # Nothing is equal because nothing was there.
    counts = {line[:20].rstrip(): line for line in done.lines}
    for name in ("customers", "customer history", "sessions", "large payments", "archive"):
        assert " 0 rows" not in counts[name], counts[name]
    events = "\n".join(lines)
    for event in ("driver killed", "broker killed", "noon", *NAMES):
        assert event in events
    assert "executor killed" in events or "Python worker killed" in events
    assert {path.name for path in (tmp_path / "tables/archive").glob("topic=*")} == {
        f"topic={topic}" for topic in TOPICS
    }
