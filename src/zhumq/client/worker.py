"""Runs a handler for every message of a topic: consumers, processors, ordered commits (like go-zero's kq)."""

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import confluent_kafka

from zhumq.client import dead_letters
from zhumq.client.codec import Codec, OnUndecodable
from zhumq.client.errors import DecodeFailed, HandlerFailed, RequestFailed
from zhumq.client.message import K, Typed, V
from zhumq.client.middleware import Middleware
from zhumq.client.outputs import HeaderPair, Origin, Outputs, Work
from zhumq.client.prefix import Prefix
from zhumq.client.producer import Producer
from zhumq.client.routes import quiet_settings
from zhumq.client.security import Security, as_security
from zhumq.client.serializers import Serializer
from zhumq.client.stop_signals import stop_signals
from zhumq.client.task import Task, is_transient, task_of
from zhumq.client.task_handling import handle_decoded
from zhumq.client.waiting import Waiting

if TYPE_CHECKING:
    from zhumq.client.worker_rounds import RoundReader

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.1
RETRY_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 30.0
REVOKE_SECONDS_MAX: Final = 10.0

OnFailure = Literal["stop", "dead-letter", "retry"]


Handler = Callable[[Task[V, K]], None]
# With `exactly_once`: what it sends is committed with the position of the task.
TransactionalHandler = Callable[[Task[V, K], Outputs], None]
_Place = tuple[str, int]


