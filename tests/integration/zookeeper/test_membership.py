"""Registration and controller election while sessions expire and servers fail."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest
from zookeeper_support import (
    SECONDS_MAX,
    Listener,
    SessionStates,
    broker,
    change,
    close_all,
    expire,
    open_store,
    topic_created,
    wait_for,
)

from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster.dev_zookeeper import DevZookeeper, dev_zookeeper
from zhumq.cluster.session import NO_SESSION
from zhumq.cluster.store import (
    BrokerIdTaken,
    ControllerFenced,
    SessionState,
    StoreUnavailable,
    VersionConflict,
)
from zhumq.cluster.znodes import Delete, Operation
from zhumq.cluster.zookeeper_store import ZookeeperStore
from zhumq.metadata.changes import BrokerGone, ProducerIdsAllocated
from zhumq.model.ids import BrokerId

CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST


def test_a_registered_broker_is_in_every_metadata_image_with_its_epoch(chroot: str) -> None:
    async def scenario() -> None:
        store, other = await open_store(chroot), await open_store(chroot)
        await store.register(replace(broker(1), rack="r"))
        await wait_for(lambda: BrokerId(1) in other.image.brokers)
        assert store.broker_epoch == 1
        assert other.image.brokers[BrokerId(1)] == replace(broker(1), rack="r", epoch=1)
        await close_all([store, other])
        assert store.broker_epoch is None

    asyncio.run(scenario())


def test_a_second_broker_with_the_same_id_is_refused_with_the_address_of_the_first(
    chroot: str,
) -> None:
    async def scenario() -> None:
        store, other = await open_store(chroot), await open_store(chroot)
        await store.register(broker(1))
        with pytest.raises(BrokerIdTaken, match=r"broker 1 is already running at 127.0.0.1:9001"):
            await other.register(replace(broker(1), port=9_999))
        assert other.broker_epoch is None
        assert store.image.brokers[BrokerId(1)].port == 9_001
        await close_all([store, other])

    asyncio.run(scenario())


def test_a_killed_broker_registers_again_once_its_old_session_has_expired(chroot: str) -> None:
    program = f"""
