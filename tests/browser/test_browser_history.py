"""Charts of the last day from the history in the broker, which go on; lag in seconds, and where it is going."""

import math
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from browser_support import accessibility_problems, cell, overflow, ready, row
from playwright.sync_api import Browser, Locator, Page, expect
from tests.integration.web.rest_support import create, send

from zhumq import Consumer
from zhumq.broker.history import FOLDER
from zhumq.broker.ring_file import RingFile
from zhumq.history.fields import Sample, combine
from zhumq.history.ring import COARSE, FINE
from zhumq.testing.broker import RunningBroker, broker
from zhumq.web.console_files import files_path

SECONDS_MAX = 60.0
LEFT = 30  # messages that billing is behind by when the broker starts
GAP_MS = (1_500_000, 1_200_000)  # before now: the broker was down


def sample(time_ms: int, age_ms: int) -> Sample:
    """What a broker would have kept at a time: a wave of messages, and a group that catches up by one message a second."""
    wave = 1000 + 600 * math.sin(age_ms / 300_000)
    lag = LEFT + min(age_ms / 1000, 600.0)
    return Sample(
        time_ms,
        (wave, wave * 300, wave * 1.8, wave * 540, 40.0, 12.0, 3.0, 40e9, 100e9, 0.0, 0.0),
        {"orders": (wave, wave * 300, wave * 1.8, wave * 540, 5e8)},
        {"billing": (lag, 10 + lag / 10), "growing": (1000 - age_ms / 600, math.nan)},
    )


def keep_a_day(data_dir: Path) -> None:
    """The files of a broker that has run for a day, with a gap."""
    folder = data_dir / FOLDER
    fine, coarse = RingFile(FINE, folder / "hour.ring"), RingFile(COARSE, folder / "day.ring")
    now_ms = time.time_ns() // 1_000_000
    for age_ms in range(24 * 3_600_000 - 60_000, 0, -60_000):
        if not GAP_MS[1] < age_ms < GAP_MS[0]:
            minute = (now_ms - age_ms) // 60_000 * 60_000
            coarse.write(combine([sample(minute, age_ms)], minute))
    for age_ms in range(3_590_000, 0, -10_000):
        if not GAP_MS[1] < age_ms < GAP_MS[0]:
            fine.write(sample(now_ms - age_ms, age_ms))


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with tempfile.TemporaryDirectory() as folder:
        keep_a_day(Path(folder))
        with broker(data_dir=Path(folder)) as started:
            yield started


@pytest.fixture(scope="module")
def busy(url: str) -> None:
    with httpx.Client(base_url=f"{url}/api/v1", timeout=SECONDS_MAX) as api:
        create(api, "orders", partitions=1)
        send(api, "orders", *(str(number) for number in range(LEFT)))
        for group in ("billing", "growing"):
            api.post(f"/groups/{group}/reset", json={"topic": "orders", "to": "earliest"})


def chart(page: Page, label: str) -> Locator:
    return page.locator("figure.chart", has_text=re.compile(f"^{label}"))


def strokes(figure: Locator) -> list[str]:
    found: list[str] = figure.locator(".plot .stroke").evaluate_all(
        "each => each.map((one) => one.getAttribute('d') ?? '')"
    )
    return found


@pytest.mark.usefixtures("busy")
def test_the_overview_has_the_last_hour_with_its_gaps(page: Page) -> None:
    page.goto("/?range=1h")
    ready(page)
    messages = chart(page, "Messages a second")
    expect(messages.locator(".highest")).to_contain_text(re.compile("^2,[0-9]{3}$"))
    each_in, each_out = strokes(messages)
    # Two runs, as the broker was down in between; what was before the page was opened is there.
    assert each_in.count("M") == each_out.count("M") == 2
    assert each_in.count("L") > 100
    # The upper end is the size of the disk, which is that of this machine since the broker runs.
    expect(chart(page, "Disks").locator(".highest")).to_contain_text(re.compile("^[0-9.]+ [GT]iB$"))
    page.get_by_role("button", name="The last 1 day").click()
    expect(page).to_have_url(re.compile("range=1d"))
    expect(page.get_by_role("button", name="The last 1 day")).to_have_attribute(
        "aria-pressed", "true"
    )
    expect(messages.locator(".range span").first).to_have_text(re.compile(r"^\d\d-\d\d \d\d:\d\d$"))
    assert strokes(messages)[0].count("L") > 250
    page.reload()
    ready(page)
    expect(page.get_by_role("button", name="The last 1 day")).to_have_attribute(
        "aria-pressed", "true"
    )


@pytest.mark.thorough
@pytest.mark.usefixtures("busy")
def test_a_chart_is_read_by_keys_and_goes_on_without_flicker(page: Page) -> None:
    page.goto("/topics/orders?range=15min")
    ready(page)
    messages = chart(page, "Messages a second")
    plot = messages.get_by_role("slider")
    # Since the broker has started there are figures of its own.
    expect(plot).to_have_attribute("aria-valuetext", re.compile("in .*, out .*; now"))
    plot.press("Home")
    expect(plot).to_have_attribute("aria-valuenow", "0")
    expect(plot).to_have_attribute("aria-valuetext", re.compile(r"in 1,?\d+, .*; \d\d:\d\d:\d\d"))
    plot.press("Escape")
    expect(plot).to_have_attribute("aria-valuetext", re.compile("; now$"))
    page.evaluate(
        "document.querySelectorAll('.chart *').forEach((each, index) => { each.mark = index; })"
    )
    before = strokes(messages)
    messages.locator(".stroke").first.wait_for(state="attached")
    page.wait_for_function(
        "before => document.querySelector('.plot .stroke').getAttribute('d') !== before",
        arg=before[0],
    )
    unmarked = page.evaluate(
        "[...document.querySelectorAll('.chart *')].filter((each) => each.mark === undefined).length"
    )
    assert unmarked == 0


