"""Filters on the broker: the traffic that they save, and many subscriptions with different filters on one topic."""

import argparse
import asyncio
import multiprocessing
import resource
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
from confluent_kafka import Producer as Librdkafka

from benchmarks.cases import topic_on
from benchmarks.server import Server
from benchmarks.zhumq_server import prepare_zhumq
from zhumq.client.push_addresses import PushAddresses
from zhumq.client.security import as_security
from zhumq.protocol.push import push_pb2 as pb
from zhumq.records.batch import records

STREAM = "/zhumq.push.v1.Push/Stream"
STREAMS_PER_CHANNEL = 90
CREDITS = 10_000
TRAFFIC_MESSAGES = 20_000
SETTLE_SECONDS = 30.0
WARM_UP_SECONDS = 2.0

# Message `n` is of customer `n` modulo the number of subscriptions, in four ways.
KINDS: dict[str, Callable[[int], str]] = {
    "tags": lambda customer: f"c{customer}",
    "header": lambda customer: f"customer = '{customer}'",
    "key": lambda customer: f"key = 'c{customer}' AND priority >= 0",
    "json": lambda customer: f"value.customer = {customer} AND value.total >= 0",
    # No equality: every message is tested for every subscription.
    "range": lambda customer: f"customer BETWEEN {customer} AND {customer}",
}
EQUALITIES = ("tags", "header", "key", "json")


def _send(
    bootstrap: str, topic: str, *, count: int, rate: float, customers: int, compression: str
) -> None:
    producer = Librdkafka(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "compression.type": compression,
            "log_level": 3,
        }
    )
    began = time.perf_counter()
    for number in range(count):
        while rate and (left := began + number / rate - time.perf_counter()) > 0:
            time.sleep(left)
        customer = number % customers
        producer.produce(
            topic,
            b'{"customer": %d, "total": %d, "sent": %.6f}' % (customer, number, time.time()),
            key=f"c{customer}",
            headers=[
                ("zhumq-tags", f"c{customer}"),
                ("customer", str(customer)),
                ("priority", "1"),
            ],
        )
        producer.poll(0)
    producer.flush()


class _Subscriber:
    """One psb subscription without a group, on a bare stream."""

    def __init__(
        self, channel: "grpc.aio.Channel", topic: str, text: str, expected: bytes = b""
    ) -> None:
        """`expected` is how the values begin that its filter lets pass."""
        call = channel.stream_stream(
            STREAM,
            request_serializer=pb.ClientFrame.SerializeToString,
            response_deserializer=pb.ServerFrame.FromString,
        )
        self._call: Any = call()
        self._subscribe = pb.Subscribe(
            topics=[pb.TopicChoice(name=topic)],
            mode=pb.PSB,
            credits=CREDITS,
            filter=text,
            instance=uuid.uuid4().hex,
        )
        self._expected = expected
        self.offsets: set[int] = set()
        self.received = 0
        self.unexpected = 0
        self.bytes = 0
        self.delays: list[float] = []
        self.last_arrival = 0.0
        self.is_subscribed = asyncio.Event()

    async def run(self, first_sent: float) -> None:
        await self._call.write(pb.ClientFrame(subscribe=self._subscribe))
        while isinstance(frame := await self._call.read(), pb.ServerFrame):
            match frame.WhichOneof("frame"):
                case "subscribed":
                    self.is_subscribed.set()
                case "messages":
                    await self._take(frame, first_sent)
                case "ping":
                    pong = pb.Pong(number=frame.ping.number)
                    await self._call.write(pb.ClientFrame(pong=pong))
                case "refused":
                    raise RuntimeError(frame.refused.message)

    async def _take(self, frame: pb.ServerFrame, first_sent: float) -> None:
        now = self.last_arrival = time.time()
        messages = frame.messages
        self.bytes += frame.ByteSize()
        acquired = {
            offset
            for each in messages.ranges
            for offset in range(each.first_offset, each.last_offset + 1)
        }
        self.received += len(acquired)
        self.offsets |= acquired
        for record in records(messages.records):
            if record.offset in acquired and record.value is not None:
                self.unexpected += not record.value.startswith(self._expected)
                sent = float(record.value.rpartition(b" ")[2][:-1])
                if sent >= first_sent:
                    self.delays.append(now - sent)
        answer = pb.Answer(
            topic=messages.topic, partition=messages.partition, ranges=messages.ranges, kind=pb.ACK
        )
        await self._call.write(pb.ClientFrame(answer=answer))


