"""Every program of examples/patterns runs against a real broker, and prints what its page in docs/patterns shows."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from zhumq.testing.broker import RunningBroker, broker

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))

import pattern_pages  # noqa: E402 (its folder is not on the path otherwise)

PAGES = REPOSITORY / "docs" / "patterns"
# It kills brokers, so it starts a cluster of its own.
WITH_A_CLUSTER = {"consistency"}
NAMES = pattern_pages.names()
# So that the outbox is asked soon.
SETTINGS = {"half.message.check.first.ms": "500", "half.message.check.interval.ms": "500"}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings=SETTINGS) as running_:
        yield running_


def shown(name: str, part: str) -> str:
    """What a page shows in one of its generated parts."""
    page = (PAGES / f"{name}.md").read_text()
    found = re.search(rf"<!-- {part}: made .*?```\w*\n(.*?)```\n\n<!-- end", page, re.DOTALL)
    assert found is not None, f"docs/patterns/{name}.md has no {part}: run make patterns"
    return found.group(1)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITH_A_CLUSTER])
def test_a_program_prints_what_its_page_shows(running: RunningBroker, name: str) -> None:
    printed = pattern_pages.run(name, "--bootstrap", running.bootstrap)
    assert len(printed.splitlines()) >= 3
    assert printed == shown(name, "output")


@pytest.mark.thorough
def test_a_program_runs_again_on_the_same_broker(running: RunningBroker) -> None:
    for _ in range(2):
        printed = pattern_pages.run("decoupling", "--bootstrap", running.bootstrap)
        assert printed == shown("decoupling", "output")


def test_a_program_starts_a_broker_of_its_own() -> None:
    assert pattern_pages.run("claim_check") == shown("claim_check", "output")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WITH_A_CLUSTER))
def test_a_program_with_a_cluster_prints_what_its_page_shows(name: str) -> None:
    pytest.importorskip("kazoo")
    pytest.importorskip("pyspark")
    assert pattern_pages.run(name) == shown(name, "output")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_its_program_and_can_be_found(name: str) -> None:
    source = (REPOSITORY / "examples" / "patterns" / f"{name}.py").read_text()
    assert shown(name, "program") == source, "run make patterns"
    assert f"]({name}.md)" in (PAGES / "README.md").read_text()
    assert f"](docs/patterns/{name}.md)" in (REPOSITORY / "README.md").read_text()


def test_every_page_has_a_program() -> None:
    assert sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "README") == NAMES


def test_the_chart_of_peak_shaving_is_written_by_its_program(
    running: RunningBroker, tmp_path: Path
) -> None:
    made = tmp_path / "chart.svg"
    pattern_pages.run("peak_shaving", "--bootstrap", running.bootstrap, "--chart", str(made))
    for path in (made, PAGES / "peak_shaving.svg"):
        chart = path.read_text()
        assert len(chart) < 20_000
        assert [name for name in ("waiting (lag)", "sent", "handled") if name not in chart] == []
        lag, _, _ = re.findall(r'<polyline points="([^"]*)"', chart)
        heights = [float(point.partition(",")[2]) for point in lag.split()]
        # Downwards is larger in SVG: the lag begins and ends at zero, and has a peak in between.
        assert heights[0] == heights[-1] == max(heights)
        assert min(heights) < max(heights) - 100
