"""Request-reply, the caller's side: sends requests, and matches the replies to them."""

import itertools
import threading
import time
import uuid
from concurrent.futures import Future
from typing import Final, NamedTuple, Self

from zhumq.client.call_headers import ReplyAddress, call_of
from zhumq.client.errors import CallFailed, CallTimedOut, ClientError, RequestFailed
from zhumq.client.message import HeaderPairs, pairs_of
from zhumq.client.pending_calls import PENDING_MAX, PendingCalls
from zhumq.client.producer import Producer
from zhumq.client.reply_topic import REPLY_RETENTION_MS, ReplyReader
from zhumq.client.security import Security, as_security
from zhumq.client.task import Task

REPLY_TOPIC: Final = "replies"
CALL_SECONDS: Final = 10.0
CALL_SECONDS_MAX: Final = REPLY_RETENTION_MS / 1000
POLL_SECONDS: Final = 0.1  # how late a call may time out
REQUEST_SECONDS_MAX: Final = 30.0  # how long a request waits for a broker


class _Pending(NamedTuple):
    future: "Future[bytes | None]"
    topic: str
    seconds: float


class Caller:
    """Sends a request to a topic and waits for the reply of a `Service`. Any number of threads may call at once.

    Callers share the reply topic, which the first one creates. Each reads one of its partitions from its end on, and ignores
    replies that are not to its own calls: those to other callers, to the program before a restart, and late ones.

    >>> import threading, zhumq
    >>> service = zhumq.Service("jobs", lambda task: task.value.upper(), group="docs-service", bootstrap=bootstrap)
    >>> thread = threading.Thread(target=service.run)
    >>> thread.start()
    >>> with zhumq.Caller(bootstrap) as caller:
    ...     caller.call("jobs", b"hello", timeout=30)
    b'HELLO'
    >>> service.stop()
    >>> thread.join()
    """

    def __init__(
        self,
        bootstrap: str = "127.0.0.1:9092",
        *,
        reply_topic: str = REPLY_TOPIC,
        pending_max: int = PENDING_MAX,
        security: Security = None,
    ) -> None:
        """`pending_max` is how many calls may wait for a reply at once."""
        secured = as_security(security)
        self._name = uuid.uuid4().hex.encode()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._pending: PendingCalls[_Pending] = PendingCalls(pending_max)
        self._failure: ClientError | None = None
        self._stopping = threading.Event()
        self._replies = ReplyReader(reply_topic, bootstrap, secured)
        self._producer = Producer(
            bootstrap,
            security=secured,
            settings={"message.timeout.ms": round(REQUEST_SECONDS_MAX * 1000)},
        )
        self._thread = threading.Thread(target=self._read, name="zhumq-caller", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self,
        topic: str,
        value: bytes | None,
        *,
        timeout: float = CALL_SECONDS,
        key: bytes | None = None,
        headers: HeaderPairs | None = None,
    ) -> bytes | None:
        """Send a request, and return the value of its reply. Raises CallFailed if the handler raised, CallTimedOut,
        TooManyCalls."""
        return self.begin(topic, value, timeout=timeout, key=key, headers=headers).result()

    def begin(
        self,
        topic: str,
        value: bytes | None,
        *,
        timeout: float = CALL_SECONDS,
        key: bytes | None = None,
        headers: HeaderPairs | None = None,
    ) -> "Future[bytes | None]":
        """Send a request, and return a future of the reply. Requests with the same key are handled one after the
        other; `timeout` is in seconds, and services drop requests that come to them later."""
        if not 0 < timeout <= CALL_SECONDS_MAX:
            raise ValueError(f"timeout={timeout} is not between 0 and {CALL_SECONDS_MAX:g} s")
        call_id = b"%s-%d" % (self._name, next(self._numbers))
        address = ReplyAddress(
            call_id=call_id, topic=self._replies.topic, partition=self._replies.partition
        )
        future: Future[bytes | None] = Future()
        with self._lock:
            if self._failure is not None:
                raise CallFailed(f"this caller is closed: {self._failure}") from self._failure
            due_ms = _now_ms() + round(timeout * 1000)
            self._pending.begin(call_id, _Pending(future, topic, timeout), due_ms)
        try:
            self._producer.send(
                topic,
                value,
                key=key if key is not None else call_id,
                headers=[*pairs_of(headers), *address.headers()],
                ttl_ms=round(timeout * 1000),
            )
        except BaseException:
            with self._lock:
                self._pending.end(call_id)
            raise
        return future

    @property
    def pending(self) -> int:
        """How many calls have no reply yet."""
        with self._lock:
            return len(self._pending)

    def close(self) -> None:
        """Stop waiting: calls without a reply raise CallFailed. Requests that were sent stay sent."""
        self._stopping.set()
        self._thread.join()

    # In the reader's thread

    def _read(self) -> None:
        failure: ClientError = RequestFailed("close() was called")
        try:
            while not self._stopping.is_set():
                for reply in self._replies.poll(POLL_SECONDS):
                    self._end(reply)
                self._end_due()
        except ClientError as error:
            failure = error
        finally:
            self._end_all(failure)
            self._replies.close()

    def _end(self, reply: Task) -> None:
        call_id, error = call_of(reply.headers)
        with self._lock:
            ended = self._pending.end(call_id or b"")
        if ended is None or not ended.future.set_running_or_notify_cancel():
            return
        if error is None:
            ended.future.set_result(reply.value)
        else:
            ended.future.set_exception(CallFailed(f"{ended.topic}: {error}"))

    def _end_due(self) -> None:
        with self._lock:
            ended = self._pending.end_due(_now_ms())
        for each in ended:
            if each.future.set_running_or_notify_cancel():
                message = (
                    f"no reply from {each.topic!r} within {each.seconds:g} s: does a service run?"
                )
                each.future.set_exception(CallTimedOut(self._replies.explain(message)))

    def _end_all(self, failure: ClientError) -> None:
        with self._lock:
            self._failure = failure
            ended = self._pending.end_all()
        for each in ended:
            if each.future.set_running_or_notify_cancel():
                each.future.set_exception(CallFailed(f"{each.topic}: no reply: {failure}"))


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
