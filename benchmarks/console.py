"""The console before a large cluster: how long each page takes to open, and what an open page costs."""

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, BrowserContext, Request, sync_playwright

from benchmarks.spark_session import cpu_seconds_below, processes_below
from benchmarks.web_process import web_process
from zhumq.testing.process import broker_process

PARTITIONS: Final = 10  # of a topic
TOPICS_AT_ONCE: Final = 50
BUSY_TOPIC: Final = "topic-0000"
BUSY_GROUP: Final = "group-000"
MESSAGE: Final = b'{"order": 17, "customer": "c-4711", "total": 12.5, "state": "paid"}'
MESSAGES_PER_SECOND: Final = 1_000  # while pages are opened
OPENED: Final = 3  # times, each page
SECONDS_MAX: Final = 60.0
LOOK_MS: Final = 10
IDLE_SECONDS: Final = 20.0
METADATA_REQUESTS: Final = 50
SHOWN: Final = """() => document.querySelector('main h1') !== null
  && ![...document.querySelectorAll('main .waiting')].some((each) => each.checkVisibility())
  && ![...document.querySelectorAll('main .status')].some((each) => each.textContent.includes('Reading'))"""
PAGES: Final = (
    "/", "/cluster", "/topics", f"/topics/{BUSY_TOPIC}", f"/topics/{BUSY_TOPIC}/messages", f"/topics/{BUSY_TOPIC}/settings",
    f"/topics/{BUSY_TOPIC}/retention", f"/topics/{BUSY_TOPIC}/producers", f"/topics/{BUSY_TOPIC}/scheduled", "/groups",
    f"/groups/{BUSY_GROUP}", "/dead-letters", "/sessions", "/transactions", "/half-messages",
    "/producers", "/pipelines", "/schemas", "/users", "/acls", "/quotas", "/audit",
)  # fmt: skip
OPEN_PAGES: Final = ("/", "/topics", "/groups", f"/topics/{BUSY_TOPIC}", f"/groups/{BUSY_GROUP}")


