"""The async worker: the worker in threads of its own, with handlers that run in the program's event loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Self

from zhumq.client import worker
from zhumq.client.codec import OnUndecodable
from zhumq.client.message import K, Typed, V
from zhumq.client.middleware import Middleware
from zhumq.client.outputs import Outputs
from zhumq.client.security import Security
from zhumq.client.serializers import Serializer
from zhumq.client.stop_signals import stop_signals_of_loop
from zhumq.client.task import Task
from zhumq.client.worker import OnFailure

Handler = Callable[[Task[V, K]], Awaitable[None]]
# With `exactly_once`: what it sends is committed with the position of the task.
TransactionalHandler = Callable[[Task[V, K], Outputs], Awaitable[None]]


class Worker(Typed[V, K]):
    """Calls an async handler for every message of a topic.

    The options and the rules are those of `zhumq.Worker`: order by key, commits of the contiguous prefix, retries,
    dead letters, `exactly_once`. At most `processors` handlers run at a time, all of them in the event loop of `run()`; each
    has a thread that waits for it.

    >>> import asyncio, zhumq, zhumq.aio
    >>> with zhumq.Producer(bootstrap) as producer:
    ...     for number in range(3):
    ...         producer.send("jobs", b"%d" % number, partition=0)
    >>> done = []
    >>> async def handle(task: zhumq.Task) -> None:
    ...     await asyncio.sleep(0)
    ...     done.append(task.value)
    >>> worker = zhumq.aio.Worker("jobs", handle, group="docs-async-workers", bootstrap=bootstrap)
    >>> asyncio.run(worker.run(until=lambda: len(done) == 3))
    >>> sorted(done)
    [b'0', b'1', b'2']
    """

    def __init__(
        self,
        topic: str,
        handler: Handler[V, K] | TransactionalHandler[V, K],
        *,
        group: str,
        bootstrap: str = "127.0.0.1:9092",
        consumers: int = 1,
        processors: int = 8,
        offset: Literal["first", "last"] = "first",
        partitions: Sequence[int] | None = None,
        retries: int = 3,
        backoff_ms: int = 100,
        on_failure: OnFailure = "stop",
        exactly_once: bool = False,
        value: Serializer[V] | None = None,
        key: Serializer[K] | None = None,
        on_undecodable: OnUndecodable = "raise",
        middleware: Sequence[Middleware] = (),
        security: Security = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """The options are those of `zhumq.Worker`."""
        self._handler: Callable[..., Awaitable[None]] = handler
        self._worker: worker.Worker[V, K] = worker.Worker(
            topic,
            self._handle,
            group=group,
            bootstrap=bootstrap,
            consumers=consumers,
            processors=processors,
            offset=offset,
            partitions=partitions,
            retries=retries,
            backoff_ms=backoff_ms,
            on_failure=on_failure,
            exactly_once=exactly_once,
            value=value,
            key=key,
            on_undecodable=on_undecodable,
            middleware=middleware,
            security=security,
            settings=settings,
        )
        self.topic = topic

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Begin no more messages; `run` finishes those that handlers have begun, commits, and returns."""
        self._worker.stop()

    @property
    def is_stopping(self) -> bool:
        """Whether it begins no more messages: a handler that takes long may ask."""
        return self._worker.is_stopping

    async def run(self, until: Callable[[], bool] | None = None) -> None:
        """Work until `stop()`, until the condition holds, or until a handler has failed for good (HandlerFailed).

        If the task is cancelled, the handlers that have begun finish, the worker commits and leaves the group, and then
        the task is cancelled. In the main thread SIGTERM stops it, too, unless the program handles it itself;
        `asyncio.run` cancels its task at SIGINT. `until` is called in a thread.
        """
        self._loop = asyncio.get_running_loop()
        finished: asyncio.Future[BaseException | None] = self._loop.create_future()
        threading.Thread(
            target=self._run, args=(until, finished), name="zhumq-aio-worker", daemon=True
        ).start()
        with stop_signals_of_loop(self._loop, self.stop):
            failure = await self._finish(finished)
        if failure is not None:
            raise failure

    async def _finish(
        self, finished: "asyncio.Future[BaseException | None]"
    ) -> BaseException | None:
        """Wait for the end. Cancelled, stop and wait for it nevertheless: handlers need the event loop until then."""
        cancelled: asyncio.CancelledError | None = None
        while not finished.done():
            try:
                await asyncio.shield(finished)
            except asyncio.CancelledError as error:
                cancelled = error
                self.stop()
        if cancelled is not None:
            raise cancelled
        return finished.result()

    # In threads

    def _run(
        self,
        until: Callable[[], bool] | None,
        finished: "asyncio.Future[BaseException | None]",
    ) -> None:
        failure: BaseException | None = None
        try:
            self._worker.run(until)
        except BaseException as error:  # whatever it is: raised by the task that runs the worker
            failure = error
        self._loop.call_soon_threadsafe(finished.set_result, failure)

    def _handle(self, *arguments: Any) -> None:
        """Run the handler in the event loop, and wait for it. The context of this thread goes along."""
        asyncio.run_coroutine_threadsafe(self._call(arguments), self._loop).result()

    async def _call(self, arguments: tuple[Any, ...]) -> None:
        await self._handler(*arguments)
