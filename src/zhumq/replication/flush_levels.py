"""Flush levels of a partition: `flush.messages` and `flush.ms`, for messages whose producers do not wait for the disk."""

import asyncio
from collections.abc import Callable
from typing import Final

from zhumq.model.errors import NotLeaderOrFollower
from zhumq.model.settings import INT64_MAX
from zhumq.replication.driver import ReplicaDriver
from zhumq.replication.pending import DurabilityWaiters, DurableCallback, Watched
from zhumq.storage.log_config import LogConfig

NEVER: Final = INT64_MAX


class FlushLevels:
    """Watches a partition that this broker leads. The append that reaches `flush.messages` is answered once its
    leader has it on the disk; after `flush.ms` what was appended is flushed without an answer that waits.

    The replicas of a partition flush every append, so for these only the answer depends on the level.
    """

    def __init__(self, driver: ReplicaDriver, config: LogConfig) -> None:
        self._driver = driver
        self._messages = config.flush_messages
        self._delay_seconds = config.flush_ms / 1000 if config.flush_ms < NEVER else None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._waiters = DurabilityWaiters()

    @property
    def wait_if_due(self) -> Callable[[int, DurableCallback, int], None] | None:
        """How an answer waits for the disk, if so many messages are not there; None: it does not wait."""
        return self.call_when_flushed if self._is_due else None

    @property
    def _is_due(self) -> bool:
        log = self._driver.log
        return log.log_end_offset - log.flushed_offset >= self._messages

    def call_when_flushed(
        self, next_offset: int, callback: DurableCallback, _timeout_ms: int
    ) -> None:
        """Call back once everything below the offset is on the disk of this broker, or with the error."""
        if self._driver.log.flushed_offset >= next_offset:
            callback(None)
            return
        self._waiters.add(next_offset, callback)
        self._driver.request_flush()

    def on_flushed(self, flushed_offset: int) -> None:
        self._waiters.reached(flushed_offset)
        if self._waiters:
            self._driver.request_flush()

    def close(self) -> None:
        """The topic has other levels from now on. Answers that wait for the disk are given at once, as they
        would be without the level."""
        if self._timer is not None:
            self._timer.cancel()
        self._waiters.reached(NEVER)

    # Watcher

    def on_bytes(self, _count: int, _source: Watched) -> None:
        if self._is_due:
            self._driver.request_flush()
        elif self._timer is None and self._delay_seconds is not None:
            self._timer = self._loop.call_later(self._delay_seconds, self._flush)

    def on_retired(self) -> None:
        name = self._driver.topic_partition
        self._waiters.failed(NotLeaderOrFollower(f"{name}: leadership ended before the flush"))

    def _flush(self) -> None:
        self._timer = None
        self._driver.request_flush()


def levels_of(driver: ReplicaDriver, config: LogConfig) -> FlushLevels | None:
    """The levels of a partition; None if its topic sets none."""
    if config.flush_messages == NEVER and config.flush_ms == NEVER:
        return None
    return FlushLevels(driver, config)
