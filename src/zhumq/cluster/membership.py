"""A broker's place in the cluster: its session, its registration, its turn as controller."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar, assert_never

from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster.session import Session
from zhumq.cluster.store import (
    SESSION_TRANSITIONS,
    BrokerIdTaken,
    SessionState,
    StoreUnusable,
)
from zhumq.cluster.znodes import (
    Check,
    Client,
    ConnectionLost,
    Create,
    LinkState,
    Node,
    NodeMissing,
    NodeTaken,
    Operation,
    SessionOver,
    SetData,
)
from zhumq.metadata.changes import BrokerRegistered, Change, ControllerElected
from zhumq.metadata.image import Broker, ClusterImage
from zhumq.model.errors import ZhumqError
from zhumq.model.ids import BrokerId

logger = logging.getLogger(__name__)

# How much longer than its session an earlier broker of the same number is waited for: the ensemble
# looks for expired sessions once in a tick.
EXPIRY_GRACE_MS: Final = 2_000
RETRY_SECONDS: Final = 0.1
FAULT_SECONDS: Final = 1.0
CANDIDATE_SESSIONS_MAX: Final = 16
_UNKNOWN_EPOCH: Final = -1  # no registration has it

Found = TypeVar("Found")


class Ledger(Protocol):
    """The store as its membership sees it."""

    @property
    def image(self) -> ClusterImage: ...

    async def transact(
        self, plan: Callable[[ClusterImage], tuple[Sequence[Change], Sequence[Operation]]]
    ) -> ClusterImage: ...

    def look_again(self) -> None: ...


class ControllerListener(Protocol):
    """Whoever decides for the cluster while this broker is its controller. Called on the loop."""

    def elected(self, epoch: int) -> None:
        """This broker is the controller. Its proposals carry this epoch."""

    def deposed(self) -> None:
        """It is not any more, or cannot know. Nothing it decided from now on would count."""

    def live_brokers(self, live: frozenset[BrokerId]) -> None:
        """These brokers' sessions are alive. Called after `elected`, and whenever it changes."""


