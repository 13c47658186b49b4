"""The push consumer: an async iterator, batches, or a callback over pushed messages; reconnects by itself."""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from typing import Any, Final, Literal, Self

from zhumq.client.attachments import Attachments
from zhumq.client.codec import Codec, OnUndecodable
from zhumq.client.errors import (
    AnswerRefused,
    ClientError,
    RequestFailed,
    SessionParked,
    SubscriptionRefused,
)
from zhumq.client.expiry import Expiry, OnExpired
from zhumq.client.handling import Handler, InHand, handle_message
from zhumq.client.link import Credentials, Link, close_link
from zhumq.client.message import K, Message, MessageBatch, Typed, Unread, V
from zhumq.client.middleware import Middleware
from zhumq.client.push_addresses import PushAddresses
from zhumq.client.push_credentials import channel_credentials
from zhumq.client.security import Security, as_security
from zhumq.client.serializers import Serializer
from zhumq.client.subscribe_frame import MODES, Topics, has_partitions, start_frame, topic_choices
from zhumq.client.waiting import Waiting
from zhumq.model.isolation import Isolation, IsolationLevel
from zhumq.protocol.push import push_pb2 as pb

Mode = Literal["ptp", "ptp-shared", "psb"]

DEFAULT_CREDITS: Final = 1_000
BACKOFF_SECONDS_MIN: Final = 0.1
BACKOFF_SECONDS_MAX: Final = 2.0
REVOKE_SECONDS_MAX: Final = 3.0  # how long a revocation waits for a running handler
REVOKE_CHECK_SECONDS: Final = 0.005
REFUSALS_KEPT_MAX: Final = 100


