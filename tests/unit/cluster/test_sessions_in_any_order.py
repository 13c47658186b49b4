"""In any order of link events, sessions and answers a registered broker knows its epoch and serves."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fake_ensemble import FakeEnsemble, open_fake_store
from hypothesis import given
from hypothesis import strategies as st

from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster.store import SessionState
from zhumq.cluster.zookeeper_store import ZookeeperStore
from zhumq.metadata.image import Broker
from zhumq.model.ids import BrokerId

BROKER = Broker(broker_id=BrokerId(1), host="h", port=1)
LIVE_PATH = layout.live_path(1)


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("membership", "zookeeper_store"):
        for name in ("RETRY_SECONDS", "FAULT_SECONDS"):
            monkeypatch.setattr(f"zhumq.cluster.{module}.{name}", 0.0)


class Member:
    """A broker that uses the broker epoch of its last notification and runs for controller."""

    def __init__(self, store: ZookeeperStore) -> None:
        self._store = store
        self.broker_epoch: int | None = None
        self.announced: list[tuple[SessionState, int | None]] = []
        self.term: int | None = None
        self.refusals = 0
        store.watch_session(self.session_changed)

    def session_changed(self, state: SessionState) -> None:
        if self.refusals:
            self.refusals -= 1
            raise RuntimeError("planted by the test")
        self.broker_epoch = self._store.broker_epoch
        self.announced.append((state, self.broker_epoch))
        # CONNECTED is never announced before the registration of the session is known.
        assert (state is SessionState.CONNECTED) <= (self.broker_epoch is not None)

    def elected(self, epoch: int) -> None:
        self.term = epoch

    def deposed(self) -> None:
        self.term = None

    def live_brokers(self, live: frozenset[BrokerId]) -> None:
        """Only a controller with partitions needs the live brokers."""


async def registered(ensemble: FakeEnsemble) -> Member:
    store = await open_fake_store(ensemble)
    registering = asyncio.ensure_future(store.register(BROKER))
    while not registering.done():
        await ensemble.spin()
    registering.result()
    member = Member(store)
    member.session_changed(store.session)
    store.campaign(BrokerId(1), member)
    await ensemble.settle(lambda: member.term is not None)
    return member


def knows_its_registration(ensemble: FakeEnsemble, member: Member) -> bool:
    node = ensemble.nodes.get(LIVE_PATH)
    if node is None or node.owner != ensemble.session:
        return False
    return member.broker_epoch == layout.decode_registration(LIVE_PATH, node.data).epoch


Scenario = Callable[[FakeEnsemble, Member], Coroutine[Any, Any, None]]


def play(scenario: Scenario) -> Member:
    """Run the scenario, then repair everything: the broker knows its registration and is controller."""

    async def body() -> Member:
        ensemble = FakeEnsemble()
        member = await registered(ensemble)
        ensemble.answers_at_once = False
        await scenario(ensemble, member)
        await ensemble.settle(
            lambda: knows_its_registration(ensemble, member) and member.term is not None
        )
        assert member.announced[-1][0] is SessionState.CONNECTED
        await member._store.close()
        return member

    return asyncio.run(body())


async def see_all(ensemble: FakeEnsemble) -> None:
    while ensemble.events_seen < len(ensemble.events):
        ensemble.see_event()
        await ensemble.spin()


async def exchange(ensemble: FakeEnsemble, times: int = 1) -> None:
    for _ in range(times):
        ensemble.serve()
        ensemble.answer()
        await ensemble.spin()


async def expire_and_find_out(ensemble: FakeEnsemble) -> None:
    ensemble.expire()
    ensemble.suspend()
    ensemble.connect()
    await see_all(ensemble)


def test_a_broker_that_continues_before_it_learns_of_the_new_session_registers_in_it() -> None:
    """The client knows that the session expired and has no new one; the loop has no event yet."""

    async def scenario(ensemble: FakeEnsemble, _: Member) -> None:
        ensemble.expire()
        ensemble.suspend()
        ensemble.connect()
        # The watches that a broken connection calls wake the loop; its new requests wait in the queue.
        await ensemble.spin()
        assert ensemble.events_seen < len(ensemble.events)
        ensemble.connect()
        await exchange(ensemble, 5)
        await see_all(ensemble)

    member = play(scenario)
    assert (SessionState.LOST, None) in member.announced


def test_a_session_that_ends_between_a_registration_and_its_answer() -> None:
    async def scenario(ensemble: FakeEnsemble, _: Member) -> None:
        await expire_and_find_out(ensemble)
        ensemble.connect()
        await see_all(ensemble)
        while LIVE_PATH not in ensemble.nodes:
            ensemble.serve()
            if LIVE_PATH not in ensemble.nodes:
                ensemble.answer()
            await ensemble.spin()
        # The node exists, and its session ends before the client learns of either.
        await expire_and_find_out(ensemble)
        assert LIVE_PATH not in ensemble.nodes

    play(scenario)


def test_two_sessions_that_end_one_after_the_other() -> None:
    async def scenario(ensemble: FakeEnsemble, _: Member) -> None:
        for _ in range(2):
            await expire_and_find_out(ensemble)
            ensemble.connect()
            await exchange(ensemble)

    play(scenario)


def test_link_events_that_arrive_only_after_the_answers() -> None:
    async def scenario(ensemble: FakeEnsemble, _: Member) -> None:
        ensemble.expire()
        ensemble.suspend()
        ensemble.connect()
        ensemble.connect()
        # The loop has processed no link event until now.
        await exchange(ensemble, 5)

    play(scenario)


def test_a_session_that_goes_on_after_it_was_presumed_lost_keeps_its_epoch() -> None:
    async def scenario(ensemble: FakeEnsemble, member: Member) -> None:
        epoch = member.broker_epoch
        ensemble.suspend()
        await see_all(ensemble)
        member._store._membership._on_session_timeout()
        assert member.broker_epoch is None
        ensemble.connect()
        await see_all(ensemble)
        assert member.broker_epoch == epoch

    member = play(scenario)
    assert len({epoch for _, epoch in member.announced if epoch is not None}) == 1


def test_a_candidate_whose_node_was_created_in_the_next_session_becomes_controller() -> None:
    async def scenario(ensemble: FakeEnsemble, member: Member) -> None:
        await expire_and_find_out(ensemble)
        ensemble.connect()
        await see_all(ensemble)
        while not any(path.startswith(f"{layout.CANDIDATES}/") for path in ensemble.nodes):
            waiting = ensemble.requests and ensemble.requests[0].path
            if waiting and waiting.startswith(f"{layout.CANDIDATES}/"):
                # Named after this session, and carried out in the one after it.
                request = ensemble.requests.pop(0)
                await expire_and_find_out(ensemble)
                ensemble.connect()
                ensemble.requests.insert(0, request)
            await exchange(ensemble)

    play(scenario)


def test_a_watcher_that_failed_is_called_again() -> None:
    async def scenario(ensemble: FakeEnsemble, member: Member) -> None:
        await expire_and_find_out(ensemble)
        member.refusals = 2

    play(scenario)


ACTIONS = {
    "serve": lambda ensemble: ensemble.serve(),
    "answer": lambda ensemble: ensemble.answer(),
    "see": lambda ensemble: ensemble.see_event(),
    "suspend": lambda ensemble: ensemble.suspend(),
    "connect": lambda ensemble: ensemble.connect(),
    "expire": lambda ensemble: ensemble.expire(),
}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["serve", "answer", "see", "serve", "answer", "see", *ACTIONS, "time", "spin"]
            ),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_a_broker_knows_its_registration_after_any_order_of_events(
    actions: list[tuple[str, bool]],
) -> None:
    async def scenario(ensemble: FakeEnsemble, member: Member) -> None:
        for action, then_spin in actions:
            if action == "time":
                member._store._membership._on_session_timeout()
            elif action in ACTIONS:
                ACTIONS[action](ensemble)
            if then_spin or action == "spin":
                await ensemble.spin()

    play(scenario)