class Membership:
    """Keeps what an operator asked for true in every session: be registered, stand for controller."""

    def __init__(self, session_timeout_ms: int, connect_ms_max: int) -> None:
        self._session = Session()
        self._session_timeout_ms = session_timeout_ms
        # How long whoever registers waits for an ensemble that does not answer.
        self._connect_ms_max = connect_ms_max
        self._connected = asyncio.Event()
        self._wake = asyncio.Event()
        self._watchers: list[Callable[[SessionState], None]] = []
        self._announced: tuple[SessionState, int | None] = (SessionState.CONNECTED, None)
        self._presumed_lost: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        self._broker: Broker | None = None
        self._candidate: BrokerId | None = None
        # The sessions in which it was a candidate: a request may be carried out in the one after.
        self._candidate_sessions: deque[int] = deque(maxlen=CANDIDATE_SESSIONS_MAX)
        self._listener: ControllerListener | None = None
        self._controller: tuple[int, int] | None = None  # our epoch, and the version of its node
        self._seen_live: frozenset[BrokerId] | None = None

    @property
    def state(self) -> SessionState:
        return self._session.state

    @property
    def broker_epoch(self) -> int | None:
        """The epoch of our registration; None while others may take this broker for dead."""
        return self._session.broker_epoch

    def attach(self, client: Client, ledger: Ledger) -> None:
        """The session it is about. Called once, before anything but `link_changed`."""
        self._client = client
        self._ledger = ledger

    def watch(self, watcher: Callable[[SessionState], None]) -> None:
        """Call back with the state whenever it, or the epoch of the registration, has changed."""
        self._watchers.append(watcher)

    async def wait_until_connected(self) -> None:
        await self._connected.wait()

    def link_changed(self, link: LinkState, session_id: int) -> None:
        """The client's connection was made, broken, or its session is over."""
        self._cancel_timer()
        match link:
            case LinkState.CONNECTED:
                self._connected.set()
            case LinkState.SUSPENDED:
                self._connected.clear()
                # The ensemble counts from its last word from us, so at the end of this it has
                # given the session up, or nobody there counts at all.
                self._presumed_lost = asyncio.get_running_loop().call_later(
                    self._session_timeout_ms / 1_000, self._time_passed
                )
            case LinkState.LOST:
                self._connected.clear()
            case _:
                assert_never(link)
        self._update(self._session.with_link(link, session_id))
        self._wake.set()

    def closed(self) -> None:
        self._cancel_timer()
        self._update(self._session.with_end())

    async def register(self, broker: Broker) -> None:
        """Register now, and again in every later session."""
        async with self._turn:
            await self.persist(
                lambda: self._register(broker), f"broker {broker.broker_id} registered"
            )
            self._broker = broker
        self._wake.set()

    def campaign(self, broker_id: BrokerId, listener: ControllerListener) -> None:
        self._candidate = broker_id
        self._listener = listener
        self._wake.set()

    def controller_token(self, epoch: int) -> int | None:
        """The version of the controller's node, if this broker was elected with that epoch."""
        if self._controller is None or self._controller[0] != epoch:
            return None
        return self._controller[1]

    def image_changed(self, image: ClusterImage) -> None:
        if self._controller is not None and image.controller_epoch > self._controller[0]:
            self._depose()
            self._wake.set()

    async def keep(self) -> None:
        """Runs for as long as the store is open."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._connected.wait()
            try:
                async with self._turn:
                    await self._restore()
            except (ConnectionLost, SessionOver):
                # It broke in the middle: again, once there is a connection.
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()
            except ZhumqError as reason:
                logger.warning("not settled in the session, trying again: %s", reason)
                await asyncio.sleep(FAULT_SECONDS)
                self._wake.set()
            except Exception:
                logger.exception("not settled in the session, trying again")
                await asyncio.sleep(FAULT_SECONDS)
                self._wake.set()

    async def _restore(self) -> None:
        if self._broker is not None and self._session.lacks_registration:
            await self._register(self._broker)
        self._announce()
        self._ledger.look_again()
        if self._candidate is not None:
            await self._stand(self._candidate)

    # Registration

    async def persist(self, attempt: Callable[[], Awaitable[Found]], what: str) -> Found:
        """Try until it is answered: a connection that breaks at the start of a broker is not the end
        of it. Raises StoreUnusable if nobody answers for as long as was to be waited."""
        while True:
            with contextlib.suppress(ConnectionLost, SessionOver):
                return await attempt()
            try:
                async with asyncio.timeout(self._connect_ms_max / 1_000):
                    await self._connected.wait()
            except TimeoutError:
                raise StoreUnusable(
                    f"ZooKeeper stopped answering for {self._connect_ms_max / 1_000:g} s while"
                    f" {what}: look at the ensemble"
                ) from None
            await asyncio.sleep(RETRY_SECONDS)

    async def _register(self, broker: Broker) -> None:
        path = layout.live_path(broker.broker_id)
        waited = False
        while True:
            try:
                await self._ledger.transact(lambda image: self._enter(image, broker))
                is_new = True
            except NodeTaken as taken:
                if taken.path != path:
                    raise
                is_new = False
            # Which session a request was carried out in is not known from its answer: it may have
            # waited for the next one, or the answer may be older than the session. The node tells.
            node = await self._live_node(path)
            if node is not None and node.owner_session == self._session.session_id:
                epoch = layout.decode_registration(path, node.data).epoch
                logger.info("registered with epoch %d", epoch)
                self._update(self._session.with_registration(node.owner_session, epoch))
                return
            if is_new:
                raise SessionOver(path)
            if waited:
                await self._refuse(broker.broker_id)
            await self._wait_for_expiry(broker.broker_id)
            waited = True

    async def _live_node(self, path: str) -> Node | None:
        with contextlib.suppress(NodeMissing):
            return await self._client.get(path)
        return None

    def _enter(
        self, image: ClusterImage, broker: Broker
    ) -> tuple[Sequence[Change], Sequence[Operation]]:
        # The number of the picture is the epoch: it grows with every registration.
        registered = replace(broker, epoch=image.version + 1)
        registration = layout.Registration(
            host=broker.host,
            port=broker.port,
            epoch=registered.epoch,
            session_timeout_ms=self._session_timeout_ms,
        )
        live = Create(
            path=layout.live_path(broker.broker_id),
            data=layout.encode_registration(registration),
            ephemeral=True,
        )
        return [BrokerRegistered(broker=registered)], [live]

    async def _wait_for_expiry(self, broker_id: BrokerId) -> None:
        """A broker that was killed stays registered until its session expires: that is waited for."""
        path = layout.live_path(broker_id)
        with contextlib.suppress(NodeMissing):
            changed = asyncio.Event()
            holder = layout.decode_registration(
                path, (await self._client.get(path, changed.set)).data
            )
            logger.info(
                "waiting for the session of broker %d at %s:%d to end, for at most %d ms",
                broker_id,
                holder.host,
                holder.port,
                holder.session_timeout_ms + EXPIRY_GRACE_MS,
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((holder.session_timeout_ms + EXPIRY_GRACE_MS) / 1_000):
                    await changed.wait()

    async def _refuse(self, broker_id: BrokerId) -> None:
        path = layout.live_path(broker_id)
        with contextlib.suppress(NodeMissing):
            holder = layout.decode_registration(path, (await self._client.get(path)).data)
            raise BrokerIdTaken(
                f"broker {broker_id} is already running at {holder.host}:{holder.port}:"
                " start this one with another --broker-id"
            )

    # Election

    async def _stand(self, broker_id: BrokerId) -> None:
        """Take a place in the row, and see whether it is the first one."""
        # The session is part of the name, so that a place that was taken while the connection broke
        # is known again. The number at the end, which ZooKeeper gives, says who comes first.
        session_id = self._session.session_id
        if session_id not in self._candidate_sessions:
            self._candidate_sessions.append(session_id)
        prefix = f"{broker_id}-{session_id:x}-"
        names = await self._client.children(layout.CANDIDATES)
        if not any(name.startswith(prefix) for name in names):
            place = Create(
                path=f"{layout.CANDIDATES}/{prefix}",
                data=str(broker_id).encode(),
                ephemeral=True,
                sequential=True,
            )
            await self._client.multi([place])
            names = await self._client.children(layout.CANDIDATES)
        row = sorted(names, key=lambda name: name.rpartition("-")[2])
        # A place named after an earlier session is ours as well, for as long as it is there: it may
        # have been made in this one, and waiting for it to go away would never end.
        prefixes = tuple(f"{broker_id}-{each:x}-" for each in self._candidate_sessions)
        own = next((index for index, name in enumerate(row) if name.startswith(prefixes)), None)
        if own is None:
            raise SessionOver(layout.CANDIDATES)
        if own > 0:
            # Everybody watches only the one before: when a controller dies, one broker is woken.
            if not await self._client.exists(f"{layout.CANDIDATES}/{row[own - 1]}", self._wake.set):
                self._wake.set()
            return
        if self._controller is None:
            await self._take_office(broker_id, f"{layout.CANDIDATES}/{row[own]}")
        await self._look_who_lives()

    async def _take_office(self, broker_id: BrokerId, place: str) -> None:
        node = await self._client.get(layout.CONTROLLER)

        def plan(image: ClusterImage) -> tuple[Sequence[Change], Sequence[Operation]]:
            epoch = image.controller_epoch + 1
            election = SetData(
                path=layout.CONTROLLER,
                data=layout.encode_controller(broker_id, epoch),
                version=node.version,
            )
            # The place is ours only as long as our session lives.
            still_first = Check(path=place, version=0)
            return [ControllerElected(broker_id=broker_id, epoch=epoch)], [still_first, election]

        image = await self._ledger.transact(plan)
        self._controller = (image.controller_epoch, node.version + 1)
        self._seen_live = None
        logger.info("broker %d is the controller, epoch %d", broker_id, image.controller_epoch)
        if self._listener is not None:
            self._listener.elected(image.controller_epoch)

    async def _look_who_lives(self) -> None:
        names = await self._client.children(layout.LIVE, self._wake.set)
        live = frozenset(BrokerId(int(name)) for name in names)
        if self._controller is not None and live != self._seen_live:
            self._seen_live = live
            if self._listener is not None:
                self._listener.live_brokers(live)

    # States

    def _time_passed(self) -> None:
        self._presumed_lost = None
        self._update(self._session.with_time_passed())

    def _update(self, session: Session) -> None:
        self._session = session
        self._announce()

    def _announce(self) -> None:
        """Tell the watchers what holds now, if they have not taken it in yet."""
        state, epoch = self._session.state, self._session.broker_epoch
        if (state, epoch) == self._announced:
            return
        before = self._announced[0]
        if state is not before:
            assert state in SESSION_TRANSITIONS[before], f"{before} to {state}"
            logger.info("the session with ZooKeeper is %s", state)
        if state in (SessionState.LOST, SessionState.CLOSED):
            self._depose()
        self._announced = (state, epoch)
        for watcher in self._watchers:
            try:
                watcher(state)
            except Exception:
                # A broker that is registered and has not begun to serve would be named leader.
                logger.exception("the state of the session was not taken in, trying again")
                self._announced = (state, _UNKNOWN_EPOCH)
                asyncio.get_running_loop().call_later(FAULT_SECONDS, self._wake.set)

    def _depose(self) -> None:
        if self._controller is not None:
            self._controller = None
            logger.info("not the controller any more")
            if self._listener is not None:
                self._listener.deposed()

    def _cancel_timer(self) -> None:
        if self._presumed_lost is not None:
            self._presumed_lost.cancel()
            self._presumed_lost = None
