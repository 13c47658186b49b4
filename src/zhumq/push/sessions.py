"""The sessions of push consumers: connected, waiting for a reconnect, or parked."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

from zhumq.coordinators.delivery_seam import Deliveries
from zhumq.host.clock import Clock
from zhumq.model.errors import BrokerError
from zhumq.push.frames import Refusal
from zhumq.share.push_session import (
    PushSession,
    SessionPolicy,
    SessionState,
    answered,
    ended,
    resumed,
    unanswered,
)

logger = logging.getLogger(__name__)

RELOAD_SECONDS: Final = 1.0  # between attempts to read the state topic after a start
ORPHANED_MS: Final = (
    15_000  # after its retry was due: the broker that counts retries is not that late
)

SessionKey = tuple[str, str]  # group and consumer


@dataclass(slots=True, kw_only=True)
class Traffic:
    """Message counts of a stream."""

    in_flight: int = 0
    delivered: int = 0
    redelivered: int = 0


class LiveStream(Protocol):
    """A connected consumer, as far as sessions use it."""

    @property
    def instance(self) -> str: ...

    @property
    def generation(self) -> int:
        """Of two streams of one instance, the higher one stays."""

    @property
    def session(self) -> PushSession: ...

    @property
    def settled_session(self) -> PushSession:
        """The session as it was last saved: what a broker that restarts now would know."""

    @property
    def traffic(self) -> Traffic: ...

    def end(self, why: Refusal) -> None:
        """End the stream with this code and message."""

    def refresh(self) -> None:
        """Handle a new metadata image: this broker may lead other partitions."""

    def check_access(self) -> None:
        """Users or ACLs have changed: end the stream if its consumer has lost its user or its rights."""

    def end_throttling(self) -> None:
        """Quotas have changed: what was sent before does not delay what comes next."""

    def resume_session(self) -> None:
        """Resume a parked consumer at an operator's request."""

    async def take_over(self) -> None:
        """End this stream because its consumer has connected again. Waits until it has ended."""