class Worker(Typed[V, K]):
    """Calls a handler for every message of a topic.

    `consumers` read (each is a member of the group, or of none if `partitions` are chosen), and
    `processors` threads handle. Messages with the same key, and messages without one of the same
    partition, are handled one after the other. An offset is committed only when everything before it
    has been handled. A handler that raises is tried `retries` times more with growing pauses; then the
    worker stops (`on_failure="stop"`), or the message goes to `<topic>.dlq` (`"dead-letter"`), or it is
    tried for ever (`"retry"`). It is never committed silently.

    With `exactly_once` the handler gets a second argument to send messages into: `handle(task, outputs)`. They are
    committed in one transaction with the positions of their tasks: a crash neither loses nor repeats one. The reader
    processes rounds of messages, and reads committed ones only.

    >>> import zhumq
    >>> with zhumq.Producer(bootstrap) as producer:
    ...     for number in range(3):
    ...         producer.send("jobs", b"%d" % number, partition=0)
    >>> done = []
    >>> worker = zhumq.Worker("jobs", lambda task: done.append(task.value), group="docs-workers",
    ...                       bootstrap=bootstrap)
    >>> worker.run(until=lambda: len(done) == 3)
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
        """`security` is a ClientSecurity, or settings with Kafka's names. `settings` are librdkafka's. `value` and `key` are
        serializers: the handler gets a `Task[Order]` with `value=Json(Order)`. `on_undecodable` is what becomes of messages
        that they cannot decode: `run` raises DecodeFailed, or they are dead-lettered, or skipped. `middleware`
        runs around every call of the handler, in its thread."""
        if consumers < 1 or processors < 1 or retries < 0 or backoff_ms < 0:
            raise ValueError("consumers and processors are at least 1, retries and backoff_ms 0")
        if offset not in ("first", "last"):
            raise ValueError(f"offset is first or last, not {offset!r}")
        if on_failure not in ("stop", "dead-letter", "retry"):
            raise ValueError(f"on_failure is stop, dead-letter or retry, not {on_failure!r}")
        if partitions is not None and consumers > 1:
            raise ValueError("chosen partitions are read by one consumer: leave consumers at 1")
        if partitions is not None and exactly_once:
            raise ValueError("exactly_once needs the group's assignment: choose no partitions")
        self.topic = topic
        self._codec = Codec(value, key, on_undecodable)
        self._handler = handle_decoded(handler, self._codec, middleware)
        self._offset = offset
        self._exactly_once = exactly_once
        self._group = group
        self._bootstrap = bootstrap
        self._consumers = consumers
        self._partitions = partitions
        self._retries = retries
        self._backoff_s = backoff_ms / 1000
        self._on_failure = on_failure
        self._security = as_security(security)
        self._waiting = Waiting(bootstrap, self._security)
        callback = self._waiting.on_error
        self._settings = quiet_settings(bootstrap, self._security, error_cb=callback) | {
            "group.id": group,
            "auto.offset.reset": "earliest" if offset == "first" else "latest",
            "enable.auto.offset.store": False,
            "auto.commit.interval.ms": 500,
            "fetch.queue.backoff.ms": 5,
        }
        if partitions is None:
            self._settings["group.protocol"] = "consumer"  # KIP-848: the broker assigns
        self._own_settings = dict(settings or {})
        self._settings |= self._own_settings
        # One bounded queue per processor, so that a slow handler slows the reading down.
        self._queues: list[queue.Queue[Work | None]] = [
            queue.Queue(maxsize=QUEUED_MAX) for _ in range(processors)
        ]
        self._stopping = threading.Event()
        self._has_signal: Callable[[], bool] = self._stopping.is_set
        self._failure: BaseException | None = None
        self._dead: Producer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Begin no more messages; `run` finishes those that handlers have begun, commits, and returns."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        """Whether it begins no more messages: a handler that takes long may ask."""
        return self._stopping.is_set() or self._has_signal()

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Work until `stop()`, until the condition holds, or until a handler has failed for good.

        The last case raises HandlerFailed: the message is not committed, and a later run reads it again.
        In the main thread SIGTERM and SIGINT stop it, too, unless the program handles them itself.
        """
        with stop_signals() as self._has_signal:
            self._run(lambda: self.is_stopping or (until is not None and until()))

    def _run(self, until: Callable[[], bool]) -> None:
        choices = (self._on_failure, self._codec.on_undecodable)
        if "dead-letter" in choices and not self._exactly_once:
            self._dead = Producer(self._bootstrap, security=self._security)
        processors = [
            threading.Thread(target=self._process, args=(each,), name=f"zhumq-processor-{number}")
            for number, each in enumerate(self._queues)
        ]
        readers = [
            threading.Thread(target=self._guard_reader, name=f"zhumq-consumer-{number}")
            for number in range(self._consumers)
        ]
        for thread in (*processors, *readers):
            thread.start()
        try:
            while any(thread.is_alive() for thread in readers):
                if until():
                    self.stop()
                self._stopping.wait(POLL_SECONDS / 2)
                if self._stopping.is_set():
                    for thread in readers:
                        thread.join(POLL_SECONDS)
        finally:
            self.stop()
            for thread in readers:
                thread.join()
            for each in self._queues:
                each.put(None)
            for thread in processors:
                thread.join()
        if self._failure is not None:
            raise self._failure

    # Reading

    def _guard_reader(self) -> None:
        try:
            self._reader().run()
        except BaseException as error:
            self._fail(error)

    def _reader(self) -> "_Reader | RoundReader":
        if not self._exactly_once:
            return _Reader(self)
        # Imported here: an ordinary worker needs no codecs.
        from zhumq.client.worker_rounds import RoundReader  # noqa: PLC0415

        return RoundReader(
            self.topic,
            self._handler,
            self._queues,
            group=self._group,
            bootstrap=self._bootstrap,
            start="earliest" if self._offset == "first" else "latest",
            stopping=self._stopping,
            security=self._security,
            settings=self._own_settings,
        )

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._stopping.set()

    # Handling

    def _process(self, work: "queue.Queue[Work | None]") -> None:
        while (item := work.get()) is not None:
            try:
                if self.is_stopping and not self._exactly_once:
                    item.origin.mark_abandoned(item.task)  # It was not begun: it is read again.
                elif self._handle(item.task, item.origin):
                    item.origin.mark_done(item.task)
                else:
                    item.origin.mark_abandoned(item.task)
            except BaseException as error:
                item.origin.mark_abandoned(item.task)
                self._fail(error)

    def _handle(self, task: Task, origin: "Origin") -> bool:
        """Handle a task, with retries. True: it may be committed."""
        attempt = 0
        while True:
            if self._failure is not None:
                return False  # An earlier task may have failed: this one is read again.
            try:
                origin.handle(task)
            except DecodeFailed as error:
                if self._codec.on_undecodable == "raise":
                    raise
                logger.warning("%s (%s)", error, self._codec.on_undecodable)
                if self._codec.on_undecodable == "dead-letter":
                    self._send_to_dead_letters(task, origin, str(error), attempt + 1)
                return True
            except Exception as error:
                attempt += 1
                reason = f"{type(error).__name__}: {error}"
                logger.warning(
                    "the handler failed for %s-%d@%d, attempt %d",
                    task.topic,
                    task.partition,
                    task.offset,
                    attempt,
                    exc_info=error,
                )
                if attempt > self._retries and self._on_failure == "stop":
                    raise HandlerFailed(
                        f"the handler failed {attempt} times for"
                        f" {task.topic}-{task.partition}@{task.offset}: {reason}"
                    ) from error
                if attempt > self._retries and self._on_failure == "dead-letter":
                    self._send_to_dead_letters(task, origin, reason, attempt)
                    return True
                pause_s = min(self._backoff_s * 2 ** min(attempt - 1, 20), RETRY_SECONDS_MAX)
                if self._stopping.wait(pause_s):
                    return False
            else:
                return True

    def _send_to_dead_letters(
        self, task: Task, origin: "Origin", reason: str, deliveries: int
    ) -> None:
        story = dead_letters.Story(
            group=self._group,
            reason=reason,
            deliveries=deliveries,
            topic=task.topic,
            partition=task.partition,
            offset=task.offset,
            time_ms=time.time_ns() // 1_000_000,
        )
        origin.send_to_dead_letters(task, [*task.headers, *story.headers()])


