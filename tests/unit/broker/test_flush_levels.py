"""flush.messages and flush.ms: when the leader flushes what its producers do not wait for, and what is answered then."""

import asyncio
import threading
from collections.abc import Callable

from one_broker import OneBroker, with_broker
from test_produce_handler import PRODUCE, VERSION, batch, codes, produce, request
from tests.manual_time import advance, until

from zhumq.model.errors import ErrorCode
from zhumq.replication.partition import Partition
from zhumq.storage.log_config import LogConfig

LATER_MS = 60_000


class Gate:
    """Lets syncs of segment files through only while it is open."""

    def __init__(self, broker: OneBroker) -> None:
        self._open = threading.Event()
        broker.disk.sync_fails = self._wait

    def _wait(self, path: str) -> bool:
        if path.endswith(".log"):
            assert self._open.wait(30), "the test never opened the gate"
        return False

    def open(self) -> None:
        self._open.set()


def flushed(partition: Partition) -> int:
    return partition.log.flushed_offset


def all_flushed(partition: Partition) -> Callable[[], bool]:
    return lambda: flushed(partition) == partition.log_end_offset


def test_without_levels_a_message_with_acks_1_is_not_flushed() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await broker.create()
        await produce(broker, batch(), batch())
        await advance(LATER_MS)
        assert flushed(partition) == 0

    with_broker(scenario)


def test_the_append_that_reaches_flush_messages_is_answered_when_it_is_on_the_disk() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await broker.create()
        gate = Gate(broker)
        await produce(broker, batch())
        await produce(broker, batch())
        assert flushed(partition) == 0
        for several in ([request(batch())], [request(batch())] * 3):
            answers = broker.send(PRODUCE, VERSION, *several)
            assert all(isinstance(answer, asyncio.Future) for _, answer in answers)
            assert not any(answer.done() for _, answer in answers)  # type: ignore[union-attr]
        gate.open()
        await until(all_flushed(partition))
        for _, answer in answers:
            assert isinstance(answer, asyncio.Future)
            await answer
        assert flushed(partition) == 6

    with_broker(scenario, LogConfig(flush_messages=3))


def test_with_flush_messages_1_a_failed_flush_is_no_acknowledgement() -> None:
    async def scenario(broker: OneBroker) -> None:
        await broker.create()
        assert codes(await produce(broker, batch())) == [ErrorCode.NONE]
        broker.disk.sync_fails = lambda path: path.endswith(".log")
        (code,) = codes(await produce(broker, batch()))
        assert code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    with_broker(scenario, LogConfig(flush_messages=1))


def test_after_flush_ms_messages_are_flushed_and_nothing_waited_for_it() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await broker.create()
        assert codes(await produce(broker, batch(), batch())) == [ErrorCode.NONE] * 2
        await advance(400)
        assert flushed(partition) == 0
        await advance(200)
        await until(all_flushed(partition))
        await produce(broker, batch())
        assert flushed(partition) == 2
        await advance(600)
        await until(all_flushed(partition))

    with_broker(scenario, LogConfig(flush_ms=500))


def test_a_changed_level_holds_from_then_on() -> None:
    async def scenario(broker: OneBroker) -> None:
        partition = await broker.create()
        gate = Gate(broker)
        ((_, answer),) = broker.send(PRODUCE, VERSION, request(batch()))
        assert isinstance(answer, asyncio.Future)
        assert not answer.done()
        partition.use_flush_levels(None)
        await answer
        gate.open()
        assert codes(await produce(broker, batch())) == [ErrorCode.NONE]

    with_broker(scenario, LogConfig(flush_messages=1))
