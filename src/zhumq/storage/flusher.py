"""Group commit: the kernel or threads sync logs, and all requests during the sync of a log share its next sync."""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from zhumq.host.kernel_syncs import KernelSyncs
from zhumq.model.errors import BrokerError
from zhumq.storage.flush_ticket import FlushTicket
from zhumq.storage.log import Log

logger = logging.getLogger(__name__)

FlushCallback = Callable[[BrokerError | None], None]
Work = Callable[[], None]

# Syncs of different logs at the same time: the file system commits them together.
FLUSH_THREADS = 4


class Flusher:
    """Flushes logs and calls back once they are durable.

    All methods are called on the event loop. The callbacks run there as well, through post (the
    loop's call_soon_threadsafe). Threads sync, or the kernel does where several logs are flushed at once.
    """

    def __init__(
        self,
        post: Callable[[Work], object],
        *,
        name: str = "zhumq-flush",
        threads: int = FLUSH_THREADS,
        kernel_syncs: KernelSyncs | None = None,
    ) -> None:
        self._post = post
        self._kernel_syncs = kernel_syncs
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._flushing: set[Log] = set()
        self._waiting: dict[Log, list[FlushCallback]] = {}
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{place}", daemon=True)
            for place in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def request(self, log: Log, callback: FlushCallback | None = None) -> None:
        """Call back once everything that the log holds now is durable, or with the error."""
        callbacks = self._waiting.setdefault(log, [])
        if callback is not None:
            callbacks.append(callback)
        if log not in self._flushing:
            self._begin(log)

    def submit(self, work: Work) -> None:
        """Run other disk work in one of the threads."""
        self._queue.put(work)

    def run(self, work: Work, done: Work) -> None:
        """Run `work` in one of the threads, then `done` on the event loop."""

        def run() -> None:
            try:
                work()
            finally:
                self._post(done)

        self._queue.put(run)

    def close(self) -> None:
        """Finish the syncs in progress and stop the threads. Drops callbacks that still wait."""
        self._is_closed = True
        self._waiting.clear()
        if self._kernel_syncs is not None:
            self._kernel_syncs.close()
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _begin(self, log: Log) -> None:
        """Queue a sync of the log for all callbacks that wait for it."""
        callbacks = self._waiting.pop(log)
        ticket = log.begin_flush()
        if ticket is None:
            for callback in callbacks:
                callback(log.failure)
            return
        self._flushing.add(log)

        def finish() -> None:
            self._finish(log, ticket, callbacks)

        def sync() -> None:
            ticket.run()
            self._post(finish)

        def on_synced(code: int | None) -> None:
            if code is None:
                self._queue.put(sync)
            else:
                ticket.synced(code)
                finish()

        # One thread works well beside the event loop. Several compete with it for Python's lock.
        is_alone = len(self._flushing) == 1
        if self._kernel_syncs is None or is_alone or not ticket.has_files_only:
            self._queue.put(sync)
        else:
            self._kernel_syncs.sync(ticket.files, on_synced)

    def _finish(self, log: Log, ticket: FlushTicket, callbacks: list[FlushCallback]) -> None:
        self._flushing.discard(log)
        log.finish_flush(ticket)
        # The next sync begins before the callbacks of this one run, so the disk never idles.
        if log in self._waiting and not self._is_closed:
            self._begin(log)
        for callback in callbacks:
            callback(log.failure)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception:
                logger.exception("disk work failed in a flush thread")