QUEUED_MAX: Final = 256  # of one processor


class _Reader:
    """One consumer: dispatches tasks, commits the contiguous prefix."""

    def __init__(self, worker: Worker[Any, Any]) -> None:
        self._worker = worker
        self._consumer = confluent_kafka.Consumer(worker._settings)
        self._lock = threading.Condition()
        self._prefixes: dict[_Place, Prefix] = {}
        # Everything below is done. Processors write it; the polling thread stores it, because a consumer of
        # librdkafka's binding is for one thread.
        self._next_offsets: dict[_Place, int] = {}
        # Messages of partitions that were assigned while the others were paused.
        self._early: deque[Any] = deque()

    def run(self) -> None:
        worker = self._worker
        try:
            if worker._partitions is None:
                self._consumer.subscribe([worker.topic], on_revoke=self._revoked)
            else:
                self._consumer.assign(
                    [
                        confluent_kafka.TopicPartition(worker.topic, each)
                        for each in worker._partitions
                    ]
                )
            while not worker._stopping.is_set():
                self._store()
                message = (
                    self._early.popleft() if self._early else self._consumer.poll(POLL_SECONDS)
                )
                if message is None:
                    worker._waiting.raise_if_refused()
                    continue
                error = message.error()
                if error is None:
                    self._dispatch(task_of(message))
                elif not is_transient(error):
                    message = f"cannot read {worker.topic!r}: {error.str()}"
                    raise RequestFailed(worker._waiting.explain(message))
            self._wait_until_idle(None, STOP_SECONDS_MAX)
        finally:
            self._store()
            self._consumer.close()  # Commits the stored offsets.

    def handle(self, task: Task) -> None:
        self._worker._handler(task)

    def send_to_dead_letters(self, task: Task, headers: Sequence[HeaderPair]) -> None:
        """Write the message to the dead-letter topic, and wait until it is durable."""
        producer = self._worker._dead
        assert producer is not None
        producer.send(dead_letters.topic_of(task.topic), task.value, key=task.key, headers=headers)
        producer.flush()

    def mark_done(self, task: Task) -> None:
        """Record a handled task; the consumer commits the contiguous prefix soon."""
        place = (task.topic, task.partition)
        with self._lock:
            prefix = self._prefixes.get(place)
            next_offset = prefix.done(task.offset) if prefix is not None else None
            if next_offset is not None:
                self._next_offsets[place] = next_offset
            self._lock.notify_all()

    def mark_abandoned(self, task: Task) -> None:
        """Record a task that is not done: this consumer commits nothing from it on."""
        with self._lock:
            prefix = self._prefixes.get((task.topic, task.partition))
            if prefix is not None:
                prefix.abandon(task.offset)
            self._lock.notify_all()

    def _store(self) -> None:
        with self._lock:
            next_offsets, self._next_offsets = self._next_offsets, {}
        for (topic, partition), next_offset in next_offsets.items():
            position = confluent_kafka.TopicPartition(topic, partition, next_offset)
            try:
                self._consumer.store_offsets(offsets=[position])
            except confluent_kafka.KafkaException as error:
                # The partition belongs to another member now, which handles the messages again.
                logger.info("offset not stored: %s", error.args[0].str())

    def _dispatch(self, task: Task) -> None:
        place = (task.topic, task.partition)
        with self._lock:
            self._prefixes.setdefault(place, Prefix()).begin(task.offset)
        key = task.key if task.key is not None else task.partition
        queues = self._worker._queues
        chosen = queues[hash(key) % len(queues)]
        work = Work(self, task)
        paused = False
        while True:
            try:
                chosen.put(work, timeout=POLL_SECONDS)
                break
            except queue.Full:
                if self._worker._stopping.is_set():
                    self.mark_abandoned(task)
                    return
                # Keep polling while the processors are busy, or the group removes this consumer.
                self._consumer.pause(self._consumer.assignment())
                paused = True
                self._store()
                if (early := self._consumer.poll(0)) is not None:
                    self._early.append(early)
        if paused:
            self._consumer.resume(self._consumer.assignment())

    def _revoked(self, consumer: Any, places: list[Any]) -> None:
        """Give up revoked partitions: finish the started tasks and commit them."""
        revoked = {(place.topic, place.partition) for place in places}
        self._wait_until_idle(revoked, REVOKE_SECONDS_MAX)
        self._store()
        with self._lock:
            for place in revoked:
                self._prefixes.pop(place, None)
        try:
            consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as error:
            logger.info("no offsets committed at a revocation: %s", error.args[0].str())

    def _wait_until_idle(self, places: "set[_Place] | None", seconds_max: float) -> None:
        deadline = time.monotonic() + seconds_max
        with self._lock:
            while any(
                not prefix.is_idle
                for place, prefix in self._prefixes.items()
                if places is None or place in places
            ):
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                self._lock.wait(left)
