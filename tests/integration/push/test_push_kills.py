"""Consumers and brokers are killed and paused: no message is lost, no acknowledged one is redelivered.

The numbers are small here; `make push-chaos` runs the same with a million messages and fifty faults.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

import pytest
from push_support import new_topic, run, send, until

from zhumq import Consumer, PushConsumer
from zhumq.testing.cluster import ClusterProcesses
from zhumq.testing.process import BrokerProcess, broker_process

MESSAGES = int(os.environ.get("ZHUMQ_PUSH_MESSAGES", "4000"))
FAULTS = int(os.environ.get("ZHUMQ_PUSH_FAULTS", "5"))
SEED = int(os.environ.get("ZHUMQ_PUSH_SEED", "1"))
NODES = int(os.environ.get("ZHUMQ_PUSH_NODES", "1"))  # 3: a cluster on ZooKeeper
SECONDS_MAX = 120.0 + MESSAGES / 1_000 + FAULTS * 15
WORK_SECONDS_MAX = 60.0  # for work to continue after a fault
SILENCE_SECONDS = 3.0
CONSUMERS = 4
PARTITIONS = 4
CREDITS = max(50, MESSAGES // 200)
PROGRAM = Path(__file__).with_name("stalling_consumer.py")
SETTINGS = {
    "push.ping.interval.ms": "300",
    "push.ping.timeout.ms": "1500",
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "delivery.backoff.ms": "50",
    "delivery.max.deliveries": "1000",
}


class Event(NamedTuple):
    """A range that a consumer received or acknowledged durably, with the time."""

    time_ns: int
    word: str
    partition: int
    first: int
    last: int
    process: int


class Crew:
    """Consumer processes, replaced when they are killed, and the events they printed.

    None of them outlives the `async with`, however it ends.
    """

    def __init__(self, push: str, topic: str, mode: str) -> None:
        self._arguments = [push, topic, "crew", mode, str(CREDITS), "10000"]
        self._processes: list[asyncio.subprocess.Process] = []
        self._readers: set[asyncio.Task[None]] = set()
        self.events: list[Event] = []
        self.acknowledged = 0
        self.got: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self._contact_at = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.dismiss()

    @property
    def process_ids(self) -> list[int]:
        return [each.pid for each in self._processes]

    @property
    def exit_codes(self) -> list[int | None]:
        return [each.returncode for each in self._processes]

    async def hire(self) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROGRAM),
            *self._arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        self._processes.append(process)
        self._readers.add(asyncio.create_task(self._read(process)))

    async def kill_one(self, draw: random.Random) -> None:
        process = self._processes.pop(draw.randrange(len(self._processes)))
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await self.hire()

    async def pause_one(self, draw: random.Random) -> None:
        process = draw.choice(self._processes)
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(draw.uniform(0.1, 2.5))
        process.send_signal(signal.SIGCONT)

    def silent_seconds(self) -> float:
        """Seconds since a consumer last received or acknowledged a message."""
        return asyncio.get_running_loop().time() - self._contact_at

    async def dismiss(self) -> None:
        processes, self._processes = self._processes, []
        for process in processes:
            with suppress(ProcessLookupError):  # It has ended by itself.
                process.send_signal(signal.SIGKILL)
        for process in processes:
            await process.wait()
        await asyncio.gather(*self._readers)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            words = line.decode().split()
            if len(words) == 5 and line.endswith(b"\n"):
                event = Event(int(words[1]), words[0], *map(int, words[2:]), process.pid)
                self.events.append(event)
                self._contact_at = asyncio.get_running_loop().time()
                if event.word == "ack":
                    self.acknowledged += event.last - event.first + 1
                else:
                    self.got[event.partition].update(range(event.first, event.last + 1))
            elif words[0] in ("begun", "parked"):
                self.events.append(Event(int(words[1]), words[0], 0, 0, -1, process.pid))


@contextmanager
def servers(folder: Path) -> Iterator[list[BrokerProcess]]:
    """A single broker, or a cluster."""
    if NODES == 1:
        with broker_process(folder / "data", settings=SETTINGS) as broker:
            yield [broker]
        return
    cluster = ClusterProcesses(folder, nodes=NODES, settings=SETTINGS)
    try:
        cluster.start()
        yield list(cluster.brokers.values())
    finally:
        cluster.stop()


async def inject_fault(crew: Crew, brokers: list[BrokerProcess], draw: random.Random) -> None:
    broker = draw.choice(brokers)
    match draw.choice(("consumer", "pause", "broker", "pause broker")):
        case "consumer":
            await crew.kill_one(draw)
        case "pause":
            await crew.pause_one(draw)
        case "broker":
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
        case _:
            broker.pause()
            await asyncio.sleep(draw.uniform(0.1, 2.5))
            broker.resume()


async def nothing_is_pending(push: str, topic: str, mode: str) -> bool:
    """Whether nothing is delivered to a new member that is alone in the group."""
    async with PushConsumer(
        topic,
        group="crew",
        mode=mode,  # type: ignore[arg-type]
        push=push,
        auto_ack=False,
    ) as consumer:
        return not await consumer.poll(3.0)


Offsets = list[list[int]]  # of the messages, by partition


def offsets_of(bootstrap: str, topic: str) -> Offsets:
    """The offsets of the messages: in a raft log a new leader also writes a record of its own."""
    found: Offsets = [[] for _ in range(PARTITIONS)]
    with Consumer(topic, mode="psb", bootstrap=bootstrap, auto_ack=False) as consumer:
        while sum(map(len, found)) < MESSAGES:
            for message in consumer.poll(30):
                found[message.partition].append(message.offset)
                message.ack()
    return found


def conserve(tmp_path: Path, mode: str) -> tuple[list[Event], Offsets]:
    """Inject faults while a crew reads a topic. Returns the crew's events in order of time, and the
    offsets of the messages."""
    draw = random.Random(SEED)
    values = [b"%d" % number for number in range(MESSAGES)]
    half = MESSAGES // 2
    with servers(tmp_path) as brokers:
        bootstrap = ",".join(broker.bootstrap for broker in brokers)
        push = ",".join(broker.push for broker in brokers)
        topic = new_topic(bootstrap, partitions=PARTITIONS)
        send(bootstrap, topic, values[:half], partitions=PARTITIONS)

        async def scenario() -> tuple[list[Event], Offsets]:
            async with Crew(push, topic, mode) as crew:
                for _ in range(CONSUMERS):
                    await crew.hire()
                sending = asyncio.create_task(
                    asyncio.to_thread(send, bootstrap, topic, values[half:], partitions=PARTITIONS)
                )
                for fault in range(FAULTS):
                    # Faults are spread evenly over the work.
                    share = MESSAGES * (fault + 1) // (FAULTS + 1)
                    await until(lambda share=share: crew.acknowledged >= share, SECONDS_MAX)
                    await inject_fault(crew, brokers, draw)
                await sending
                messages = await asyncio.to_thread(offsets_of, bootstrap, topic)
                expected = [set(each) for each in messages]
                await until(
                    lambda: all(map(set.issubset, expected, crew.got)),
                    WORK_SECONDS_MAX + MESSAGES / 1_000,
                )
                # The last messages may have been received and not acknowledged yet.
                await until(lambda: crew.silent_seconds() > SILENCE_SECONDS, WORK_SECONDS_MAX)
                assert crew.exit_codes == [None] * CONSUMERS, "no consumer ends by itself"
            assert await nothing_is_pending(push, topic, mode)
            return sorted(crew.events), messages

        return run(scenario(), SECONDS_MAX)


def _offsets(events: Iterable[Event], word: str) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(PARTITIONS)]
    for event in events:
        if event.word == word:
            found[event.partition].update(range(event.first, event.last + 1))
    return found


def check_nothing_is_missing(events: list[Event], messages: Offsets) -> None:
    got = _offsets(events, "got")
    missing = [sorted(set(each) - got[index]) for index, each in enumerate(messages)]
    assert missing == [[]] * PARTITIONS


def check_nothing_comes_back(events: list[Event]) -> None:
    """A durably acknowledged message is not delivered to a consumer that started after that.

    A consumer that started before may hold a second copy in its buffers: the broker had released the
    first one, and accepted its late acknowledgement all the same.
    """
    began: dict[int, int] = {}
    for event in events:
        began.setdefault(event.process, event.time_ns)
    done: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
    for event in events:
        for offset in range(event.first, event.last + 1):
            if event.word == "ack":
                done[event.partition].setdefault(offset, event.time_ns)
            elif event.word == "got":
                acknowledged = done[event.partition].get(offset, began[event.process])
                assert acknowledged >= began[event.process], _story(events, event, offset)


def _story(events: list[Event], seen: Event, offset: int) -> str:
    """All events of an offset, and the last ones of its partition before."""
    of_partition = [each for each in events if each.partition == seen.partition]
    about = [each for each in of_partition if each.first <= offset <= each.last]
    before = [each for each in of_partition if each.time_ns <= seen.time_ns][-20:]
    return "\n".join(map(str, [f"offset {offset}", *about, "before:", *before]))


def check_order(events: list[Event], messages: Offsets) -> None:
    """In every partition a message is delivered only after all messages below it."""
    given = [0] * PARTITIONS  # messages delivered, from the first on
    for event in events:
        if event.word == "got":
            offsets = messages[event.partition]
            end = given[event.partition]
            assert bisect_left(offsets, event.first) <= end, _story(events, event, offsets[end])
            given[event.partition] = max(given[event.partition], bisect_right(offsets, event.last))


pytestmark = pytest.mark.timeout(SECONDS_MAX + 60)


@pytest.mark.thorough
def test_shared_deliveries_are_conserved(tmp_path: Path) -> None:
    events, messages = conserve(tmp_path, "ptp-shared")
    check_nothing_is_missing(events, messages)
    check_nothing_comes_back(events)


@pytest.mark.thorough
def test_exclusive_deliveries_are_conserved_and_in_order(tmp_path: Path) -> None:
    events, messages = conserve(tmp_path, "ptp")
    check_nothing_is_missing(events, messages)
    check_nothing_comes_back(events)
    check_order(events, messages)


def is_running(process_id: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(process_id, 0)
        return True
    return False


def test_a_run_that_fails_leaves_no_consumer(tmp_path: Path) -> None:
    process_ids: list[int] = []

    async def fail(push: str, topic: str) -> None:
        async with Crew(push, topic, "ptp-shared") as crew:
            for _ in range(3):
                await crew.hire()
            await until(lambda: len(crew.events) == 3)
            process_ids.extend(crew.process_ids)
            os.kill(process_ids[0], signal.SIGKILL)  # one that ends by itself
            os.kill(process_ids[1], signal.SIGSTOP)  # one that a fault has paused
            raise TimeoutError("no progress")

    with (
        broker_process(tmp_path / "data", settings=SETTINGS) as broker,
        pytest.raises(TimeoutError, match="no progress"),
    ):
        run(fail(broker.push, new_topic(broker.bootstrap)))
    assert len(process_ids) == 3
    assert not any(map(is_running, process_ids))
