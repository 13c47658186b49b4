"""The sessions of push consumers: who is connected, who is waited for, who is parked."""

import asyncio
import logging
from collections.abc import Coroutine
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

RELOAD_SECONDS: Final = 1.0  # until the state topic can be read after a start

SessionKey = tuple[str, str]  # group and consumer


@dataclass(slots=True, kw_only=True)
class Traffic:
    """What a stream has done so far."""

    in_flight: int = 0
    delivered: int = 0
    redelivered: int = 0


class LiveStream(Protocol):
    """A connected consumer, as its session sees it."""

    @property
    def instance(self) -> str: ...

    @property
    def session(self) -> PushSession: ...

    @property
    def traffic(self) -> Traffic: ...

    def end(self, why: Refusal) -> None:
        """The stream is over, with these words."""

    def refresh(self) -> None:
        """The cluster's picture has changed: what this broker leads may have, too."""

    def resume_session(self) -> None:
        """An operator says that a parked consumer shall go on."""

    async def take_over(self) -> None:
        """The same consumer is back on another connection: end this one. Done when it has ended."""


class Sessions:
    """Keeps the sessions of this broker's consumers. Only sessions that are not active are written down:
    an active one without a connection has nothing that its group's position does not say."""

    def __init__(self, deliveries: Deliveries, clock: Clock, policy: SessionPolicy) -> None:
        self._deliveries = deliveries
        self._clock = clock
        self._policy = policy
        self.streams: set[LiveStream] = set()
        # Sessions that wait for their consumer to come back, each with its timer.
        self._absent: dict[SessionKey, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def restore(self) -> None:
        """After a start: go on waiting for those that were being waited for."""
        for session in await self._deliveries.sessions():
            if session.state is SessionState.RETRYING and self._stream_of(session) is None:
                self._wait_for(session)

    async def find(self, group: str, consumer: str) -> PushSession | None:
        """The session as it was written down, if it was."""
        for session in await self._deliveries.sessions(group):
            if session.consumer == consumer:
                return session
        return None

    def attach(self, stream: LiveStream) -> None:
        """The consumer is here: nobody waits for it any more."""
        self.streams.add(stream)
        timer = self._absent.pop(_key(stream.session), None)
        if timer is not None:
            timer.cancel()

    def detach(self, stream: LiveStream) -> None:
        self.streams.discard(stream)

    async def save(self, session: PushSession) -> None:
        """Write a change of state down. An active session is forgotten, as there is nothing to keep."""
        if session.state is SessionState.ACTIVE:
            session = ended(session, self._clock.now_ms())
        await self._deliveries.save_session(session)

    def gone(self, session: PushSession) -> None:
        """The connection broke while the consumer held messages: wait for it, then park it."""
        if session.state is SessionState.PARKED:
            return
        self._spawn(self._miss(session))

    async def resume(self, group: str, consumer: str) -> PushSession | None:
        """What `zhumq session resume` does. None: there is no such session here."""
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
        awake = resumed(session, self._clock.now_ms())
        await self.save(awake)
        return awake

    async def listed(self, group: str) -> list[tuple[PushSession, LiveStream | None]]:
        """Every session of a group, or of all: connected ones, and those written down."""
        found: dict[SessionKey, tuple[PushSession, LiveStream | None]] = {}
        for session in await self._deliveries.sessions(group or None):
            found[_key(session)] = (session, None)
        for stream in self.streams:
            if not group or stream.session.group == group:
                found[_key(stream.session)] = (stream.session, stream)
        return list(found.values())

    async def close(self) -> None:
        for timer in self._absent.values():
            timer.cancel()
        self._absent.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _miss(self, session: PushSession) -> None:
        """One more time that the consumer was not there."""
        if self._stream_of(session) is not None:
            return  # It is back.
        missed = unanswered(session, "disconnected", self._policy, self._clock.now_ms())
        try:
            await self.save(missed)
        except BrokerError as error:
            logger.warning(
                "session %s of %s is not kept: %s", session.consumer, session.group, error
            )
        logger.info("session %s of group %s is %s", missed.consumer, missed.group, missed.state)
        if missed.state is SessionState.RETRYING:
            self._wait_for(missed)

    def _wait_for(self, session: PushSession) -> None:
        delay_s = max(session.retry_at_ms - self._clock.now_ms(), 0) / 1000

        def due() -> None:
            self._absent.pop(_key(session), None)
            self._spawn(self._miss(session))

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


def came_back(session: PushSession | None, fresh: PushSession, now_ms: int) -> PushSession:
    """The session that a new connection has: the one it left, awake, or a fresh one."""
    return fresh if session is None else answered(session, now_ms)


def _key(session: PushSession) -> SessionKey:
    return session.group, session.consumer
