"""Group commit: one thread syncs, everybody who asked meanwhile shares the next sync."""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from zhumq.model.errors import BrokerError
from zhumq.storage.flush_ticket import FlushTicket
from zhumq.storage.partition_log import PartitionLog

logger = logging.getLogger(__name__)

FlushCallback = Callable[[BrokerError | None], None]
Work = Callable[[], None]


class Flusher:
    """Flushes logs for those who wait for it.

    All methods are called on the event loop, and so are the callbacks, through post (the loop's
    call_soon_threadsafe). The thread does nothing but sync.
    """

    def __init__(self, post: Callable[[Work], object], *, name: str = "zhumq-flush") -> None:
        self._post = post
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._waiting: dict[PartitionLog, list[FlushCallback]] = {}
        self._is_busy = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def request(self, log: PartitionLog, callback: FlushCallback | None = None) -> None:
        """Call back once everything that is now in the log is on disk, or with the error."""
        callbacks = self._waiting.setdefault(log, [])
        if callback is not None:
            callbacks.append(callback)
        if not self._is_busy:
            self._begin()

    def submit(self, work: Work) -> None:
        """Run something else that touches the disk in the same thread, between two syncs."""
        self._queue.put(work)

    def close(self) -> None:
        """Finish the sync in progress and end the thread. Those still waiting are not called."""
        self._is_closed = True
        self._waiting.clear()
        self._queue.put(None)
        self._thread.join()

    def _begin(self) -> None:
        """Hand everything that waits to the thread."""
        waiting, self._waiting = self._waiting, {}
        tickets: list[tuple[PartitionLog, FlushTicket, list[FlushCallback]]] = []
        done: list[tuple[PartitionLog, list[FlushCallback]]] = []
        for log, callbacks in waiting.items():
            ticket = log.begin_flush()
            if ticket is None:
                done.append((log, callbacks))
            else:
                tickets.append((log, ticket, callbacks))
        if tickets:
            self._is_busy = True

            def sync() -> None:
                for _, ticket, _ in tickets:
                    ticket.run()
                self._post(finish)

            def finish() -> None:
                self._finish(tickets)

            self._queue.put(sync)
        for log, callbacks in done:
            for callback in callbacks:
                callback(log.failure)

    def _finish(self, tickets: list[tuple[PartitionLog, FlushTicket, list[FlushCallback]]]) -> None:
        self._is_busy = False
        for log, ticket, _ in tickets:
            log.finish_flush(ticket)
        if self._waiting and not self._is_closed:
            self._begin()
        for log, _, callbacks in tickets:
            for callback in callbacks:
                callback(log.failure)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception:
                logger.exception("work on the disk failed")