async def _with_subscribers(
    server: Server,
    topic: str,
    texts: list[str],
    count: int,
    work: Callable[[], None],
    warm_up: float = 0.0,
    expected: Callable[[int], bytes] = lambda _: b"",
) -> list[_Subscriber]:
    """Subscribe, do the work in a thread, and wait until `count` messages have arrived or none comes any more."""
    addresses = PushAddresses(server.bootstrap, None, as_security(None))
    await addresses.look_up()
    channels = [
        grpc.aio.insecure_channel(
            addresses.known[0],
            options=[
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_receive_message_length", -1),
            ],
        )
        for _ in range(0, len(texts), STREAMS_PER_CHANNEL)
    ]
    subscribers = [
        _Subscriber(channels[index // STREAMS_PER_CHANNEL], topic, text, expected(index))
        for index, text in enumerate(texts)
    ]
    tasks = [asyncio.create_task(each.run(time.time() + warm_up)) for each in subscribers]
    for each in subscribers:
        await each.is_subscribed.wait()
    await asyncio.to_thread(work)
    received, deadline = -1, 0.0
    while received < count:
        found = sum(len(each.offsets) for each in subscribers)
        if found != received:
            received, deadline = found, time.monotonic() + SETTLE_SECONDS
        elif time.monotonic() > deadline:
            break
        await asyncio.sleep(0.1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for channel in channels:
        await channel.close()
    return subscribers


async def measure_traffic(server: Server) -> None:
    """The bytes that one consumer is sent, by the share of the messages that pass."""
    print(f"\ntraffic to one consumer of {TRAFFIC_MESSAGES:,} messages")
    print(f"{'compression':12} {'pass':>8} {'without filter':>15} {'with filter':>12} {'saved':>7}")
    for compression in ("none", "zstd"):
        with topic_on(server, 1) as topic:
            await asyncio.to_thread(
                _send,
                server.bootstrap, topic, count=TRAFFIC_MESSAGES, rate=0, customers=1_000, compression=compression
            )  # fmt: skip
            everything = (
                await _with_subscribers(server, topic, [""], TRAFFIC_MESSAGES, lambda: None)
            )[0].bytes
            for share, text in ((0.001, "customer = 7"), (0.01, "customer < 10"), (0.1, "customer < 100"), (0.5, "customer < 500")):  # fmt: skip
                count = int(TRAFFIC_MESSAGES * share)
                (one,) = await _with_subscribers(server, topic, [text], count, lambda: None)
                assert one.received == count, (text, one.received)
                print(
                    f"{compression:12} {share:8.1%} {everything:15,} {one.bytes:12,} {1 - one.bytes / everything:7.1%}"
                )


async def measure_subscriptions(
    server: Server,
    *,
    kinds: tuple[str, ...],
    subscriptions: int,
    rate: int,
    seconds: int,
    one_in: int,
) -> bool:
    """Whether each subscription got its messages, and no others. One in so many messages is for one of them."""
    texts = [KINDS[kinds[index % len(kinds)]](index) for index in range(subscriptions)]
    customers = subscriptions * one_in
    share = rate * seconds // customers
    count, expected_count = share * customers, share * subscriptions
    with topic_on(server, 1) as topic:
        sender = multiprocessing.get_context("spawn").Process(
            target=_send,
            args=(server.bootstrap, topic),
            kwargs={
                "count": count,
                "rate": rate,
                "customers": customers,
                "compression": "none",
            },
        )
        took = first_sent = cpu = own_cpu = 0.0

        def work() -> None:
            nonlocal took, first_sent, cpu, own_cpu
            cpu, own_cpu = server.cpu_seconds(), _own_cpu_seconds()
            began, first_sent = time.perf_counter(), time.time()
            sender.start()
            sender.join()
            took = time.perf_counter() - began

        subscribers = await _with_subscribers(
            server,
            topic,
            texts,
            expected_count,
            work,
            warm_up=WARM_UP_SECONDS,
            expected=lambda index: b'{"customer": %d,' % index,
        )
        broker_cpu = server.cpu_seconds() - cpu
    delays = sorted(delay for each in subscribers for delay in each.delays)
    received = sum(each.received for each in subscribers)
    wrong = sum(each.unexpected > 0 or len(each.offsets) != share for each in subscribers)
    # Where a subscriber is slower than its lock, as it is where the machine is too busy.
    again = received - sum(len(each.offsets) for each in subscribers)
    reached = (received - again) / (max(each.last_arrival for each in subscribers) - first_sent)
    size = sum(each.bytes for each in subscribers)
    print(
        f"\n{subscriptions:,} subscriptions, {'+'.join(kinds)} filters, {count:,} messages, {expected_count:,} of them for one"
    )
    print(f"  sent          {count / took:,.0f} messages/s in {took:.1f} s")
    print(
        f"  delivered     {received - again:,} of {expected_count:,} at {reached:,.0f} messages/s, {again:,} of them again;"
        f" {wrong} subscriptions got others than theirs, or not all of theirs"
    )
    if delays:
        p50, p99 = (delays[int(len(delays) * part)] for part in (0.5, 0.99))
        print(
            f"  latency       p50 {p50 * 1e3:,.0f} ms, p99 {p99 * 1e3:,.0f} ms, max {delays[-1] * 1e3:,.0f} ms"
        )
    print(
        f"  broker        {broker_cpu:.1f} CPU s: {broker_cpu / count * 1e6:,.0f} us for each message,"
        f" {server.rss_bytes() / 2**20:,.0f} MiB"
    )
    print(
        f"  subscribers   {_own_cpu_seconds() - own_cpu:.1f} CPU s, {size:,} bytes received; without filters each would"
        f" get everything: {size * subscriptions:,}, {1 - 1 / subscriptions:.1%} saved"
    )
    return not wrong


def _own_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(server: Server, options: argparse.Namespace) -> bool:
    # In one event loop: gRPC keeps the first one that it is used in.
    if options.only != "subscriptions":
        await measure_traffic(server)
    return options.only == "traffic" or await measure_subscriptions(
        server,
        kinds=tuple(options.kinds.split("+")),
        subscriptions=options.subscriptions,
        rate=options.rate,
        seconds=options.seconds,
        one_in=options.one_in,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["traffic", "subscriptions"])
    parser.add_argument(
        "--kinds", default="+".join(EQUALITIES), help="tags+header+key+json, or range"
    )
    parser.add_argument("--subscriptions", type=int, default=1_000)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--one-in", type=int, default=1, help="of so many messages one passes a filter")  # fmt: skip
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zhumq-filters-") as folder:
        prepared = prepare_zhumq(Path(folder))
        with prepared.start() as server:
            return 0 if asyncio.run(measure(server, options)) else 1


if __name__ == "__main__":
    sys.exit(main())
