"""Plays the first look at the console in a browser: the screenshots of docs/first_look.md, and the recording of the README.

Nothing in it is made up: it runs `zhumq demo`, as `make run` does, and does in headless Chromium what the page says.
"""

import contextlib
import io
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
from PIL import Image
from playwright.sync_api import Locator, Page, expect, sync_playwright

from zhumq.host.ports import free_ports

REPOSITORY = Path(__file__).resolve().parent.parent
SCREENSHOTS = REPOSITORY / "docs" / "screenshots"
WIDTH, HEIGHT = 1280, 800
RECORDED_WIDTH = 960
RECORDING_BYTES_MAX = 1_500_000
SCREENSHOT_BYTES_MAX = 150_000
COLOURS = 128  # of a screenshot: the console has few
SECONDS_MAX = 300.0  # for one fact to be seen: the pipelines start Spark
HISTORY_SECONDS = 150.0  # of traffic, before the overview is looked at
LAG_OF_A_BURST = 150
LAG_HALF_WAY = 90
LAG_CAUGHT_UP = 15
PARTITIONS = 3  # of the topic `orders`
CUSTOMER = "customer-4711"
ORDER = {
    "number": 90001,
    "customer": CUSTOMER,
    "item": "chair",
    "count": 2,
    "total": 178.0,
    "city": "Porto",
}
# A line of text over the page, in the recording only. Styles are set one by one, as the console's policy wants it.
CAPTION = """(text) => {
  let bar = document.getElementById('first-look');
  if (text === '') { bar?.remove(); return; }
  if (bar === null) { bar = document.createElement('div'); bar.id = 'first-look'; document.body.append(bar); }
  bar.textContent = text;
  Object.assign(bar.style, {
    position: 'fixed', bottom: '28px', left: '50%', transform: 'translateX(-50%)', zIndex: '1000',
    padding: '12px 28px', borderRadius: '10px', background: '#12233a', color: '#ffffff', font: '600 24px sans-serif',
  });
  // What is not in an open dialog is behind it.
  const dialog = document.querySelector('dialog[open]');
  (dialog ?? document.body).append(bar);
}"""


@dataclass(slots=True)
class Recording:
    """Frames with how long each is seen."""

    page: Page
    caption: str = ""
    frames: list[Image.Image] = field(default_factory=list)
    durations_ms: list[int] = field(default_factory=list)

    def show(self, seconds: float) -> None:
        """The page as it is now, for so many seconds."""
        self.page.evaluate(CAPTION, self.caption)
        image = Image.open(io.BytesIO(self.page.screenshot())).convert("RGB")
        self.page.evaluate(CAPTION, "")
        height = HEIGHT * RECORDED_WIDTH // WIDTH
        self.frames.append(image.resize((RECORDED_WIDTH, height), Image.Resampling.LANCZOS))
        self.durations_ms.append(round(seconds * 1000))

    def save(self, path: Path) -> None:
        first, *others = self.frames
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=self.durations_ms,
            loop=0,
            quality=72,
            method=4,
        )
        size = path.stat().st_size
        seconds = sum(self.durations_ms) / 1000
        print(f"{path.name}: {len(self.frames)} frames, {seconds:.1f} s, {size:,} bytes")
        if size > RECORDING_BYTES_MAX:
            raise SystemExit(f"{path.name} is larger than {RECORDING_BYTES_MAX:,} bytes")


def take_screenshot(page: Page, name: str) -> None:
    """A screenshot for the docs, with few colours."""
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    path = SCREENSHOTS / f"{name}.png"
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.name}: {size:,} bytes")
    if size > SCREENSHOT_BYTES_MAX:
        raise SystemExit(f"{path.name} is larger than {SCREENSHOT_BYTES_MAX:,} bytes")


@contextlib.contextmanager
def demo(folder: Path) -> Iterator[tuple[str, str]]:
    """What `make run` starts: the addresses of its broker and of its console, when the shop is open."""
    kafka, web = (f"127.0.0.1:{port}" for port in free_ports(2))
    command = [sys.executable, "-m", "zhumq", "demo", "--listen", kafka, "--web", web]
    with subprocess.Popen(
        [*command, "--data-dir", str(folder / "zhumq-data")], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                print("  ", line, end="")
                if line.startswith("Serving"):
                    break
            else:
                raise SystemExit("the demo ended")
            yield kafka, f"http://{web}"
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS_MAX)