def fill(bootstrap: str, topics: int, groups: int, messages: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [f"topic-{number:04}" for number in range(topics)]
    for first in range(0, topics, TOPICS_AT_ONCE):
        some = [NewTopic(name, PARTITIONS) for name in names[first : first + TOPICS_AT_ONCE]]
        for created in admin.create_topics(some).values():
            created.result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4"})  # fmt: skip
    for number in range(messages):
        # Some in every topic, the others in one: in 10,000 partitions at once they would be batches of one message.
        topic = names[number % topics] if number < topics * PARTITIONS else BUSY_TOPIC
        while True:
            try:
                producer.produce(topic, MESSAGE, f"key-{number % 100_000}")
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(10 * SECONDS_MAX) == 0
    for number in range(groups):
        places = [TopicPartition(names[number % topics], each, 0) for each in range(PARTITIONS)]
        # By the admin client, which waits for a coordinator that is loading.
        change = ConsumerGroupTopicPartitions(f"group-{number:03}", places)
        for changed in admin.alter_consumer_group_offsets([change]).values():
            changed.result(SECONDS_MAX)


@contextmanager
def traffic(bootstrap: str) -> Iterator[None]:
    """A producer and a consumer, as long as pages are opened."""
    is_over = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        while not is_over.wait(0.1):
            for number in range(MESSAGES_PER_SECOND // 10):
                producer.produce(BUSY_TOPIC, MESSAGE, str(number))
            producer.poll(0)
        producer.flush(SECONDS_MAX)

    def consume() -> None:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": BUSY_GROUP})
        consumer.subscribe([BUSY_TOPIC])
        while not is_over.is_set():
            consumer.consume(500, 0.2)
        consumer.close()

    threads = [threading.Thread(target=each) for each in (produce, consume)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def open_seconds(context: BrowserContext, path: str) -> float:
    """From the address until the page shows what it has read, and has the answer to all that it asked for by then."""
    page = context.new_page()
    asked: set[Request] = set()

    def remember(request: Request) -> None:
        # The stream of events is never answered whole.
        if "/api/" in request.url and not request.url.endswith("/events"):
            asked.add(request)

    def forget(request: Request) -> None:
        asked.discard(request)

    page.on("request", remember)
    page.on("requestfinished", forget)
    page.on("requestfailed", forget)
    try:
        begun = time.perf_counter()
        page.goto(path, wait_until="commit")
        # Looked at in the page: Playwright itself looks once, and then after 0.1, 0.25, 0.5 and 1 s more.
        page.wait_for_function(SHOWN, polling=LOOK_MS, timeout=SECONDS_MAX * 1000)
        while asked and time.perf_counter() - begun < SECONDS_MAX:
            page.wait_for_timeout(LOOK_MS)
        return time.perf_counter() - begun
    finally:
        page.close()


def measure_broker(bootstrap: str, pid: int) -> None:
    """What the broker takes while it has nothing to do, and for the metadata of all topics."""
    time.sleep(IDLE_SECONDS / 2)  # It is still writing what it was filled with.
    before = cpu_seconds_below(pid)
    time.sleep(IDLE_SECONDS)
    share = (cpu_seconds_below(pid) - before) / IDLE_SECONDS
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.list_topics(timeout=SECONDS_MAX)
    before = cpu_seconds_below(pid)
    for _ in range(METADATA_REQUESTS):
        admin.list_topics(timeout=SECONDS_MAX)
    cpu = (cpu_seconds_below(pid) - before) / METADATA_REQUESTS
    print(f"the idle broker takes {share:.1%} of a core, and {cpu * 1000:.0f} ms of CPU for all metadata", flush=True)  # fmt: skip


def measure(browser: Browser, url: str) -> None:
    context = browser.new_context(base_url=url, viewport={"width": 1280, "height": 900})
    open_seconds(context, "/")  # The browser itself begins.
    for path in PAGES:
        taken = [open_seconds(context, path) * 1000 for _ in range(OPENED)]
        print(f"{path:40} median {statistics.median(taken):5.0f} ms, longest {max(taken):5.0f} ms", flush=True)  # fmt: skip


def measure_open(browser: Browser, url: str, processes: dict[str, int], seconds: float) -> None:
    """The CPU of each process while a page is open and seen, beside the same time without one."""
    context = browser.new_context(base_url=url, viewport={"width": 1280, "height": 900})
    for path in (None, *OPEN_PAGES):
        page = context.new_page()
        if path is not None:
            page.goto(path)
            page.locator("main h1").wait_for()
        page.wait_for_timeout(3_000)
        before = {name: cpu_seconds_below(each) for name, each in processes.items()}
        page.wait_for_timeout(seconds * 1000)
        used = {name: (cpu_seconds_below(each) - before[name]) / seconds for name, each in processes.items()}  # fmt: skip
        parts = ", ".join(f"{name} {share:6.1%}" for name, share in used.items())
        print(f"open {path or 'nothing':35} {parts} of a core", flush=True)
        page.close()


def driver_process() -> int:
    """Playwright's, below which are all processes of the browser."""
    (found,) = [each.pid for each in processes_below(os.getpid()) if "run-driver" in each.words]
    return found


def run(topics: int, groups: int, messages: int, seconds: float) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("chromium is not installed: make chromium")
    with tempfile.TemporaryDirectory() as folder, broker_process(Path(folder) / "data") as broker:
        begun = time.perf_counter()
        fill(broker.bootstrap, topics, groups, messages)
        print(f"{topics:,} topics, {topics * PARTITIONS:,} partitions, {groups:,} groups, {messages:,} messages in {time.perf_counter() - begun:.0f} s", flush=True)  # fmt: skip
        measure_broker(broker.bootstrap, broker.pid)
        with web_process(broker.bootstrap) as (url, web), sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            processes = {
                "broker": broker.pid,
                "web": web,
                "browser": driver_process(),
            }
            with traffic(broker.bootstrap):
                measure(browser, url)
                measure_open(browser, url, processes, seconds)
            browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args()
    run(asked.topics, asked.groups, asked.messages, asked.seconds)


if __name__ == "__main__":
    main()