@pytest.mark.usefixtures("busy")
def test_a_group_shows_its_lag_in_seconds_and_where_it_is_going(page: Page) -> None:
    page.goto("/groups/billing")
    ready(page)
    facts = page.locator("main .facts")
    expect(facts).to_contain_text("30 messages")
    expect(facts).to_contain_text(re.compile(r"falling by [01]\.\d a second: caught up in \d+ "))
    expect(chart(page, "Lag in messages").locator(".highest")).to_have_text("630")
    expect(chart(page, "Lag in time").locator(".highest")).to_have_text("1 min 13 s")
    # Once the broker has looked, it is the age of the first message.
    expect(facts).to_contain_text(re.compile(r"Behind by\d+ (s|min)"))
    page.goto("/groups/growing")
    ready(page)
    expect(facts).to_contain_text("Trend")
    page.goto("/groups?search=billing")
    ready(page)
    expect(cell(row(page, "billing"), "Behind by")).to_have_text(re.compile(r"^\d+ (s|min)"))


@pytest.mark.thorough
@pytest.mark.usefixtures("busy")
def test_the_lag_of_share_and_push_groups_is_known_in_seconds(
    page: Page, running: RunningBroker, api: httpx.Client, topic: str
) -> None:
    create(api, topic, partitions=1)
    with Consumer(
        topic, group=topic, mode="ptp-shared", bootstrap=running.bootstrap, auto_ack=False
    ) as consumer:
        send(api, topic, "one", "two")
        deadline = time.monotonic() + SECONDS_MAX
        while not consumer.poll(1.0):
            assert time.monotonic() < deadline
        page.goto(f"/groups?search={topic}")
        ready(page)
        expect(cell(row(page, topic), "Behind by")).to_have_text(re.compile(r"^\d+ (s|min)"))
        page.goto(f"/groups/{topic}")
        ready(page)
        expect(page.locator("main .facts")).to_contain_text(re.compile(r"Behind by\d+ (s|min)"))


def test_a_trend_is_that_of_all_samples_and_not_of_two(page: Page) -> None:
    page.goto("/quotas")
    ready(page)

    def trend(lags: list[float | None]) -> dict[str, object]:
        found: dict[str, object] = page.evaluate(
            "async ([path, lags]) => (await import(`${path}/trend.js`)).trendOf(lags, 10000)",
            [files_path(), lags],
        )
        return found

    assert trend([]) == trend([5, None, None, 7]) | {"kind": "unknown"}
    assert trend([10, 20, 5, 0])["kind"] == "none"
    assert trend([100, 101, 99, 100, 102])["kind"] == "steady"
    assert trend([100, 200, 150, 400, 500])["kind"] == "growing"
    falling = trend([400, None, 200, 100, 50])
    assert falling["kind"] == "falling"
    assert 3_000 < float(str(falling["catchUpMs"])) < 20_000


def test_a_disk_is_full_when_it_goes_on_as_before(page: Page) -> None:
    page.goto("/quotas")
    ready(page)
    hour_ms = 3_600_000

    def forecast(used: list[float | None]) -> dict[str, object]:
        found: dict[str, object] = page.evaluate(
            "async ([path, used, stepMs]) => (await import(`${path}/disk_forecast.js`)).diskForecast(used, stepMs, 1000)",
            [files_path(), used, hour_ms],
        )
        return found

    assert forecast([500, 501, None, 502])["kind"] == "unknown"
    assert forecast([500] * 6)["kind"] == "steady"
    assert forecast([500, 490, 480, None, 460, 450, 440])["kind"] == "falling"
    growing = forecast([500, 510, 520, None, 540, 550, 560])
    assert growing["kind"] == "growing"
    # 440 are left, and it grows by 10 an hour.
    assert abs(float(str(growing["fullInMs"])) / hour_ms - 44) < 0.01
    assert abs(float(str(growing["perDay"])) - 240) < 0.01


@pytest.mark.usefixtures("busy")
def test_the_overview_says_where_the_disk_is_going(page: Page, url: str) -> None:
    page.goto("/")
    ready(page)
    words = re.compile(r"^(steady|falling|full in \d+ .*)$")
    expect(cell(row(page, "%"), "At this rate")).to_have_text(words)


@pytest.mark.thorough
@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("width", [1280, 360])
def test_pages_with_charts_are_accessible(browser: Browser, url: str, width: int) -> None:
    context = browser.new_context(
        base_url=url, viewport={"width": width, "height": 800}, color_scheme="dark"
    )
    page = context.new_page()
    for path in ("/", "/topics/orders", "/groups/billing"):
        page.goto(path)
        ready(page)
        expect(page.locator(".chart .highest").first).not_to_be_empty()
        assert accessibility_problems(page) == []
        assert overflow(page) == 0
    context.close()