@contextlib.contextmanager
def stuck_consumer(bootstrap: str) -> Iterator[None]:
    """A consumer that has a message in its hands and does not go on: it stays in its group, and commits nothing."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "invoices",
            "client.id": "invoices-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.poll.interval.ms": 3_600_000,
        }
    )
    consumer.subscribe(["orders"])
    wait_for(lambda: is_message(consumer.poll(1.0)), "a message for the stuck consumer")
    begun = [confluent_kafka.TopicPartition("orders", each, 1) for each in range(PARTITIONS)]
    consumer.commit(offsets=begun, asynchronous=False)
    try:
        yield
    finally:
        consumer.close()


def is_message(polled: confluent_kafka.Message | None) -> bool:
    return polled is not None and polled.error() is None


def wait_for(is_there: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_there():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not come within {SECONDS_MAX:.0f} s")
        time.sleep(0.2)


def open_page(page: Page, path: str) -> None:
    page.goto(path)
    page.locator("main h1").wait_for()
    expect(page.locator("main .waiting:visible")).to_have_count(0)
    expect(page.locator("main .status", has_text="Reading")).to_have_count(0)


def without_notes(page: Page) -> None:
    """Wait until what was noted at the edge of the page has gone."""
    expect(page.locator("#notes .note")).to_have_count(0)


def send_and_find(page: Page, recording: Recording) -> None:
    recording.caption = "Send a message …"
    open_page(page, "/topics/orders/messages")
    recording.show(1.2)
    page.get_by_role("button", name="Send a message").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Key", exact=True).fill(CUSTOMER)
    recording.show(0.8)
    form.get_by_label("Value", exact=True).fill(json.dumps(ORDER, indent=1))
    form.get_by_label("The value is").select_option("json")
    recording.show(1.2)
    take_screenshot(page, "first-look-send")
    form.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator("#notes .note")).to_contain_text("Sent: partition")
    recording.show(1.5)
    without_notes(page)
    recording.caption = "… and find it by its key"
    page.get_by_label("Show", exact=True).select_option("key")
    page.get_by_label("Key", exact=True).fill(CUSTOMER)
    recording.show(0.8)
    page.get_by_role("button", name="Read", exact=True).click()
    lines = page.locator(".messages > li")
    expect(lines).to_have_count(1)
    lines.first.locator(".line").click()
    expect(page.get_by_label("Value as JSON")).to_contain_text("90001")
    recording.show(2.2)
    take_screenshot(page, "first-look-found")


def find_the_stuck(page: Page, recording: Recording) -> None:
    recording.caption = "A consumer is stuck: who, and since when"
    open_page(page, "/groups")
    recording.show(1.5)
    page.get_by_role("link", name="invoices", exact=True).click()
    stuck = page.get_by_text("stuck for")
    stuck.first.wait_for(timeout=SECONDS_MAX * 1000)
    recording.show(2.5)
    take_screenshot(page, "first-look-stuck")


def mend_a_dead_letter(page: Page, recording: Recording) -> None:
    recording.caption = "A dead letter: read why, correct it …"
    open_page(page, "/dead-letters/deliveries.dlq")
    first = page.get_by_role("group", name="Dead letters of deliveries.dlq").locator("tbody tr")
    first.first.wait_for()
    recording.show(1.8)
    first.first.get_by_role("button", name="Edit").click()
    form = page.get_by_role("dialog")
    value = form.get_by_label("Value", exact=True)
    corrected = json.loads(value.input_value()) | {"city": "Lyon"}
    value.fill(json.dumps(corrected))
    recording.show(1.8)
    take_screenshot(page, "first-look-edit")
    form.get_by_role("button", name="Replay edited").click()
    expect(page.locator("#notes .note")).to_contain_text("1 dead letter replayed")
    expect(first.filter(has_text="replayed")).to_have_count(1)
    recording.caption = "… and replay it"
    recording.show(1.8)
    take_screenshot(page, "first-look-replayed")


def see_the_lag_fall(page: Page, recording: Recording) -> None:
    recording.caption = "A burst, and the lag that falls again"
    open_page(page, "/groups/warehouse")
    lag = page.locator("main dl.facts div", has_text="Lag").locator("dd").first
    wait_for(lambda: number(lag) >= LAG_OF_A_BURST, "a burst")
    recording.show(0.8)
    seen, is_taken = number(lag), False
    while seen > LAG_CAUGHT_UP:
        wait_for(lambda last=seen: number(lag) < last, "less lag")  # type: ignore[misc]
        seen = number(lag)
        recording.show(0.5)
        if seen <= LAG_HALF_WAY and not is_taken:
            take_screenshot(page, "first-look-lag")
            is_taken = True
    recording.show(1.2)


def number(text: Locator) -> int:
    """The number that a text begins with."""
    return int(text.inner_text().split()[0].replace(",", ""))


def find_the_burst(page: Page, recording: Recording) -> None:
    recording.caption = "What an inspection on Spark has found in the log"
    open_page(page, "/pipelines")
    recording.show(1.2)
    page.get_by_role("link", name="inspect-", exact=False).first.click()
    bars = page.locator("figure.bars")
    bars.wait_for()
    show_part(page, bars)
    recording.show(2.8)
    take_screenshot(page, "first-look-burst")


def show_part(page: Page, part: Locator) -> None:
    """Scroll so that a part is at the top, below what stays there."""
    part.evaluate("(each) => each.scrollIntoView({ block: 'start' })")
    page.mouse.wheel(0, -70)
    page.wait_for_timeout(300)


def look_around(page: Page, recording: Recording) -> None:
    recording.caption = "make run: a broker, a shop, and the console"
    open_overview(page)
    recording.show(3.0)


def open_overview(page: Page) -> None:
    """The overview with what needs attention and with its charts."""
    open_page(page, "/")
    expect(page.get_by_text("is parked")).to_be_visible()
    expect(page.locator("figure").first).to_contain_text("now")


def play(bootstrap: str, url: str) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("chromium is not installed: apt-get install chromium, or make chromium")
    opened = time.monotonic()
    with sync_playwright() as playwright, stuck_consumer(bootstrap):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(base_url=url, viewport={"width": WIDTH, "height": HEIGHT})
        page.set_default_timeout(SECONDS_MAX * 1000)
        expect.set_options(timeout=SECONDS_MAX * 1000)
        recording = Recording(page=page)
        wait_for(lambda: time.monotonic() - opened > HISTORY_SECONDS, "history")
        look_around(page, recording)
        for story in (
            send_and_find,
            find_the_stuck,
            mend_a_dead_letter,
            see_the_lag_fall,
            find_the_burst,
        ):
            story(page, recording)
        open_overview(page)
        take_screenshot(page, "console")
        recording.save(SCREENSHOTS / "recording.webp")
        browser.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, demo(Path(folder)) as (bootstrap, url):
        play(bootstrap, url)


if __name__ == "__main__":
    main()