class Sessions:
    """The sessions of this broker's consumers. Only sessions that are not active are persisted:
    an active one has no state beyond its group's position."""

    def __init__(
        self,
        deliveries: Deliveries,
        clock: Clock,
        policy: SessionPolicy,
        *,
        delivers: Callable[[PushSession], bool],
    ) -> None:
        self._deliveries = deliveries
        self._clock = clock
        self._policy = policy
        # Whether this broker leads a partition of the session. Its consumer has no reason to return to another one.
        self._delivers = delivers
        self.streams: set[LiveStream] = set()
        # Sessions that wait for their consumer to come back, each with its timer.
        self._absent: dict[SessionKey, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether a disconnected consumer is waited for."""
        return bool(self._absent or self._tasks)

    async def restore(self) -> None:
        """After a start: resume the timers of sessions that wait for a reconnect."""
        for session in await self._deliveries.sessions():
            if session.state is SessionState.RETRYING and self._stream_of(session) is None:
                self._wait_for(session, is_saved=True)

    async def count_orphans(self) -> None:
        """Count a retry of each session that no broker counts any more, because the one that did has died, or has lost
        its partitions. That is for the broker with the session's shard."""
        due_before_ms = self._clock.now_ms() - ORPHANED_MS
        for listed in await self._deliveries.sessions():
            if not self._is_orphan(listed, due_before_ms):
                continue
            # Its consumer may have come back to another broker since the list was made.
            session = await self.find(listed.group, listed.consumer)
            if session is not None and self._is_orphan(session, due_before_ms):
                now_ms = self._clock.now_ms()
                updated = unanswered(session, session.reason, self._policy, now_ms)
                await self.save(updated)
                logger.info("%s, which no broker counted, is %s", _name(updated), updated.state)

    def _is_orphan(self, session: PushSession, due_before_ms: int) -> bool:
        return (
            session.state is SessionState.RETRYING
            and session.retry_at_ms < due_before_ms
            and _key(session) not in self._absent
            and self._stream_of(session) is None
        )

    async def find(self, group: str, consumer: str) -> PushSession | None:
        """The persisted session, if there is one."""
        for session in await self._deliveries.sessions(group):
            if session.consumer == consumer:
                return session
        return None

    def attach(self, stream: LiveStream) -> None:
        """Register the stream of a connected consumer and cancel its session's timer."""
        self.streams.add(stream)
        timer = self._absent.pop(_key(stream.session), None)
        if timer is not None:
            timer.cancel()

    def detach(self, stream: LiveStream) -> None:
        self.streams.discard(stream)

    async def save(self, session: PushSession) -> None:
        """Persist a change of state. An active session is deleted: it has nothing to keep."""
        if session.state is SessionState.ACTIVE:
            session = ended(session, self._clock.now_ms())
        await self._deliveries.save_session(session)

    def on_disconnected(self, session: PushSession) -> None:
        """Wait for a consumer whose connection broke while it held messages, then park its session."""
        if session.state is SessionState.PARKED:
            return
        # A stream saves what it changes: a session that is retrying is saved as it is.
        is_saved = session.state is SessionState.RETRYING
        self._spawn(self._count_absence(session, is_saved=is_saved))

    async def resume(self, group: str, consumer: str) -> PushSession | None:
        """Resume a session, as `zhumq session resume` asks. None: this broker has no such session."""
        for stream in self.streams:
            if _key(stream.session) == (group, consumer):
                stream.resume_session()
                return stream.session
        session = await self.find(group, consumer)
        if session is None:
            return None
        timer = self._absent.pop(_key(session), None)
        if timer is not None:
            timer.cancel()
        active = resumed(session, self._clock.now_ms())
        await self.save(active)
        return active

    async def listed(self, group: str) -> list[tuple[PushSession, LiveStream | None]]:
        """Every session of a group, or of all groups: connected and persisted ones."""
        found: dict[SessionKey, tuple[PushSession, LiveStream | None]] = {}
        for session in await self._deliveries.sessions(group or None):
            found[_key(session)] = (session, None)
        for stream in self.streams:
            if not group or stream.session.group == group:
                found[_key(stream.session)] = (stream.settled_session, stream)
        return list(found.values())

    async def close(self) -> None:
        for timer in self._absent.values():
            timer.cancel()
        self._absent.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _count_absence(self, session: PushSession, *, is_saved: bool) -> None:
        """Count one more wait in which the consumer did not reconnect. `is_saved`: this broker has saved the session
        as it is here."""
        try:
            if not await self._is_absent(session, is_saved=is_saved):
                return
        except BrokerError as error:
            logger.warning("%s could not be read: %s", _name(session), error)
            self._wait_for(session, is_saved=is_saved, delay_s=RELOAD_SECONDS)
            return
        updated = unanswered(session, "disconnected", self._policy, self._clock.now_ms())
        try:
            await self.save(updated)
            is_saved = True
        except BrokerError as error:
            logger.warning("%s could not be saved: %s", _name(session), error)
            is_saved = False
        logger.info("%s is %s", _name(updated), updated.state)
        if updated.state is SessionState.RETRYING:
            self._wait_for(updated, is_saved=is_saved)

    async def _is_absent(self, session: PushSession, *, is_saved: bool) -> bool:
        """Whether the consumer is still missing here. It may have gone on at another broker, which then has changed
        the saved session, or leads the partitions now: parking it would refuse it there."""
        if self._stream_of(session) is not None:
            return False
        saved = await self.find(session.group, session.consumer) if is_saved else None
        if is_saved and (saved is None or _progress(saved) != _progress(session)):
            return False
        if not self._delivers(session):
            if saved is not None:
                await self.save(ended(saved, self._clock.now_ms()))
            return False
        return self._stream_of(session) is None

    def _wait_for(
        self, session: PushSession, *, is_saved: bool, delay_s: float | None = None
    ) -> None:
        """Count again when the session's time has come, or after `delay_s`."""
        if delay_s is None:
            delay_s = max(session.retry_at_ms - self._clock.now_ms(), 0) / 1000

        def due() -> None:
            self._absent.pop(_key(session), None)
            self._spawn(self._count_absence(session, is_saved=is_saved))

        self._absent[_key(session)] = asyncio.get_running_loop().call_later(delay_s, due)

    def _stream_of(self, session: PushSession) -> LiveStream | None:
        for stream in self.streams:
            if _key(stream.session) == _key(session):
                return stream
        return None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def reconnected(session: PushSession | None, fresh: PushSession, now_ms: int) -> PushSession:
    """The session of a new connection: the stored one, made active, or a fresh one."""
    return fresh if session is None else answered(session, now_ms)


def _key(session: PushSession) -> SessionKey:
    return session.group, session.consumer


def _progress(session: PushSession) -> tuple[SessionState, int, int]:
    """How far a session's retries are."""
    return session.state, session.retries, session.retry_at_ms


def _name(session: PushSession) -> str:
    return f"session {session.consumer} of group {session.group}"
