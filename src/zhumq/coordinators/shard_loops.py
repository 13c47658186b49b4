"""One task for each shard of an internal topic that this broker leads."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from zhumq.coordinators.internal_topic import LedPartitions
from zhumq.model.ids import TopicPartition


class ShardLoops:
    """Starts and cancels the tasks with the leadership of the topic's partitions."""

    def __init__(
        self,
        replicas: LedPartitions,
        topic: str,
        run: Callable[[int, int], Coroutine[Any, Any, None]],
        *,
        name: str,
        on_lost: Callable[[int], None] = lambda _index: None,
    ) -> None:
        """`run` gets the number of a shard and the leader epoch; `on_lost` that of a shard that another broker leads."""
        self._topic = topic
        self._run = run
        self._name = name
        self._on_lost = on_lost
        self._loops: dict[int, asyncio.Task[None]] = {}
        replicas.watch_leadership(self._on_leadership_changed)

    async def close(self) -> None:
        loops = list(self._loops.values())
        self._loops.clear()
        for each in loops:
            each.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    def _on_leadership_changed(
        self, partition: TopicPartition, leads: bool, leader_epoch: int
    ) -> None:
        if partition.topic != self._topic:
            return
        index = partition.partition
        running = self._loops.pop(index, None)
        if running is not None:
            running.cancel()
        if leads:
            self._loops[index] = asyncio.get_running_loop().create_task(
                self._run(index, leader_epoch), name=f"{self._name}-{index}"
            )
        else:
            self._on_lost(index)
