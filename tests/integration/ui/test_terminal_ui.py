"""`zhumq ui` with Textual's pilot before a live broker: its screens, hostile names, a broker that goes and comes back."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

pytest.importorskip("textual", reason="textual is not installed: pip install 'zhumq[ui]'")

from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import DataTable, Footer, RichLog

import zhumq
from zhumq.testing.broker import RunningBroker, broker
from zhumq.ui.app import TerminalUi
from zhumq.ui.reader import Brokers
from zhumq.ui.status import Status
from zhumq.ui.tail import LINES_MAX

SECONDS_MAX = 60.0
HOSTILE = [
    "[red]red[/red]",
    "[@click=app.quit]quit[/]",
    "\x1b[2J\x1b]0;x\x07",
    "a\nb",
    "\u202eabc",
    "[/]",
]

Ui = Pilot[None]


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as started:
        yield started


def run(bootstrap: str, scenario: Callable[[Ui], Awaitable[None]]) -> None:
    """Run the UI, and what a person does with it."""

    async def with_ui() -> None:
        app = TerminalUi(Brokers(bootstrap=bootstrap))
        async with app.run_test(size=(120, 30)) as ui:
            await scenario(ui)

    asyncio.run(with_ui())
    deadline = time.monotonic() + SECONDS_MAX
    while any(each.name == "zhumq-ui-reader" for each in threading.enumerate()):
        assert time.monotonic() < deadline, "a reader outlives its screen"
        time.sleep(0.05)  # between two looks


async def until(ui: Ui, fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not fact():
        assert time.monotonic() < deadline, status(ui)
        await ui.pause(0.05)


def status(ui: Ui) -> str:
    return str(ui.app.screen.query_one(Status).content)


def rows(ui: Ui) -> dict[str, list[str]]:
    """The rows of the table as they are shown, by what they show."""
    found = ui.app.screen.query(DataTable)
    if not found:
        return {}
    table: DataTable[Any] = found.first()
    return {
        str(key.value): [str(cell).strip() for cell in table.get_row(key)]
        for key in list(table.rows)
    }


def lines(ui: Ui) -> list[str]:
    found = ui.app.screen.query(RichLog)
    return [line.text.rstrip() for line in found.first().lines] if found else []


async def choose(ui: Ui, key: str) -> None:
    """Move the cursor to a row by its key, and open it."""
    await until(ui, lambda: key in rows(ui))
    table = ui.app.screen.query_one(DataTable)
    table.move_cursor(row=table.get_row_index(key))
    await ui.press("enter")


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    place = confluent_kafka.TopicPartition(topic, 0, offset)
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()


@pytest.mark.thorough
def test_topics_groups_partitions_and_brokers_are_shown_and_stay_fresh(
    running: RunningBroker,
) -> None:
    with zhumq.Admin(running.bootstrap) as admin:
        admin.create_topic("chairs", partitions=1)
    with zhumq.Producer(running.bootstrap) as producer:
        for number in range(10):
            producer.send("chairs", b"chair %d" % number, key=b"k", headers={"h": "v"})
    commit(running.bootstrap, "carpenters", "chairs", 4)

    async def scenario(ui: Ui) -> None:
        await until(ui, lambda: "chairs" in rows(ui))
        row = rows(ui)["chairs"]
        assert row[:3] == ["chairs", "1", "1"]
        assert row[3].endswith("bytes")
        assert not any(name.startswith("__") for name in rows(ui))
        footer = {binding.description for _, binding, *_ in ui.app.screen.active_bindings.values()}
        assert {"Topics", "Groups", "Brokers", "Back", "Quit", "Open", "Internal"} <= footer
        assert ui.app.screen.query_one(Footer).is_on_screen
        await ui.press("i")
        await until(ui, lambda: "__consumer_offsets" in rows(ui))
        # The cursor stays where it is when a row comes before it.
        await ui.press("t")
        await until(ui, lambda: "chairs" in rows(ui))
        table = ui.app.screen.query_one(DataTable)
        table.move_cursor(row=table.get_row_index("chairs"))
        with zhumq.Admin(running.bootstrap) as admin:
            await asyncio.to_thread(admin.create_topic, "armchairs", partitions=2)
        await until(ui, lambda: "armchairs" in rows(ui))
        assert getattr(ui.app.screen, "chosen", None) == "chairs"
        await ui.press("p")
        await until(ui, lambda: rows(ui).get("0", [])[:2] == ["0", "0"])
        assert rows(ui)["0"][4:6] == ["0", "10"]
        await ui.press("g")
        await until(ui, lambda: rows(ui).get("carpenters", ["-"] * 4)[3] == "6")
        assert rows(ui)["carpenters"][1:3] == ["classic", "Empty"]
        await choose(ui, "carpenters")
        await until(ui, lambda: rows(ui).get("chairs-0", [])[2:5] == ["4", "10", "6"])
        await asyncio.to_thread(commit, running.bootstrap, "carpenters", "chairs", 9)
        await until(ui, lambda: rows(ui)["chairs-0"][2:5] == ["9", "10", "1"])
        await ui.press("escape")
        await until(ui, lambda: "carpenters" in rows(ui))
        await ui.press("b")
        await until(ui, lambda: rows(ui).get("0", [])[1:2] == [running.bootstrap])
        assert rows(ui)["0"][3] == "controller"
        await ui.press("q")

    run(running.bootstrap, scenario)


@pytest.mark.thorough
def test_names_and_messages_are_shown_as_text_whatever_they_contain(running: RunningBroker) -> None:
    with zhumq.Admin(running.bootstrap) as admin:
        admin.create_topic("hostile", partitions=1)
    with zhumq.Producer(running.bootstrap) as producer:
        for text in HOSTILE:
            producer.send("hostile", text.encode(), key=text.encode(), headers={text: text})
        producer.send("hostile", b"\xff\x00" * 200_000)
    for name in HOSTILE:
        commit(running.bootstrap, name, "hostile", 0)

    async def scenario(ui: Ui) -> None:
        await ui.press("g")
        await until(ui, lambda: set(HOSTILE) <= set(rows(ui)))
        table = ui.app.screen.query_one(DataTable)
        for name in HOSTILE:
            cell = table.get_row(name)[0]
            assert isinstance(cell, Text)
            assert (cell.spans, cell.plain.isprintable()) == ([], True)
        assert rows(ui)["[red]red[/red]"][0] == "[red]red[/red]"
        assert rows(ui)["\x1b[2J\x1b]0;x\x07"][0] == "\\x1b[2J\\x1b]0;x\\x07"
        for name in HOSTILE:
            await choose(ui, name)
            await until(ui, lambda: "hostile-0" in rows(ui))
            assert "\x1b" not in status(ui)
            await ui.press("escape")
            await until(ui, lambda: set(HOSTILE) <= set(rows(ui)))
        assert "[red]red[/red]" in [line[0] for line in rows(ui).values()]
        await ui.press("t")
        await choose(ui, "hostile")
        await until(ui, lambda: len(lines(ui)) == len(HOSTILE) + 1)
        assert any(
            "[red]red[/red]  [red]red[/red]  [red]red[/red]=[red]red[/red]" in x for x in lines(ui)
        )
        assert any("a\\nb" in line for line in lines(ui))
        assert all(len(line) < 2_000 for line in lines(ui))

    run(running.bootstrap, scenario)


@pytest.mark.thorough
def test_the_tail_follows_a_topic_in_bounded_memory(running: RunningBroker) -> None:
    with zhumq.Admin(running.bootstrap) as admin:
        admin.create_topic("busy", partitions=1)
    with zhumq.Producer(running.bootstrap) as producer:
        producer.send("busy", b"before")

        def send(begin: int, end: int) -> None:
            for number in range(begin, end):
                producer.send("busy", b"message %d" % number)
            producer.flush()

        async def scenario(ui: Ui) -> None:
            await choose(ui, "busy")
            await until(ui, lambda: any("before" in line for line in lines(ui)))
            await asyncio.to_thread(send, 0, 5)
            await until(ui, lambda: any("message 4" in line for line in lines(ui)))
            # A hundred times more than a person could read: the newest are shown, and how many are not.
            await asyncio.to_thread(send, 5, 20_000)
            await until(ui, lambda: any("message 19999" in line for line in lines(ui)))
            assert any("messages left out" in line for line in lines(ui))
            assert len(lines(ui)) < LINES_MAX
            for begin in range(20_000, 23_000, 100):
                await asyncio.to_thread(send, begin, begin + 100)
                last = f"message {begin + 99}"
                await until(ui, lambda last=last: any(last in line for line in lines(ui)))  # type: ignore[misc]
            assert len(lines(ui)) == LINES_MAX
            await ui.press("space")
            await until(ui, lambda: "paused" in status(ui))
            await asyncio.to_thread(send, 23_000, 23_001)
            await until(ui, lambda: "23,002 messages" in status(ui))
            assert not any("message 23000" in line for line in lines(ui))
            await ui.press("c")
            await until(ui, lambda: lines(ui) == [])

        run(running.bootstrap, scenario)


@pytest.mark.thorough
def test_a_broker_that_is_away_is_reported_and_found_again(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path) as first:
        bootstrap = first.bootstrap
        with zhumq.Producer(bootstrap) as producer:
            producer.send("kept", b"first")

        async def scenario(ui: Ui) -> None:
            await until(ui, lambda: "kept" in rows(ui))
            await asyncio.to_thread(stopped.set)
            await until(ui, lambda: "no answer since" in status(ui))
            assert "kept" in rows(ui)
            # The screen goes on: keys work, and another screen says the same.
            await ui.press("g")
            await until(ui, lambda: "no answer since" in status(ui))
            await asyncio.to_thread(restart.set)
            await until(ui, lambda: "group" in status(ui) and "no answer" not in status(ui))
            await ui.press("t")
            await choose(ui, "kept")
            await until(ui, lambda: any("first" in line for line in lines(ui)))

        stopped, restart = threading.Event(), threading.Event()
        failures: list[BaseException] = []

        def look() -> None:
            try:
                run(bootstrap, scenario)
            except BaseException as error:
                failures.append(error)
                stopped.set()
                restart.set()

        thread = threading.Thread(target=look)
        thread.start()
        assert stopped.wait(SECONDS_MAX)
    assert restart.wait(SECONDS_MAX)
    with broker(data_dir=tmp_path, listen=bootstrap):
        thread.join(SECONDS_MAX)
    assert failures == []
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("", "`zhumq ui` needs a terminal"),
        ("sys.modules['textual'] = None", "`zhumq ui` needs textual: pip install 'zhumq[ui]'"),
    ],
)
def test_errors_are_one_line_that_says_what_to_do(code: str, reason: str) -> None:
    program = f"import sys\n{code}\nfrom zhumq.cli.main import run\nsys.exit(run(['ui']))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert reason in done.stderr
