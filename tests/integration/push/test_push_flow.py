"""Flow control: a consumer never holds more than its credit, and a slow one costs little memory."""

import asyncio
import re
import urllib.request
from pathlib import Path

from push_support import answer, bare_stream, new_topic, numbered, psb, run, send, shared, until

from zhumq import Admin, PushConsumer
from zhumq.protocol.push import push_pb2 as pb
from zhumq.testing.broker import RunningBroker
from zhumq.testing.process import broker_process


def test_a_consumer_with_credit_ten_never_holds_more_than_ten(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap, partitions=3)
    send(running.bootstrap, topic, numbered(300), partitions=3)

    async def scenario(subscribe: pb.Subscribe) -> None:
        async with bare_stream(running.push, subscribe) as stream:
            held: list[tuple[int, int]] = []
            seen: set[tuple[int, int]] = set()
            while len(seen) < 300:
                messages = await stream.receive_kind("messages")
                for each in messages.ranges:
                    offsets = range(each.first_offset, each.last_offset + 1)
                    held += [(messages.partition, offset) for offset in offsets]
                assert len(held) <= 10
                seen.update(held)
                while len(held) > 3:
                    partition, offset = held.pop()
                    one = pb.Range(first_offset=offset, last_offset=offset)
                    await stream.send(
                        answer=pb.Answer(topic=topic, partition=partition, ranges=[one])
                    )

    run(scenario(psb(topic, credits=10)))
    run(scenario(shared(topic, "ten", credits=10)))


def test_the_bytes_of_a_batch_travel_once_however_small_the_credit(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(100))

    async def scenario() -> None:
        async with bare_stream(running.push, psb(topic, credits=10)) as stream:
            with_bytes = frames = seen = 0
            while seen < 100:
                messages = await stream.receive_kind("messages")
                frames += 1
                with_bytes += bool(messages.records)
                seen += sum(r.last_offset - r.first_offset + 1 for r in messages.ranges)
                await stream.send(answer=answer(messages))
            assert frames >= 10
            assert with_bytes < frames

    run(scenario())


def test_credit_can_be_changed_and_delivery_paused(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(100))

    async def scenario() -> None:
        async with bare_stream(running.push, psb(topic, group="flow", credits=1)) as stream:
            first = await stream.receive_kind("messages")
            assert first.ranges[0].last_offset == 0
            await stream.send(credit=pb.Credit(messages=5))
            more = await stream.receive_kind("messages")
            assert (more.ranges[0].first_offset, more.ranges[0].last_offset) == (1, 4)
            await stream.send(pause=pb.Pause())
            await stream.send(answer=answer(first, id=1))
            await stream.send(answer=answer(more, id=2))
            assert {(await stream.receive_kind("answered")).id for _ in range(2)} == {1, 2}

            def in_flight() -> int:
                (session,) = Admin(running.bootstrap).sessions("flow")
                return session.in_flight

            assert await asyncio.to_thread(in_flight) == 0
            await stream.send(resume=pb.Resume())
            following = await stream.receive_kind("messages")
            assert following.ranges[0].first_offset == 5

    run(scenario())


def test_an_iterator_that_is_slow_holds_no_more_than_its_credits(running: RunningBroker) -> None:
    topic = new_topic(running.bootstrap)
    send(running.bootstrap, topic, numbered(200))

    async def scenario() -> None:
        async with PushConsumer(
            topic, group="slow-reader", mode="psb", push=running.push, credits=7
        ) as consumer:
            seen = 0
            async for _ in consumer:
                (session,) = await asyncio.to_thread(
                    lambda: Admin(running.bootstrap, push=running.push).sessions("slow-reader")
                )
                assert session.in_flight <= 7
                seen += 1
                if seen == 30:
                    break

    run(scenario())


def test_consumers_that_do_not_read_cost_the_broker_little(tmp_path: Path) -> None:
    value = b"x" * 10_000
    with broker_process(tmp_path / "data") as process:
        topic = new_topic(process.bootstrap)
        for _ in range(6):
            send(process.bootstrap, topic, [value] * 1_000)  # 60 MB in all

        async def scenario() -> None:
            async with (
                bare_stream(process.push, psb(topic, credits=1_000_000)) as one,
                bare_stream(process.push, psb(topic, credits=1_000_000)) as two,
            ):
                before = _memory_mb(process.pid)
                for stream in (one, two):
                    await stream.receive_kind("messages")  # and no more after that

                def delivered() -> list[int]:
                    admin = Admin(process.bootstrap, push=process.push)
                    return [session.delivered for session in admin.sessions()]

                async def stands_still() -> bool:
                    first = await asyncio.to_thread(delivered)
                    await asyncio.sleep(0.3)
                    return first == await asyncio.to_thread(delivered)

                await until(stands_still)
                assert max(await asyncio.to_thread(delivered)) < 6_000, "it is held back"
                assert _memory_mb(process.pid) - before < 40
                # Other clients are served meanwhile.
                with urllib.request.urlopen(f"http://{process.http}/healthz", timeout=10) as page:
                    assert page.status == 200

        run(scenario(), 60)


def _memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024
