"""Whatever order links, sessions and answers come in: who is registered knows it, and serves."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fake_ensemble import FakeEnsemble, open_fake_store
from hypothesis import given, settings
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


class Standing:
    """A broker that lives in the epoch it was told of last, and stands for controller."""

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
        # Connected is never said before the registration of the session is known.
        assert (state is SessionState.CONNECTED) <= (self.broker_epoch is not None)

    def elected(self, epoch: int) -> None:
        self.term = epoch

    def deposed(self) -> None:
        self.term = None

    def live_brokers(self, live: frozenset[BrokerId]) -> None:
        """Who lives is for a controller with partitions."""


async def registered(ensemble: FakeEnsemble) -> Standing:
    store = await open_fake_store(ensemble)
    registering = asyncio.ensure_future(store.register(BROKER))
    while not registering.done():
        await ensemble.spin()
    registering.result()
    standing = Standing(store)
    standing.session_changed(store.session)
    store.campaign(BrokerId(1), standing)
    await ensemble.settle(lambda: standing.term is not None)
    return standing


def lives_where_it_is_registered(ensemble: FakeEnsemble, standing: Standing) -> bool:
    node = ensemble.nodes.get(LIVE_PATH)
    if node is None or node.owner != ensemble.session:
        return False
    return standing.broker_epoch == layout.decode_registration(LIVE_PATH, node.data).epoch


Scenario = Callable[[FakeEnsemble, Standing], Coroutine[Any, Any, None]]


def play(scenario: Scenario) -> Standing:
    """Play it, then let everything work: the broker lives where it is registered, and leads."""

    async def body() -> Standing:
        ensemble = FakeEnsemble()
        standing = await registered(ensemble)
        ensemble.answers_at_once = False
        await scenario(ensemble, standing)
        await ensemble.settle(
            lambda: lives_where_it_is_registered(ensemble, standing) and standing.term is not None
        )
        assert standing.announced[-1][0] is SessionState.CONNECTED
        await standing._store.close()
        return standing

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


def test_a_broker_that_takes_up_its_work_before_it_hears_of_the_new_session_lives_in_it() -> None:
    """The client knows that the session is over and has no other one yet; the loop was not told."""

    async def scenario(ensemble: FakeEnsemble, _: Standing) -> None:
        ensemble.expire()
        ensemble.suspend()
        ensemble.connect()
        # The watches that a break calls wake the loop, and what it asks now waits in the queue.
        await ensemble.spin()
        assert ensemble.events_seen < len(ensemble.events)
        ensemble.connect()
        await exchange(ensemble, 5)
        await see_all(ensemble)

    standing = play(scenario)
    assert (SessionState.LOST, None) in standing.announced


def test_a_session_that_ends_between_a_registration_and_its_answer() -> None:
    async def scenario(ensemble: FakeEnsemble, _: Standing) -> None:
        await expire_and_find_out(ensemble)
        ensemble.connect()
        await see_all(ensemble)
        while LIVE_PATH not in ensemble.nodes:
            ensemble.serve()
            if LIVE_PATH not in ensemble.nodes:
                ensemble.answer()
            await ensemble.spin()
        # The node is there, and its session ends before the client hears of either.
        await expire_and_find_out(ensemble)
        assert LIVE_PATH not in ensemble.nodes

    play(scenario)


def test_two_sessions_that_end_one_after_the_other() -> None:
    async def scenario(ensemble: FakeEnsemble, _: Standing) -> None:
        for _ in range(2):
            await expire_and_find_out(ensemble)
            ensemble.connect()
            await exchange(ensemble)

    play(scenario)


def test_a_link_that_is_told_of_only_after_the_answers() -> None:
    async def scenario(ensemble: FakeEnsemble, _: Standing) -> None:
        ensemble.expire()
        ensemble.suspend()
        ensemble.connect()
        ensemble.connect()
        # Not one event of the link was seen until now.
        await exchange(ensemble, 5)

    play(scenario)


def test_a_session_that_goes_on_after_it_was_presumed_lost_keeps_its_epoch() -> None:
    async def scenario(ensemble: FakeEnsemble, standing: Standing) -> None:
        epoch = standing.broker_epoch
        ensemble.suspend()
        await see_all(ensemble)
        standing._store._membership._time_passed()
        assert standing.broker_epoch is None
        ensemble.connect()
        await see_all(ensemble)
        assert standing.broker_epoch == epoch

    standing = play(scenario)
    assert len({epoch for _, epoch in standing.announced if epoch is not None}) == 1


def test_a_candidate_whose_place_was_made_in_the_next_session_still_decides() -> None:
    async def scenario(ensemble: FakeEnsemble, standing: Standing) -> None:
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


def test_what_a_broker_could_not_take_in_it_is_told_again() -> None:
    async def scenario(ensemble: FakeEnsemble, standing: Standing) -> None:
        await expire_and_find_out(ensemble)
        standing.refusals = 2

    play(scenario)


ACTIONS = {
    "serve": lambda ensemble: ensemble.serve(),
    "answer": lambda ensemble: ensemble.answer(),
    "see": lambda ensemble: ensemble.see_event(),
    "suspend": lambda ensemble: ensemble.suspend(),
    "connect": lambda ensemble: ensemble.connect(),
    "expire": lambda ensemble: ensemble.expire(),
}


@settings(deadline=None)
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
def test_a_broker_lives_where_it_is_registered_whatever_happens(
    actions: list[tuple[str, bool]],
) -> None:
    async def scenario(ensemble: FakeEnsemble, standing: Standing) -> None:
        for action, then_spin in actions:
            if action == "time":
                standing._store._membership._time_passed()
            elif action in ACTIONS:
                ACTIONS[action](ensemble)
            if then_spin or action == "spin":
                await ensemble.spin()

    play(scenario)