class PushConsumer(Typed[V, K]):
    """A consumer to which the broker pushes messages.

    `mode` is `"ptp"` (one consumer per partition, in order), `"ptp-shared"` (consumers compete for
    messages) or `"psb"` (this group gets everything). At most `credits` messages are held unanswered.

    As an iterator, a message counts as processed when the next one is asked for, or the block is left
    without an exception, unless it was answered before; with `auto_ack=False` every message has to be
    answered by the program. Leaving the block releases the messages that were not processed.

    >>> import asyncio, zhumq
    >>> async def read() -> list[bytes]:
    ...     values = []
    ...     async with zhumq.PushConsumer("greetings", group="docs", bootstrap=bootstrap) as consumer:
    ...         async for message in consumer:
    ...             values.append(message.value)
    ...             if len(values) == 2:
    ...                 break
    ...     return values
    >>> with zhumq.Producer(bootstrap) as producer:
    ...     producer.send("greetings", b"hello")
    ...     producer.send("greetings", b"world")
    >>> asyncio.run(read())
    [b'hello', b'world']
    """

    def __init__(
        self,
        topics: Topics,
        *,
        group: str | None = None,
        mode: Mode | None = None,
        bootstrap: str = "127.0.0.1:9092",
        push: str | None = None,
        start: Literal["earliest", "latest"] | int = "earliest",
        start_time_ms: int | None = None,
        restart: bool = False,
        credits: int = DEFAULT_CREDITS,  # noqa: A002 (the protocol's word)
        auto_ack: bool = True,
        ack_timeout_ms: int = 0,
        max_deliveries: int = 0,
        isolation: IsolationLevel = "read_committed",
        filter: str = "",  # noqa: A002 (the protocol's word)
        on_expired: OnExpired = "drop",
        consumer: str = "",
        resume: bool = False,
        value: Serializer[V] | None = None,
        key: Serializer[K] | None = None,
        on_undecodable: OnUndecodable = "raise",
        middleware: Sequence[Middleware] = (),
        security: Security = None,
        credentials: Credentials = None,
    ) -> None:
        """Does not connect: `async with` does that.

        `topics` is a name, names, or names with partitions: `{"orders": [0, 2]}`. `start` is where a
        group without a position begins; for psb an offset or `start_time_ms` always applies. Without a
        `group`, ptp joins the one that reads the topic, and psb reads alone.
        `max_deliveries` is how often a message is delivered before it becomes a dead letter; 0: the
        broker's setting. `consumer` is a name that stays the same over restarts: with it, the broker
        keeps the session while the consumer is disconnected. `isolation`: read_uncommitted also delivers
        messages of open and of aborted transactions. `filter`: the broker delivers only messages that pass, and is done
        with the others. `on_expired` is what becomes of messages whose `zhumq-ttl-ms` is over: drop, dead-letter or
        deliver. `resume` continues a parked session.
        `security` is a ClientSecurity, or settings with Kafka's names; gRPC's `credentials` override it.
        `value` and `key` are serializers, and `on_undecodable` is as in Consumer; so is `middleware`. Batches have none.
        """
        self._mode = mode or ("psb" if group is None else "ptp")
        if self._mode not in MODES:
            raise ValueError(f"mode is ptp, ptp-shared or psb, not {mode!r}")
        self._codec = Codec(value, key, on_undecodable)
        secured = as_security(security)
        credentials = credentials or channel_credentials(secured)
        self._addresses = PushAddresses(bootstrap, push, secured)
        self._waiting = Waiting(push or bootstrap)
        # The group assigns partitions to a member; a consumer that chooses them connects to their leaders.
        self._joins = self._mode == "ptp" and not has_partitions(topics)
        self._credentials = credentials
        self._auto_ack = auto_ack
        self._expiry = Expiry(on_expired)
        self.expired = self._expiry.counts
        self._credits = credits
        self._subscribe = pb.Subscribe(
            topics=topic_choices(topics),
            mode=MODES[self._mode],
            group=group or "",
            consumer=consumer,
            start=start_frame(start, start_time_ms),
            restart=restart,
            credits=credits,
            filter=filter,
            ack_timeout_ms=ack_timeout_ms,
            max_deliveries=max_deliveries,
            read_uncommitted=Isolation.named(isolation) is Isolation.READ_UNCOMMITTED,
            resume=resume,
            client_id="zhumq-python",
            instance=uuid.uuid4().hex,
        )
        self._arrived: deque[MessageBatch] = deque()
        self._changed = asyncio.Event()
        self._links: dict[str, tuple[Link, asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._attachments = Attachments(self, self._subscribe, credentials)
        self._failure: ClientError | None = None
        self._parked: Link | None = None
        self._served = False  # A broker has accepted the subscription once.
        self._closing = False
        self._middleware = middleware
        self._in_hand: InHand[V, K] = InHand(middleware, auto_ack=auto_ack)
        self._rest = Unread(())  # of the batch that is being iterated over
        self.assignment: frozenset[tuple[str, int]] = frozenset()
        self.ack_timeout_ms = ack_timeout_ms  # the broker's value, once subscribed
        # The newest refused answers: the broker delivers those messages again.
        self.refused_answers: deque[AnswerRefused] = deque(maxlen=REFUSALS_KEPT_MAX)
        self._lost = 0  # messages whose answers did not count, since the last flush

    # Opening and closing

    async def __aenter__(self) -> Self:
        await self._addresses.look_up()
        self._connect(self._addresses.known[0], home=True)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._in_hand.finish()  # The program left the loop with `break` after this message.
        else:
            self._in_hand.abandon(error)
        await self.close()

    async def close(self) -> None:
        """Settle the answers given so far, release the other messages, and disconnect."""
        if self._closing:
            return
        self._closing = True
        self._changed.set()
        links = list(self._links.values())
        await asyncio.gather(
            self._attachments.close(), *(close_link(link, task) for link, task in links)
        )
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Reading

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[V, K]:
        self._in_hand.finish()
        while True:
            for each in self._rest:
                if (message := self._codec.accept(each)) is not None:
                    return self._in_hand.take(message)
            batch = await self._next()
            if batch is None:
                raise StopAsyncIteration
            self._rest = Unread(batch)

    async def batches(self) -> AsyncIterator[MessageBatch]:
        """Messages in the batches they arrive in, the fastest way to read. Answer batches or messages."""
        while True:
            batch = await self._next()
            if batch is None:
                return
            yield batch
            if self._auto_ack:
                batch.ack()

    async def run(self, handler: Handler[V, K], *, concurrency: int = 1) -> None:
        """Call a handler for every message until cancelled or closed.

        If the handler returns, the message is acked; if it raises, the message is nacked with the error
        as the reason. A message that the handler has answered itself stays as answered.
        """
        if concurrency < 1:
            raise ValueError("concurrency is at least 1")
        gate = asyncio.Semaphore(concurrency)
        running: set[asyncio.Task[None]] = set()
        try:
            while (batch := await self._next()) is not None:
                for each in Unread(batch):
                    if (message := self._codec.accept(each)) is None:
                        continue
                    await gate.acquire()
                    task = asyncio.create_task(handle_message(handler, message, self._middleware))
                    running.add(task)
                    task.add_done_callback(running.discard)
                    task.add_done_callback(lambda _: gate.release())
                    if concurrency == 1:
                        await task
        finally:
            await asyncio.gather(*running, return_exceptions=True)

    async def poll(self, seconds: float) -> list[Message[V, K]]:
        """The messages that are there or arrive within this time. Answer every one of them."""
        found = self._codec.accept_all(self._rest)
        if not found and (batch := await self.next_batch(seconds)) is not None:
            self._rest = Unread(batch)
            found = self._codec.accept_all(self._rest)
        return found

    async def next_batch(self, seconds: float) -> MessageBatch | None:
        """The next batch, if it is there or arrives within this time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._next()
        except TimeoutError:
            return None

    async def subscribed(self, seconds: float) -> None:
        """Wait until a broker has accepted the subscription. Raises the reason if none does in this time."""
        try:
            async with asyncio.timeout(seconds):
                while self._failure is None and not self._served:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            message = f"no broker accepted the subscription within {seconds:.0f} s"
            raise RequestFailed(self._waiting.explain(message)) from None
        if self._failure is not None:
            raise self._failure

    def set_current(self, message: Message[Any, Any]) -> None:
        """Set the message that the program works on: a revocation of its partition waits for its answer."""
        self._in_hand.message = message

    @property
    def group(self) -> str:
        """The name of the group, once subscribed: the given one, or the one that the broker chose."""
        return self._subscribe.group

    @property
    def waiting(self) -> "deque[MessageBatch]":
        """Batches that have arrived and were not read yet."""
        return self._arrived

    async def flush(self) -> int:
        """Wait until the answers given so far are durable. Returns how many messages had their answer
        lost or refused since the last flush: the broker delivers them again."""
        links = [link for link, _ in self._links.values()]
        await asyncio.gather(*(link.settled() for link in (*links, *self._attachments)))
        lost, self._lost = self._lost, 0
        return lost

    # Flow

    def pause(self) -> None:
        """Stop deliveries until `resume()`."""
        self._send_all(pb.ClientFrame(pause=pb.Pause()))

    def resume(self) -> None:
        """Continue after a pause, or after the broker has parked this session."""
        self._parked = None
        self._send_all(pb.ClientFrame(resume=pb.Resume()))

    def set_credits(self, credits: int) -> None:  # noqa: A002 (the protocol's word)
        """Set how many unanswered messages this consumer may hold."""
        self._credits = credits
        self._share_credits()

    async def _next(self) -> MessageBatch | None:
        """The next batch that is not stale; None once closed."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self._closing:
                return None
            while self._arrived:
                batch = self._arrived.popleft()
                # A batch may be stale only from some offset on; then each message is checked.
                if not batch.origin.is_stale(batch.round, batch.ranges[-1].last_offset) or (
                    len(batch) and not batch.origin.is_stale(batch.round, batch[0].offset)
                ):
                    return batch
            if self._parked is not None:
                self._parked = None
                raise SessionParked(
                    "the broker has parked this session because this consumer did not answer:"
                    " call resume() to continue"
                )
            self._changed.clear()
            await self._changed.wait()

    # Links

    def _connect(self, address: str, *, home: bool) -> None:
        if address in self._links or self._closing:
            return
        link = Link(address, self._subscription(), self, self._credentials)
        task = asyncio.create_task(self._keep_connected(link, home=home))
        self._links[address] = (link, task)
        self._share_credits()

    def _subscription(self) -> "pb.Subscribe":
        """For the next stream, the newest one of this consumer."""
        self._subscribe.generation += 1
        subscribe = pb.Subscribe()
        subscribe.CopyFrom(self._subscribe)
        subscribe.credits = self._share(len(self._links) + 1)
        return subscribe

    async def _keep_connected(self, link: Link, *, home: bool) -> None:
        """Connect, and reconnect with backoff, until closed or finally refused."""
        backoff_s = BACKOFF_SECONDS_MIN
        served = False
        while True:
            refused = await link.run()
            if self._closing:
                return
            if link.was_open:
                served = True
                backoff_s = BACKOFF_SECONDS_MIN
                # A reconnect continues at the group's position and ignores the start.
                if self._mode == "psb":
                    self._subscribe.ClearField("start")
                self._subscribe.restart = False
                self._subscribe.resume = False
            # After a lost connection the conflict may be with this consumer's own old stream.
            conflict = refused is not None and refused.code == pb.GROUP_CONFLICT and not served
            if refused is not None and (conflict or not refused.retry):
                self._fail(refused)
                return
            if link.refusal is not None:
                self._end(link.refusal)
                return
            self._waiting.note(link.failure if refused is None else refused.message)
            # A broker may restart with another address.
            self._spawn(self._addresses.refresh())
            # The new link is registered before the pause, so that no other task connects to its broker.
            following = self._replace(link, home=home)
            if following is None:
                return
            link = following
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)

    def _replace(self, lost: Link, *, home: bool) -> Link | None:
        """The next link to try; None if there is one to that broker already. Messages of the lost link
        cannot be answered: they are delivered again."""
        del self._links[lost.address]
        if home:
            address = self._addresses.after(lost.address, taken=self._links)
        else:
            address = self._addresses.of_broker(lost.broker_id, lost.address)
            if address in self._links:
                return None
        if self._joins:
            # A member that loses its home stream loses its assignment; the next home stream brings a new one.
            self.assignment = frozenset()
            self._spawn(self._attachments.close())
        link = Link(address, self._subscription(), self, self._credentials)
        if not home:
            link.broker_id = lost.broker_id
        current = asyncio.current_task()
        assert current is not None
        self._links[address] = (link, current)
        return link

    def _fail(self, refused: "pb.Refused") -> None:
        if refused.code == pb.SESSION_PARKED:
            self._end(SessionParked(refused.message))
        else:
            self._end(SubscriptionRefused(pb.Code.Name(refused.code), refused.message))

    def _end(self, failure: ClientError) -> None:
        self._failure = failure
        self._changed.set()

    def _share(self, links: int) -> int:
        return self._credits if self._credits <= 0 else max(self._credits // max(links, 1), 1)

    def _share_credits(self) -> None:
        share = self._share(len(self._links))
        for link, _ in self._links.values():
            if link.is_open and share > 0:
                link.send(pb.ClientFrame(credit=pb.Credit(messages=share)))

    def _send_all(self, frame: "pb.ClientFrame") -> None:
        for link in (*(link for link, _ in self._links.values()), *self._attachments):
            link.send(frame)

    # Called by links

    def on_batch(self, link: Link, batch: MessageBatch) -> None:
        del link
        batch.selection = self._expiry
        self._arrived.append(batch)
        self._changed.set()

    def on_answer_refused(self, message: str) -> None:
        self.refused_answers.append(AnswerRefused(message))

    def on_answers_lost(self, messages: int) -> None:
        self._lost += messages

    def on_frame(self, link: Link, frame: "pb.ServerFrame") -> None:
        match frame.WhichOneof("frame"):
            case "subscribed":
                self._served = True
                self.ack_timeout_ms = frame.subscribed.ack_timeout_ms
                self._changed.set()
                self._share_credits()
                if not self._subscribe.group:
                    # The broker chose the group: every stream of this consumer joins it.
                    self._subscribe.group = frame.subscribed.group
                if not self._joins:
                    self._follow(frame.subscribed.leaders)
            case "moved":
                if not self._joins:
                    self._follow(frame.moved.leaders)
            case "assigned":
                link.clear_ignored()
                self.assignment = frozenset(
                    (each.topic, each.partition) for each in frame.assigned.partitions
                )
                share = self._share(len({each.address for each in frame.assigned.partitions}))
                self._spawn(self._attachments.follow(link, frame.assigned, share))
                self._changed.set()
            case "revoke":
                self._spawn(self._give_up(link, frame.revoke.partitions))
            case "parked":
                self._parked = link
                self._changed.set()

    def _follow(self, leaders: "Iterable[pb.Leader]") -> None:
        """Open a stream to every broker that leads a subscribed partition."""
        for address in sorted({each.address for each in leaders if each.address}):
            self._connect(address, home=False)

    async def _give_up(self, link: Link, partitions: "Iterable[pb.Leader]") -> None:
        """Give up revoked partitions: finish the current message, drop those that were not begun."""
        gone = {(each.topic, each.partition) for each in partitions}
        for each in (link, *self._attachments):
            each.ignore(gone)
        self._arrived = deque(
            batch for batch in self._arrived if (batch.topic, batch.partition) not in gone
        )
        self.assignment = self.assignment - gone
        await self._attachments.give_up(gone)
        deadline = asyncio.get_running_loop().time() + REVOKE_SECONDS_MAX
        while (current := self._in_hand.message) is not None and (
            current.topic,
            current.partition,
        ) in gone:
            if current.answered or asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(REVOKE_CHECK_SECONDS)
        await link.settled()
        link.send(pb.ClientFrame(revoked=pb.Revoked()))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
