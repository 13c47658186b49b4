"""A lock that many readers hold at once, and one writer alone."""

import contextlib
import threading
from collections.abc import Iterator


class SharedLock:
    """Readers do not wait for each other. A writer waits for those that read, and new ones wait for it."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._readers = 0
        self._writers = 0  # that wait or write

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        with self._condition:
            while self._writers:
                self._condition.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._condition:
                self._readers -= 1
                self._condition.notify_all()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        with self._condition:
            self._writers += 1
            try:
                while self._readers:
                    self._condition.wait()
                yield
            finally:
                self._writers -= 1
                self._condition.notify_all()
