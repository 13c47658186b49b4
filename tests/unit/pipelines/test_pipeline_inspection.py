"""The report of an inspection, and the sample that tests use for it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet

from zhumq.cli.sample import LINES, OUTAGES, expected_errors, sample_lines
from zhumq.pipelines.inspection import (
    NothingInspected,
    draw,
    find_bursts,
    findings,
    read_inspection,
    report,
)

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def minute(number: int) -> datetime:
    return NOON + timedelta(minutes=number)


def write_counts(folder: Path, rows: list[tuple[int, str, str, int]]) -> None:
    """Rows of minute, service, level and number of lines, as the pipeline writes them."""
    folder.mkdir(parents=True)
    columns = {
        "minute": pa.array([minute(row[0]) for row in rows], pa.timestamp("us", tz="UTC")),
        "service": [row[1] for row in rows],
        "level": [row[2] for row in rows],
        "template": [f"{row[1]} <n> failed" for row in rows],
        "lines": [row[3] for row in rows],
        "example": [f"{row[1]} 7 failed" for row in rows],
    }
    pyarrow.parquet.write_table(pa.table(columns), folder / "0.parquet")


def test_consecutive_minutes_are_one_burst() -> None:
    errors = {
        "web": {minute(1): 30, minute(2): 40, minute(4): 25, minute(9): 3},
        "quiet": {minute(1): 1},
    }
    found = find_bursts(errors, {("web", minute(2)): (40, "no answer")}, 20)
    assert [(each.service, each.first_minute, each.minutes, each.errors) for each in found] == [
        ("web", minute(1), 2, 70),
        ("web", minute(4), 1, 25),
    ]
    assert found[0].example == "no answer"


def test_the_batches_of_a_table_are_added_up(tmp_path: Path) -> None:
    rows = [(0, "web", "ERROR", 5), (0, "web", "ERROR", 20), (3, "web", "INFO", 100),
            (3, "shop", "INFO", 10)]  # fmt: skip
    write_counts(tmp_path / "t", rows)
    found = read_inspection(str(tmp_path / "t"), burst=20)
    assert (found.lines, found.levels) == (135, {"ERROR": 25, "INFO": 110})
    assert found.errors == {"shop": {}, "web": {minute(0): 25}}
    assert [each.errors for each in found.bursts] == [25]
    assert found.top_errors == [(25, "web", "web <n> failed", "web 7 failed")]


def test_errors_are_drawn_over_time(tmp_path: Path) -> None:
    write_counts(
        tmp_path / "t", [(0, "web", "ERROR", 8), (1, "web", "ERROR", 1), (9, "a", "INFO", 1)]
    )
    lines = list(draw(read_inspection(str(tmp_path / "t"), burst=5)))
    assert lines == [
        "errors per minute (highest: 8)",
        "  a                0",
        "  web  █▁          9",
        "       12:00 12:09",
    ]


def test_a_long_time_is_drawn_in_wider_steps(tmp_path: Path) -> None:
    write_counts(tmp_path / "t", [(0, "web", "ERROR", 8), (1000, "web", "ERROR", 4)])
    lines = list(draw(read_inspection(str(tmp_path / "t"), burst=5)))
    assert lines[0] == "errors per 17 minutes (highest: 8)"
    assert max(len(line) for line in lines) < 80


def test_a_report_has_a_chart(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_counts(tmp_path / "t", [(0, "web", "ERROR", 30)])
    chart = tmp_path / "charts" / "p.png"
    lines = list(report(str(tmp_path / "t"), "20", str(chart)))
    assert any("burst: web had 30 errors in 1 minute" in line for line in lines)
    assert chart.read_bytes().startswith(b"\x89PNG")


def test_many_services_are_drawn_together(tmp_path: Path) -> None:
    rows = [(0, f"service-{number:02d}", "ERROR", number) for number in range(1, 31)]
    write_counts(tmp_path / "t", rows)
    found = read_inspection(str(tmp_path / "t"), burst=100)
    lines = list(draw(found))
    assert len(lines) == 1 + 8 + 1 + 1
    assert lines[-2].split()[0] == "(others)"
    assert lines[-2].endswith(f"  {sum(range(1, 23))}")


def test_findings_are_the_figures_of_a_chart(tmp_path: Path) -> None:
    write_counts(
        tmp_path / "t", [(0, "web", "ERROR", 25), (2, "web", "ERROR", 5), (2, "a", "INFO", 1)]
    )
    found = findings(str(tmp_path / "t"), "20", "not drawn")
    assert (found["lines"], found["levels"]) == (31, {"ERROR": 30, "INFO": 1})
    assert (found["start_ms"], found["step_ms"]) == (int(NOON.timestamp() * 1000), 60_000)
    assert found["errors"] == [
        {"service": "a", "counts": [0, 0, 0]},
        {"service": "web", "counts": [25, 0, 5]},
    ]
    assert [each["errors"] for each in found["bursts"]] == [25]
    assert found["top_errors"][0]["count"] == 30


def test_findings_of_a_long_time_have_a_bound(tmp_path: Path) -> None:
    rows = [(1_000 * number, f"{number}" * 900, "ERROR", 30) for number in range(9, 30)]
    write_counts(tmp_path / "t", rows)
    found = findings(str(tmp_path / "t"), "20")
    assert {len(each["counts"]) for each in found["errors"]} <= set(range(1, 121))
    assert sum(sum(each["counts"]) for each in found["errors"]) == 30 * len(rows)
    assert len(found["bursts"]) == 10
    assert len(json.dumps(found)) < 20_000


def test_a_missing_table_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NothingInspected, match="run the inspection first"):
        read_inspection(str(tmp_path / "t"), burst=20)


def test_the_sample_is_the_same_every_time_and_has_its_outages() -> None:
    lines = sample_lines()
    assert len(lines) == LINES
    assert lines == sample_lines()
    assert [line.minute for line in lines] == sorted(line.minute for line in lines)
    errors = expected_errors(lines)
    hot = {place for place, count in errors.items() if count >= 20}
    assert len(hot) == sum(outage.minutes for outage in OUTAGES)
    assert {service for service, _ in hot} == {outage.service for outage in OUTAGES}
    assert 0 < sum(line.level is None for line in lines) < LINES // 100
