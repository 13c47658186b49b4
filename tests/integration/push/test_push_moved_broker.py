"""Consumers find a broker that restarts with another address; a broker keeps a port that it chose itself."""

import asyncio
from pathlib import Path

import pytest
from push_support import new_topic, run, send, until

from zhumq import PushConsumer
from zhumq.host.ports import free_ports
from zhumq.testing.broker import broker
from zhumq.testing.process import broker_process


@pytest.mark.thorough
def test_a_consumer_finds_its_broker_again_behind_another_push_port(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data") as process:
        topic = new_topic(process.bootstrap)
        send(process.bootstrap, topic, [b"before"])
        first_address = process.push

        async def scenario() -> list[bytes | None]:
            seen: list[bytes | None] = []
            async with PushConsumer(
                topic, group="crew", mode="ptp", bootstrap=process.bootstrap
            ) as consumer:
                reading = asyncio.create_task(_read(consumer, seen))
                await until(lambda: seen == [b"before"])
                process.kill()
                process.push = f"127.0.0.1:{free_ports(1)[0]}"
                await asyncio.to_thread(process.start)
                assert process.push != first_address
                await asyncio.to_thread(send, process.bootstrap, topic, [b"after"])
                await until(lambda: seen[-1] == b"after")
                reading.cancel()
            return seen

        assert run(scenario(), 90)[-1] == b"after"


async def _read(consumer: PushConsumer, seen: list[bytes | None]) -> None:
    async for message in consumer:
        seen.append(message.value)
        message.ack()


def test_a_broker_restarts_on_the_ports_that_it_chose(tmp_path: Path) -> None:
    anywhere = [word for name in ("--listen", "--push", "--http") for word in (name, "127.0.0.1:0")]
    addresses = []
    for _ in range(2):
        with broker_process(tmp_path / "data", options=anywhere) as running:
            addresses.append((running.bootstrap, running.push, running.http))
    assert addresses[0] == addresses[1]


def test_a_chosen_port_that_is_in_use_is_chosen_again(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path / "data") as running:
        before = running.push

    async def hold() -> str:
        host, _, port = before.rpartition(":")
        async with await asyncio.start_server(lambda *_: None, host, int(port)):
            return await asyncio.to_thread(_push_address, tmp_path / "data")

    assert run(hold()) != before


def test_invalid_kept_ports_are_chosen_again(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "chosen-ports").write_bytes(b"push=a lot\nkafka=-7\n\xff\n")
    assert _push_address(tmp_path / "data")


def _push_address(data_dir: Path) -> str:
    with broker(data_dir=data_dir) as running:
        return running.push
