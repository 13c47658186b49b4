"""A push consumer in its own process, which tests stop, continue and kill. It prints what it receives.

    python stalling_consumer.py PUSH TOPIC GROUP MODE CREDITS ACK_TIMEOUT_MS [CONSUMER]

For every range of offsets it prints `got TIME PARTITION FIRST LAST` before it acknowledges it, and `ack ...` once
that is durable; `parked` when the broker parks it, and then it resumes at the next line on stdin.
"""

import asyncio
import sys
import time

from zhumq import PushConsumer
from zhumq.client.errors import SessionParked
from zhumq.client.message import MessageBatch


def print_line(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def print_batch(word: str, batch: MessageBatch) -> None:
    # The monotonic clock is the same in all processes of the machine.
    now = time.monotonic_ns()
    for first, last, _ in batch.ranges:
        print_line(word, now, batch.partition, first, last)


async def work(consumer: PushConsumer) -> None:
    async for batch in consumer.batches():
        print_batch("got", batch)
        batch.ack()
        if not await consumer.flush():
            print_batch("ack", batch)


async def main() -> None:
    print_line("begun", time.monotonic_ns())
    push, topic, group, mode, credits_, ack_timeout_ms = sys.argv[1:7]
    async with PushConsumer(
        topic,
        group=group,
        mode=mode,  # type: ignore[arg-type]
        push=push,
        credits=int(credits_),
        ack_timeout_ms=int(ack_timeout_ms),
        consumer=sys.argv[7] if len(sys.argv) > 7 else "",
        auto_ack=False,
    ) as consumer:
        while True:
            try:
                await work(consumer)
            except SessionParked:
                print_line("parked", time.monotonic_ns())
                await asyncio.to_thread(sys.stdin.readline)
                consumer.resume()


asyncio.run(main())
