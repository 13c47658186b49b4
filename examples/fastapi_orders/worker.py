"""Packs orders until SIGTERM: `python worker.py`."""

import asyncio

from order import BOOTSTRAP, TOPIC, Order

import zhumq
import zhumq.aio


async def pack(task: zhumq.Task[Order, str]) -> None:
    order = task.value
    if order is None:
        return
    if order.count < 1:
        raise ValueError(f"nothing to pack for {order.customer}")
    print(f"packed {order.count} x {order.item} for {task.key}", flush=True)


async def main() -> None:
    worker = zhumq.aio.Worker(
        TOPIC,
        pack,
        group="packers",
        bootstrap=BOOTSTRAP,
        value=zhumq.Json(Order),
        key=zhumq.Text(),
        on_undecodable="dead-letter",
        on_failure="dead-letter",
    )
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
