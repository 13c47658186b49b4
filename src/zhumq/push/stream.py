"""One consumer's stream: subscribes, delivers within the credit, takes answers, pings, parks."""

import asyncio
import contextlib
import logging
import uuid
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final

from zhumq.model.errors import BrokerError
from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.ack_deadlines import SILENT, AckDeadlines
from zhumq.push.answers import Answers
from zhumq.push.callers import Caller, not_permitted
from zhumq.push.delivery_buffer import DeliveryBuffer
from zhumq.push.frames import Refusal
from zhumq.push.ownership import Ownership
from zhumq.push.services import PushServices
from zhumq.push.sessions import Traffic
from zhumq.push.stream_partitions import PartitionClosed
from zhumq.push.subscribing import CREDITS_MAX, Accepted, accept
from zhumq.push.throttle import Throttle
from zhumq.push.wire import Wire, WireBroken, first_frame
from zhumq.security.login import Login
from zhumq.share.push_session import PushSession

logger = logging.getLogger(__name__)

LAST_FRAMES_SECONDS_MAX: Final = 1.0
TICK_SECONDS_MIN: Final = 0.02


class Stream:
    """A connected consumer. `run` lasts as long as the call."""

    def __init__(
        self, services: PushServices, wire: Wire, accepted: Accepted, login: Login
    ) -> None:
        self._services = services
        self._wire = wire
        self._accepted = accepted
        self._login = login
        self.instance = accepted.instance
        self.generation = accepted.generation
        self._ack_deadlines = AckDeadlines(
            accepted.session, services.settings, services.clock.monotonic_ms()
        )
        self._settled_session = accepted.session
        self._credit = accepted.credits
        self._paused = False
        self._wake = asyncio.Event()
        self._throttle = Throttle(
            services.quotas, login.principal, accepted.client_id, self._wake.set
        )
        self._control: deque[pb.ServerFrame] = deque()
        member = f"{accepted.session.consumer}.{uuid.uuid4().hex[:8]}"
        self._buffer = DeliveryBuffer(
            services, accepted, member, send=self.send, wake=self._wake.set
        )
        self._answers = Answers(
            member,
            self._buffer.stream_partitions,
            self._buffer.in_flight_deliveries,
            self.send,
            in_order=accepted.mode.is_ordered,
            lock_ms=self._buffer.lock_ms,
        )
        self._ownership = Ownership(
            services,
            accepted,
            self._buffer,
            self._answers,
            peer=wire.peer,
            send=self.send,
            end=self.end,
        )
        # Entering and leaving the timeout queue take several steps; the lock serializes them.
        self._changing = asyncio.Lock()
        self._ending: Refusal | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._runner: asyncio.Task[Any] | None = None
        self._is_closing = False
        self._closed = asyncio.Event()

    # Called by sessions

    @property
    def peer(self) -> str:
        return self._wire.peer

    @property
    def session(self) -> PushSession:
        return self._ack_deadlines.session

    @property
    def settled_session(self) -> PushSession:
        return self._settled_session

    @property
    def traffic(self) -> Traffic:
        return self._buffer.traffic

    def resume_session(self) -> None:
        self._spawn(self._resume())

    async def take_over(self) -> None:
        self.end(Refusal(pb.FENCED, "this consumer has connected again elsewhere"))
        await self._closed.wait()

    def refresh(self) -> None:
        self._spawn(self._refresh())

    def check_access(self) -> None:
        """A consumer that has lost its user or its rights gets nothing more."""
        user = self._login.user
        if user is not None and user not in self._services.image.security.users:
            self.end(login_ended("its user was deleted"))
        elif not self._accepted.is_permitted:
            self.end(not_permitted("this subscription"))

    def end_throttling(self) -> None:
        self._throttle.end()

    def end(self, why: Refusal) -> None:
        """End the stream with this code and message."""
        if self._ending is None:
            self._ending = why
            if self._runner is not None:
                # The client may not read, and then no more frames can be written.
                loop = asyncio.get_running_loop()
                loop.call_later(LAST_FRAMES_SECONDS_MAX, self._runner.cancel)
        self._wake.set()

    def send(self, frame: pb.ServerFrame) -> None:
        """Queue a small frame. The client's frames and the ping interval bound their number."""
        self._control.append(frame)
        self._wake.set()

    # Opening

    async def run(self) -> None:
        """Serve until the client half-closes, disconnects, or is refused."""
        self._runner = asyncio.current_task()
        self._services.sessions.attach(self)
        # Changes between the login and now were not reported to this stream.
        self.check_access()
        login_end = self._end_with_login()
        broken = False
        try:
            self.send(self._subscribed_frame())
            await self._open_first()
            reader = self._spawn(self._read())
            self._spawn(self._supervise())
            self._spawn(self._answers.run())
            await self._write(reader)
        except WireBroken:
            broken = True
        except asyncio.CancelledError:
            broken = True  # The call was cancelled, or its connection is gone.
            raise
        except Refusal as refusal:
            with contextlib.suppress(WireBroken):
                await self._wire.write(refusal.frame())
        finally:
            if login_end is not None:
                login_end.cancel()
            # The cleanup releases the consumer's deliveries even if the call is cancelled meanwhile.
            await asyncio.shield(self._services.endings.begin(self._close(broken=broken)))

    def _end_with_login(self) -> asyncio.TimerHandle | None:
        """As a connection of a Kafka client (KIP-368), which a client opens again with a new token."""
        if self._login.ends_at_ms is None:
            return None
        seconds = max(self._login.ends_at_ms - self._services.clock.now_ms(), 0) / 1000
        why = login_ended("it was for a limited time")
        return asyncio.get_running_loop().call_later(seconds, self.end, why)

    def _subscribed_frame(self) -> pb.ServerFrame:
        return pb.ServerFrame(
            subscribed=pb.Subscribed(
                session=f"{self.session.group}/{self.session.consumer}",
                consumer=self.session.consumer,
                broker_id=self._services.broker_id,
                ping_interval_ms=self._services.settings.ping_interval_ms,
                ack_timeout_ms=self._accepted.ack_timeout_ms,
                leaders=self._buffer.leaders(self._accepted.places),
                group="" if self._accepted.anonymous else self.session.group,
            )
        )

    async def _open_first(self) -> None:
        attachment = self._accepted.attachment
        if attachment is not None:
            self._buffer.member = self._answers.member = attachment.member_id
            self._buffer.epoch = attachment.member_epoch
        elif self._accepted.joins:
            self._ownership.join()
            return
        for place in self._accepted.places:
            await self._buffer.open(place, first_time=True)

    async def _refresh(self) -> None:
        async with self._changing:
            if self._ack_deadlines.is_active:
                await self._open_again()

    async def _open_again(self) -> None:
        """Open partitions after a retry or a change of leaders."""
        if self._is_closing:
            return  # The cleanup releases its partitions.
        try:
            if not self._accepted.joins:
                await self._buffer.open_missing()
                self._buffer.send_leaders()
            elif self._ownership.is_member:
                await self._ownership.refresh()
            else:
                self._ownership.join()
        except Refusal as refusal:
            self.end(refusal)

    async def _open_taken(self) -> None:
        try:
            await self._buffer.open_taken()
        except Refusal as refusal:
            self.end(refusal)

    # Writing

    async def _write(self, reader: "asyncio.Task[None]") -> None:
        while True:
            if reader.done():
                reader.result()  # WireBroken, or None: the client has half-closed.
                await self._answers.settled()
            while self._control:
                await self._wire.write(self._control.popleft())
            if self._ending is not None:
                raise self._ending
            if reader.done():
                return
            room = self._room()
            if room > 0 and not self._services.unread.has_room:
                await self._services.unread.wait_for_room()
                continue
            taken = self._buffer.take(room, self._throttle.bytes_max) if room > 0 else None
            if isinstance(taken, PartitionClosed):
                self._spawn(self._reopen(taken))
                self._buffer.stream_partitions.remove(taken.stream_partition.place)
            elif taken is not None:
                size = taken.ByteSize()
                self._throttle.record(size)
                async with self._services.unread.writing(self, size):
                    await self._wire.write(taken)
                del taken  # frees its memory: it can be large, and the next one may take long
            else:
                self._wake.clear()
                if not self._control and self._ending is None and not reader.done():
                    await self._wake.wait()

    def _room(self) -> int:
        """How many more messages may be sent to the consumer now."""
        if self._paused:
            return 0
        # What is acquired is sent before a pause: its locks would expire in it.
        if self._throttle.is_pausing and not self._buffer.stream_partitions.has_unsent:
            return 0
        held = self._buffer.in_flight_deliveries.count
        return self._ack_deadlines.room(
            self._credit - held, held, self._services.clock.monotonic_ms()
        )

    async def _reopen(self, closed: PartitionClosed) -> None:
        try:
            await self._buffer.reopen(closed)
        except Refusal as refusal:
            self.end(refusal)

    # Reading

    async def _read(self) -> None:
        try:
            while (frame := await self._wire.read()) is not None:
                await self._handle(frame)
        finally:
            self._wake.set()

    async def _handle(self, frame: pb.ClientFrame) -> None:
        kind = frame.WhichOneof("frame")
        clock = self._services.clock
        self._ack_deadlines.note_contact(clock.monotonic_ms())
        if not self._ack_deadlines.is_active:
            await self._end_retry(is_answer=kind == "answer")
        match kind:
            case "answer":
                deadline_ms = clock.monotonic_ms() + self._accepted.ack_timeout_ms
                await self._answers.take(frame.answer, deadline_ms)
            case "credit":
                if not 0 <= frame.credit.messages <= CREDITS_MAX:
                    self.end(_bad_credit(frame.credit.messages))
                self._credit = frame.credit.messages
            case "pause":
                self._paused = True
            case "resume":
                self._paused = False
                await self._resume()
            case "revoked":
                self._ownership.on_revoked()
            case "pong":
                pass  # The contact is noted above.
            case "subscribe":
                self.end(
                    Refusal(pb.INVALID, "this stream has subscribed already: open another stream")
                )
            case _:
                self.end(Refusal(pb.INVALID, "the frame is empty, or of a newer protocol"))
        self._wake.set()

    async def _end_retry(self, *, is_answer: bool) -> None:
        clock = self._services.clock
        async with self._changing:
            if self._ack_deadlines.end_retry(
                is_answer=is_answer, now_ms=clock.monotonic_ms(), wall_ms=clock.now_ms()
            ):
                await self._save()
                await self._open_again()

    # Deadlines

    async def _supervise(self) -> None:
        clock, ack_deadlines, in_flight_deliveries = (
            self._services.clock,
            self._ack_deadlines,
            self._buffer.in_flight_deliveries,
        )
        while True:
            now_ms = clock.monotonic_ms()
            ack_deadlines.note_check(now_ms)
            if ack_deadlines.ping_due(now_ms) and not any(
                each.HasField("ping") for each in self._control
            ):
                self.send(pb.ServerFrame(ping=pb.Ping(number=ack_deadlines.pings)))
            async with self._changing:
                reason = ack_deadlines.failure(
                    clock.monotonic_ms(), in_flight_deliveries.next_deadline_ms()
                )
                if reason is not None:
                    await self._on_failure(reason)
                elif self._ack_deadlines.is_active:
                    await self._open_taken()
            self._wake.set()
            check_ms = ack_deadlines.next_check_ms(
                clock.monotonic_ms(),
                in_flight_deliveries.next_deadline_ms(),
                self._accepted.ack_timeout_ms,
            )
            await asyncio.sleep(max((check_ms - clock.monotonic_ms()) / 1000, TICK_SECONDS_MIN))

    async def _on_failure(self, reason: str) -> None:
        """Move the session to the timeout queue or, after its last retry, to parked."""
        clock = self._services.clock
        self._ack_deadlines.fail(reason, clock.monotonic_ms(), clock.now_ms())
        await self._buffer.release_overdue(reason)
        if self._ack_deadlines.is_parked or reason == SILENT:
            # Other consumers get the messages and partitions of this one.
            await self._buffer.release_all(reason)
            await self._ownership.leave()
            if self._accepted.chooses:
                # Another consumer may choose them meanwhile; opening them again checks that.
                self._buffer.forget(self._buffer.stream_partitions.places)
        await self._save()
        session = self.session
        logger.info(
            "session %s/%s is %s: %s", session.group, session.consumer, session.state, reason
        )
        if self._ack_deadlines.is_parked:
            self.send(pb.ServerFrame(parked=pb.Parked(reason=reason)))

    async def _resume(self) -> None:
        clock = self._services.clock
        async with self._changing:
            if self._ack_deadlines.resume(clock.monotonic_ms(), clock.now_ms()):
                await self._save()
                await self._open_again()
        self._wake.set()

    async def _save(self) -> None:
        session = self.session
        if self._accepted.durable:
            try:
                await self._services.sessions.save(session)
            except BrokerError as error:
                logger.warning("session %s could not be saved: %s", session.consumer, error)
        self._settled_session = session

    # Closing

    async def _close(self, *, broken: bool) -> None:
        services = self._services
        self._is_closing = True
        self._throttle.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_FRAMES_SECONDS_MAX):
                await self._answers.settled()
        held = self._buffer.in_flight_deliveries.count
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._buffer.release_all("disconnected" if broken else "")
        await self._ownership.leave()
        self._buffer.stream_partitions.close()
        services.sessions.detach(self)
        self._closed.set()
        unsettled = held or self.session.retries
        if broken and self._accepted.durable and unsettled and not services.closing:
            services.sessions.on_disconnected(self.session)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None and not isinstance(failure, WireBroken):
            logger.error("a push stream failed", exc_info=failure)
            self.end(Refusal(pb.INTERNAL, "the broker failed; its log says why", retry=True))


def login_ended(why: str) -> Refusal:
    return Refusal(
        pb.LOGIN_ENDED, f"the login of this stream has ended ({why}): log in again", retry=True
    )


def _bad_credit(credit: int) -> Refusal:
    return Refusal(pb.CREDIT_INVALID, f"credit {credit} is not between 0 and {CREDITS_MAX}")


async def serve_stream(services: PushServices, wire: Wire, caller: Caller, login: Login) -> None:
    """Serve one call from its first frame to its end."""
    try:
        first = await first_frame(wire.read, "subscribe")
        accepted = await accept(services, first.subscribe, caller)
    except Refusal as refusal:
        with contextlib.suppress(WireBroken):
            await wire.write(refusal.frame())
        return
    except WireBroken:
        return
    await Stream(services, wire, accepted, login).run()