import asyncio, sys
sys.path[:0] = {sys.path!r}
from zookeeper_support import broker, open_store
async def main():
    store = await open_store({chroot!r})
    await store.register(broker(1))
    print("registered", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""

    async def scenario() -> None:
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"registered\n"
            os.kill(process.pid, signal.SIGKILL)
        store = await open_store(chroot)
        await store.register(broker(1))
        epoch = store.broker_epoch
        assert epoch is not None
        assert epoch > 1
        assert store.image.brokers[BrokerId(1)].epoch == epoch
        await store.close()

    asyncio.run(scenario())


def test_a_broker_whose_session_expired_registers_again_with_a_higher_epoch(chroot: str) -> None:
    async def scenario() -> None:
        store, other = await open_store(chroot), await open_store(chroot)
        states = SessionStates(store)
        epochs: list[int | None] = []
        store.watch_session(lambda _state: epochs.append(store.broker_epoch))
        await store.register(broker(1))
        first = store.broker_epoch
        assert first is not None
        await change(other, topic_created("t"))
        await expire(store, chroot)
        await wait_for(lambda: LOST in states and states[-1] is CONNECTED, "a new session")
        second = store.broker_epoch
        assert second is not None
        assert second > first
        assert epochs[states.index(LOST)] is None
        await wait_for(lambda: other.image.brokers[BrokerId(1)].epoch == second)
        # The store follows and proposes in the new session as in the old one.
        await change(other, topic_created("u"))
        await wait_for(lambda: "u" in store.image.topics)
        await store.propose([ProducerIdsAllocated(next_producer_id=9)], store.image.version)
        await close_all([store, other])

    asyncio.run(scenario())


@pytest.mark.thorough
def test_a_session_without_answers_is_suspended_then_lost_then_connected_again() -> None:
    async def scenario(zookeeper: DevZookeeper) -> None:
        (node,) = zookeeper.nodes
        store = await open_store(f"{zookeeper.connect}/paused")
        listener = Listener()
        await store.register(broker(1))
        states = SessionStates(store)
        store.campaign(BrokerId(1), listener)
        await wait_for(lambda: listener.epoch == 1)
        node.pause()
        try:
            await wait_for(lambda: LOST in states, "the loss")
            assert states[:2] == [SUSPENDED, LOST]
            assert store.broker_epoch is None
            assert listener.epoch is None
        finally:
            node.resume()
        await wait_for(lambda: states[-1] is CONNECTED, "a session")
        await wait_for(lambda: listener.epoch is not None, "a new controller epoch")
        assert listener.epochs == sorted(set(listener.epochs))
        assert store.broker_epoch == store.image.brokers[BrokerId(1)].epoch
        await change(store, topic_created("t"))
        await store.close()

    with dev_zookeeper() as zookeeper:
        asyncio.run(scenario(zookeeper))


@pytest.mark.thorough
def test_proposals_continue_when_the_leader_of_the_ensemble_is_killed() -> None:
    async def scenario(zookeeper: DevZookeeper) -> None:
        ensemble = f"{zookeeper.connect}/cluster"
        stores = [await open_store(ensemble, session_timeout_ms=6_000) for _ in range(2)]
        for number, store in enumerate(stores):
            await store.register(broker(number))
        epochs = [store.broker_epoch for store in stores]
        stop = asyncio.Event()
        made: list[str] = []

        async def write() -> None:
            while not stop.is_set():
                name = f"t-{len(made)}"
                await change(stores[0], topic_created(name))
                made.append(name)

        writing = asyncio.ensure_future(write())
        await wait_for(lambda: len(made) > 10)
        leader = zookeeper.leader()
        leader.kill()
        before = len(made)
        await wait_for(lambda: len(made) > before + 20, "a proposal after the kill")
        await asyncio.to_thread(zookeeper.restart, leader)
        stop.set()
        await writing
        await wait_for(lambda: stores[1].image.version == stores[0].image.version)
        assert stores[1].image == stores[0].image
        assert set(made) == set(stores[0].image.topics)
        # Two of three servers kept the sessions: no broker had to register again.
        assert [store.broker_epoch for store in stores] == epochs
        await close_all(stores)

    with dev_zookeeper(nodes=3) as zookeeper:
        asyncio.run(scenario(zookeeper))


@pytest.mark.thorough
def test_a_proposal_without_an_ensemble_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zhumq.cluster.zookeeper_store.PROPOSAL_SECONDS_MAX", 1.0)

    async def scenario(zookeeper: DevZookeeper) -> None:
        store = await open_store(f"{zookeeper.connect}/gone")
        zookeeper.nodes[0].kill()
        with pytest.raises(StoreUnavailable, match="does not answer for 1 s"):
            await store.propose([topic_created("t")], store.image.version)
        await store.close()

    with dev_zookeeper() as zookeeper:
        asyncio.run(scenario(zookeeper))


# The controller


async def remove_candidate(store: ZookeeperStore, broker_id: int) -> None:
    """Delete a broker's candidate node, as the end of its session does."""
    names = await store._client.children(layout.CANDIDATES)
    candidate = next(name for name in names if name.startswith(f"{broker_id}-"))
    await store._client.multi([Delete(path=f"{layout.CANDIDATES}/{candidate}")])


def test_one_candidate_is_elected_and_the_next_one_when_it_goes(chroot: str) -> None:
    async def scenario() -> None:
        stores = [await open_store(chroot) for _ in range(3)]
        listeners = [Listener() for _ in stores]
        for number, (store, listener) in enumerate(zip(stores, listeners, strict=True), 1):
            await store.register(broker(number))
            store.campaign(BrokerId(number), listener)
            if number == 1:
                await wait_for(lambda: listeners[0].epoch == 1)
        everybody = frozenset({BrokerId(1), BrokerId(2), BrokerId(3)})
        await wait_for(lambda: listeners[0].live == everybody)
        await wait_for(lambda: stores[2].image.controller_id == 1)
        assert [listener.epoch for listener in listeners] == [1, None, None]
        await stores[0].close()
        assert listeners[0].epoch is None
        await wait_for(lambda: any(listener.epoch == 2 for listener in listeners[1:]))
        (new,) = [index for index, listener in enumerate(listeners) if listener.epoch == 2]
        await wait_for(lambda: listeners[new].live == everybody - {BrokerId(1)})
        assert stores[new].image.controller_id == new + 1
        assert stores[new].image.controller_epoch == 2
        await close_all(stores[1:])

    asyncio.run(scenario())


def test_a_controller_that_was_replaced_cannot_write_any_more(chroot: str) -> None:
    async def scenario() -> None:
        old, new = await open_store(chroot), await open_store(chroot)
        listeners = [Listener(), Listener()]
        old.campaign(BrokerId(1), listeners[0])
        await wait_for(lambda: listeners[0].epoch == 1)
        new.campaign(BrokerId(2), listeners[1])
        allocated = ProducerIdsAllocated(next_producer_id=5)
        await old.propose([allocated], old.image.version, controller_epoch=1)
        await remove_candidate(new, 1)
        await wait_for(lambda: listeners[1].epoch == 2)
        await wait_for(lambda: listeners[0].epoch is None)
        with pytest.raises(ControllerFenced, match="broker 2 is the controller of epoch 2"):
            await old.propose([topic_created("t")], old.image.version, controller_epoch=1)
        await new.propose([topic_created("n")], new.image.version, controller_epoch=2)
        assert set(new.image.topics) == {"n"}
        await close_all([old, new])

    asyncio.run(scenario())


def test_the_ensemble_fences_a_controller_that_does_not_know_its_successor(chroot: str) -> None:
    async def scenario() -> None:
        old, new = await open_store(chroot), await open_store(chroot)
        listeners = [Listener(), Listener()]
        old.campaign(BrokerId(1), listeners[0])
        await wait_for(lambda: listeners[0].epoch == 1)
        new.campaign(BrokerId(2), listeners[1])
        async with old._lock:
            # It cannot catch up while its lock is held: it proposes on the old image and controller epoch.
            await remove_candidate(new, 1)
            await wait_for(lambda: listeners[1].epoch == 2)
            old_image = old.image
            assert old_image.controller_epoch == 1
            guard = old._controller_guard(old_image, 1)
            operations = layout.transaction(
                old_image, old_image, [], mark="m", version_token=old._token, guards=[guard]
            )
            with pytest.raises(ControllerFenced):
                await old._commit(operations, old_image.version + 1, "m", [guard])
        await close_all([old, new])

    asyncio.run(scenario())


def test_a_controller_whose_session_expired_is_deposed_and_runs_again(chroot: str) -> None:
    async def scenario() -> None:
        stores = [await open_store(chroot) for _ in range(2)]
        listeners = [Listener(), Listener()]
        for number, (store, listener) in enumerate(zip(stores, listeners, strict=True), 1):
            await store.register(broker(number))
            store.campaign(BrokerId(number), listener)
            await wait_for(lambda: listeners[0].epoch == 1)
        await wait_for(lambda: len(listeners[0].live) == 2)
        await expire(stores[0], chroot)
        await wait_for(lambda: listeners[1].epoch == 2)
        await wait_for(lambda: listeners[0].epoch is None)
        await expire(stores[1], chroot)
        await wait_for(lambda: listeners[0].epoch == 3)
        await close_all(stores)

    asyncio.run(scenario())


def test_a_live_broker_is_never_declared_gone(chroot: str) -> None:
    async def scenario() -> None:
        store, other = await open_store(chroot), await open_store(chroot)
        await store.register(broker(1))
        await other.register(broker(2))
        await wait_for(lambda: len(store.image.brokers) == 2)
        gone = BrokerGone(broker_id=BrokerId(2))
        with pytest.raises(VersionConflict, match="the broker is alive"):
            await store.propose([gone], store.image.version)
        assert BrokerId(2) in store.image.brokers
        await other.close()
        await store.propose([gone], store.image.version)
        assert BrokerId(2) not in store.image.brokers
        again = await open_store(chroot)
        assert again.image == store.image
        await close_all([store, again])

    asyncio.run(scenario())


def test_a_proposal_that_is_cut_off_by_closing_the_store_raises_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zhumq.cluster.zookeeper_store.CLOSE_SECONDS_MAX", 0.1)

    async def scenario(zookeeper: DevZookeeper) -> None:
        store = await open_store(f"{zookeeper.connect}/ending")
        zookeeper.nodes[0].kill()
        proposals = [
            asyncio.ensure_future(store.propose([topic_created("t")], 0)) for _ in range(2)
        ]
        await asyncio.sleep(0)
        await store.close()
        for proposal in proposals:
            with pytest.raises(StoreUnavailable, match="the store is closed"):
                await proposal
        with pytest.raises(StoreUnavailable, match="the store is closed"):
            await store.propose([topic_created("t")], 0)

    with dev_zookeeper() as zookeeper:
        asyncio.run(scenario(zookeeper))


def test_a_store_ends_while_its_broker_is_registering_again(
    chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zhumq.cluster.zookeeper_store.CLOSE_SECONDS_MAX", 0.01)

    async def scenario() -> None:
        store = await open_store(chroot)
        await store.register(broker(1))
        asked = asyncio.Event()

        async def never(_operations: Sequence[Operation]) -> list[str]:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        store._client.multi = never  # type: ignore[method-assign]
        membership = store._membership
        membership._session = membership._session.with_registration(NO_SESSION, 1)
        store._membership._wake.set()
        async with asyncio.timeout(SECONDS_MAX):
            await asked.wait()
            await store.close()
        assert store.session is SessionState.CLOSED

    for _ in range(8):  # The two tasks that wait for each other may end in any order.
        asyncio.run(scenario())
