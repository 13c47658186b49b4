"""A consumer whose connection broke is parked after its retries, but never by a broker that it has left for another."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from manual_time import ManualClock
from zhumq.host.clock import SystemClock
from zhumq.model.errors import CoordinatorNotAvailable
from zhumq.push.sessions import ORPHANED_MS, Sessions
from zhumq.share.push_session import PushSession, SessionPolicy, SessionState
from zhumq.share.subscription import SubscriptionMode

POLICY = SessionPolicy(retries_max=2, backoff_ms=20)
SESSION = PushSession(group="g", consumer="c", topic="t", mode=SubscriptionMode.PSB)


class KeptSessions:
    """The persisted sessions, and every state that was saved."""

    def __init__(self) -> None:
        self.by_consumer: dict[str, PushSession] = {}
        self.saved: list[SessionState] = []
        self.failures = 0
        self.on_saved: Callable[[PushSession], None] = lambda _: None

    async def save_session(self, session: PushSession) -> None:
        if self.failures:
            self.failures -= 1
            raise CoordinatorNotAvailable("the shard is moving")
        self.saved.append(session.state)
        self.by_consumer.pop(session.consumer, None)
        if session.state is not SessionState.ENDED:
            self.by_consumer[session.consumer] = session
        self.on_saved(session)

    async def sessions(self, group: str | None = None) -> list[PushSession]:
        return [each for each in self.by_consumer.values() if group in (None, each.group)]


def absent(
    kept: KeptSessions,
    *,
    session: PushSession = SESSION,
    delivers: Callable[[], bool] = lambda: True,
    expected: list[SessionState],
) -> PushSession | None:
    """The persisted session once these states were saved and no timer is left."""

    async def scenario() -> PushSession | None:
        deliveries: Any = kept
        sessions = Sessions(deliveries, SystemClock(), POLICY, delivers=lambda _: delivers())
        sessions.on_disconnected(session)
        async with asyncio.timeout(10):
            while kept.saved != expected or sessions.is_waiting:
                await asyncio.sleep(0)
        await sessions.close()
        return kept.by_consumer.get("c")

    return asyncio.run(scenario())


RETRYING, PARKED, ENDED = SessionState.RETRYING, SessionState.PARKED, SessionState.ENDED


def test_it_is_parked_after_the_last_retry() -> None:
    session = absent(KeptSessions(), expected=[RETRYING, RETRYING, PARKED])
    assert session is not None
    assert session.reason == "disconnected"


def test_a_broker_that_leads_none_of_its_partitions_counts_nothing() -> None:
    assert absent(KeptSessions(), delivers=lambda: False, expected=[]) is None


@pytest.mark.parametrize("elsewhere", ["active", "retrying"])
def test_a_consumer_that_went_on_at_another_broker_is_left_to_that_one(elsewhere: str) -> None:
    kept = KeptSessions()
    theirs = replace(SESSION, state=RETRYING, retries=1, retry_at_ms=1)

    def other_broker_saves(_: PushSession) -> None:
        kept.by_consumer = {} if elsewhere == "active" else {"c": theirs}

    kept.on_saved = other_broker_saves
    assert absent(kept, expected=[RETRYING]) == (None if elsewhere == "active" else theirs)


def test_a_session_that_could_not_be_saved_is_counted_on() -> None:
    kept = KeptSessions()
    kept.failures = 1
    session = absent(kept, expected=[RETRYING, PARKED])
    assert session is not None


def test_the_leadership_may_go_while_it_waits() -> None:
    kept = KeptSessions()
    # It leads when the absence begins, and not any more when it is to be counted again.
    assert absent(kept, delivers=lambda: not kept.saved, expected=[RETRYING, ENDED]) is None


def test_a_session_that_was_retrying_before_is_forgotten_with_the_leadership() -> None:
    kept = KeptSessions()
    kept.by_consumer["c"] = retrying = replace(SESSION, state=RETRYING, retries=1, retry_at_ms=1)
    assert absent(kept, session=retrying, delivers=lambda: False, expected=[ENDED]) is None


def counted(kept: KeptSessions, *at_ms: int) -> PushSession | None:
    """The persisted session after a broker has looked for orphans at these times."""

    async def scenario() -> PushSession | None:
        deliveries: Any = kept
        clock = ManualClock()
        sessions = Sessions(deliveries, clock, POLICY, delivers=lambda _: False)
        for clock.ms in at_ms:
            await sessions.count_orphans()
        await sessions.close()
        return kept.by_consumer.get("c")

    return asyncio.run(scenario())


def retrying_at(retry_at_ms: int) -> KeptSessions:
    kept = KeptSessions()
    kept.by_consumer["c"] = replace(
        SESSION, state=RETRYING, retries=1, retry_at_ms=retry_at_ms, reason="disconnected"
    )
    return kept


def test_a_session_whose_broker_has_died_is_counted_on_and_parked() -> None:
    first = 1_000 + ORPHANED_MS + 1
    session = counted(retrying_at(1_000), first, 2 * first + 100)
    assert session is not None
    assert (session.state, session.reason) == (PARKED, "disconnected")


def test_a_session_that_another_broker_counts_is_left_to_it() -> None:
    kept = retrying_at(1_000)
    assert counted(kept, 1_000 + ORPHANED_MS) is not None
    assert kept.saved == []


def test_a_consumer_that_came_back_meanwhile_is_not_counted() -> None:
    kept = retrying_at(1_000)
    in_list = kept.sessions

    async def sessions(group: str | None = None) -> list[PushSession]:
        found = await in_list(group)
        if group is None:
            kept.by_consumer.clear()  # as when it connects to the broker that leads its partitions now
        return found

    kept.sessions = sessions  # type: ignore[method-assign]
    assert counted(kept, 1_000 + 2 * ORPHANED_MS) is None
    assert kept.saved == []


@pytest.mark.parametrize("state", [PARKED, SessionState.ACTIVE])
def test_only_sessions_that_retry_are_counted(state: SessionState) -> None:
    kept = KeptSessions()
    kept.by_consumer["c"] = replace(SESSION, state=state)
    counted(kept, 10 * ORPHANED_MS)
    assert kept.saved == []
