"""A broker's membership in the cluster: session, registration, controller election."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster.ensemble_link import RETRY_SECONDS, EnsembleLink
from zhumq.cluster.session import Session
from zhumq.cluster.store import (
    SESSION_TRANSITIONS,
    BrokerIdTaken,
    SessionState,
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

# How long a starting broker waits beyond the session timeout of an earlier broker with the same id:
# the ensemble checks for expired sessions once per tick.
EXPIRY_GRACE_MS: Final = 2_000
FAULT_SECONDS: Final = 1.0
CANDIDATE_SESSIONS_MAX: Final = 16
_UNKNOWN_EPOCH: Final = -1  # no registration has it


class MembershipStore(Protocol):
    """The part of the store that the membership uses."""

    @property
    def image(self) -> ClusterImage: ...

    async def transact(
        self, plan: Callable[[ClusterImage], tuple[Sequence[Change], Sequence[Operation]]]
    ) -> ClusterImage: ...

    def check_for_changes(self) -> None: ...


class ControllerListener(Protocol):
    """Acts for the cluster while this broker is the controller. Called on the event loop."""

    def elected(self, epoch: int) -> None:
        """This broker is the controller. Its proposals carry this epoch."""

    def deposed(self) -> None:
        """This broker is not the controller any more, or cannot know. Its later decisions do not count."""

    def live_brokers(self, live: frozenset[BrokerId]) -> None:
        """The brokers with a live session. Called after `elected` and after every change."""


class Membership:
    """Registers the broker and enters it into the controller election, again in every session."""

    def __init__(
        self, link: EnsembleLink, client: Client, store: MembershipStore, session_timeout_ms: int
    ) -> None:
        self._link = link
        self._client = client
        self._store = store
        self._session = Session()
        self._session_timeout_ms = session_timeout_ms
        self._wake = asyncio.Event()
        self._watchers: list[Callable[[SessionState], None]] = []
        self._announced: tuple[SessionState, int | None] = (SessionState.CONNECTED, None)
        self._presumed_lost: asyncio.TimerHandle | None = None
        self._lock = asyncio.Lock()
        self._broker: Broker | None = None
        self._candidate: BrokerId | None = None
        # The sessions of its candidacies: ZooKeeper may carry out a request in the session after it.
        self._candidate_sessions: deque[int] = deque(maxlen=CANDIDATE_SESSIONS_MAX)
        self._listener: ControllerListener | None = None
        self._controller: tuple[int, int] | None = None  # epoch, version of the node
        self._seen_live: frozenset[BrokerId] | None = None
        link.watch(self._link_changed)

    @property
    def state(self) -> SessionState:
        return self._session.state

    @property
    def broker_epoch(self) -> int | None:
        """The epoch of the registration; None while the session may have expired."""
        return self._session.broker_epoch

    def watch(self, watcher: Callable[[SessionState], None]) -> None:
        """Call the watcher with the state whenever the state or the broker epoch changes."""
        self._watchers.append(watcher)

    def _link_changed(self, link: LinkState, session_id: int) -> None:
        self._cancel_timer()
        if link is LinkState.SUSPENDED:
            # The ensemble counts the session timeout from its last contact with this client. So
            # at the end of this timer it has expired the session, or it has no leader.
            self._presumed_lost = asyncio.get_running_loop().call_later(
                self._session_timeout_ms / 1_000, self._on_session_timeout
            )
        self._update(self._session.with_link(link, session_id))
        self._wake.set()

    def closed(self) -> None:
        self._cancel_timer()
        self._update(self._session.with_close())

    async def register(self, broker: Broker) -> None:
        """Register now and again in every later session."""
        async with self._lock:
            await self._link.retry_until_answered(
                lambda: self._register(broker), f"broker {broker.broker_id} registered"
            )
            self._broker = broker
        self._wake.set()

    def campaign(self, broker_id: BrokerId, listener: ControllerListener) -> None:
        self._candidate = broker_id
        self._listener = listener
        self._wake.set()

    def controller_token(self, epoch: int) -> int | None:
        """The version of the controller node if this broker was elected with that epoch."""
        if self._controller is None or self._controller[0] != epoch:
            return None
        return self._controller[1]

    def on_image_changed(self, image: ClusterImage) -> None:
        if self._controller is not None and image.controller_epoch > self._controller[0]:
            self._depose()
            self._wake.set()
        if self._was_removed(image):
            self._wake.set()

    async def maintain(self) -> None:
        """Restore registration and candidacy after every change. Runs until the store is closed."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._link.wait_until_connected()
            try:
                async with self._lock:
                    await self._restore()
            except (ConnectionLost, SessionOver):
                # The connection broke in between: retry once it is back.
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()
            except ZhumqError as reason:
                logger.warning(
                    "cannot register or run for controller in this session, trying again: %s",
                    reason,
                )
                await asyncio.sleep(FAULT_SECONDS)
                self._wake.set()
            except Exception:
                logger.exception(
                    "cannot register or run for controller in this session, trying again"
                )
                await asyncio.sleep(FAULT_SECONDS)
                self._wake.set()

    async def _restore(self) -> None:
        if self._broker is not None and (
            self._session.lacks_registration or self._was_removed(self._store.image)
        ):
            await self._register(self._broker)
        self._announce()
        self._store.check_for_changes()
        if self._candidate is not None:
            await self._run_for_controller(self._candidate)

    # Registration

    def _was_removed(self, image: ClusterImage) -> bool:
        """Whether a controller has found that the registration is gone, though the session seems to live."""
        epoch = self._session.broker_epoch
        if self._broker is None or epoch is None or image.version < epoch:
            return False
        registered = image.brokers.get(self._broker.broker_id)
        return registered is None or registered.epoch != epoch

    async def _register(self, broker: Broker) -> None:
        path = layout.live_path(broker.broker_id)
        waited = False
        while True:
            try:
                await self._store.transact(lambda image: self._plan_registration(image, broker))
                is_new = True
            except NodeTaken as taken:
                if taken.path != path:
                    raise
                is_new = False
            # The answer does not show in which session ZooKeeper carried out the request: it may have
            # waited for the next session, or the answer may be older than the session. The node does.
            node = await self._live_node(path)
            if node is not None and node.owner_session == self._session.session_id:
                epoch = layout.decode_registration(path, node.data).epoch
                logger.info("registered with epoch %d", epoch)
                self._update(self._session.with_registration(node.owner_session, epoch))
                return
            if is_new:
                raise SessionOver(path)
            if waited:
                await self._raise_if_taken(broker.broker_id)
            await self._wait_for_expiry(broker.broker_id)
            waited = True

    async def _live_node(self, path: str) -> Node | None:
        with contextlib.suppress(NodeMissing):
            return await self._client.get(path)
        return None

    def _plan_registration(
        self, image: ClusterImage, broker: Broker
    ) -> tuple[Sequence[Change], Sequence[Operation]]:
        # The version of the image is the broker epoch: it grows with every registration.
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
        """Wait for the session of a killed broker with the same id to expire."""
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

    async def _raise_if_taken(self, broker_id: BrokerId) -> None:
        path = layout.live_path(broker_id)
        with contextlib.suppress(NodeMissing):
            holder = layout.decode_registration(path, (await self._client.get(path)).data)
            raise BrokerIdTaken(
                f"broker {broker_id} is already running at {holder.host}:{holder.port}:"
                " start this one with another --broker-id"
            )

    # Election

    async def _run_for_controller(self, broker_id: BrokerId) -> None:
        """Create a candidate node and become controller if it is the first one."""
        # The session id is part of the name, so that a node created while the connection broke is
        # recognized. The sequence number that ZooKeeper appends decides which candidate is first.
        session_id = self._session.session_id
        if session_id not in self._candidate_sessions:
            self._candidate_sessions.append(session_id)
        prefix = f"{broker_id}-{session_id:x}-"
        names = await self._client.children(layout.CANDIDATES)
        if not any(name.startswith(prefix) for name in names):
            candidate = Create(
                path=f"{layout.CANDIDATES}/{prefix}",
                data=str(broker_id).encode(),
                ephemeral=True,
                sequential=True,
            )
            await self._client.multi([candidate])
            names = await self._client.children(layout.CANDIDATES)
        queue = sorted(names, key=lambda name: name.rpartition("-")[2])
        # A node named after an earlier session is this broker's as well: ZooKeeper may have created it
        # in this session, and then it would never expire.
        prefixes = tuple(f"{broker_id}-{each:x}-" for each in self._candidate_sessions)
        own = next((index for index, name in enumerate(queue) if name.startswith(prefixes)), None)
        if own is None:
            raise SessionOver(layout.CANDIDATES)
        if own > 0:
            # Each candidate watches only the one before it, so the end of a controller wakes one broker.
            if not await self._client.exists(
                f"{layout.CANDIDATES}/{queue[own - 1]}", self._wake.set
            ):
                self._wake.set()
            return
        if self._controller is None:
            await self._become_controller(broker_id, f"{layout.CANDIDATES}/{queue[own]}")
        await self._read_live_brokers()

    async def _become_controller(self, broker_id: BrokerId, candidate_path: str) -> None:
        node = await self._client.get(layout.CONTROLLER)

        def plan(image: ClusterImage) -> tuple[Sequence[Change], Sequence[Operation]]:
            epoch = image.controller_epoch + 1
            election = SetData(
                path=layout.CONTROLLER,
                data=layout.encode_controller(broker_id, epoch),
                version=node.version,
            )
            # The candidate node exists only as long as this session.
            still_first = Check(path=candidate_path, version=0)
            return [ControllerElected(broker_id=broker_id, epoch=epoch)], [still_first, election]

        image = await self._store.transact(plan)
        self._controller = (image.controller_epoch, node.version + 1)
        self._seen_live = None
        logger.info("broker %d is the controller, epoch %d", broker_id, image.controller_epoch)
        if self._listener is not None:
            self._listener.elected(image.controller_epoch)

    async def _read_live_brokers(self) -> None:
        names = await self._client.children(layout.LIVE, self._wake.set)
        live = frozenset(BrokerId(int(name)) for name in names)
        if self._controller is not None and live != self._seen_live:
            self._seen_live = live
            if self._listener is not None:
                self._listener.live_brokers(live)

    # States

    def _on_session_timeout(self) -> None:
        self._presumed_lost = None
        self._update(self._session.with_session_timeout())

    def _update(self, session: Session) -> None:
        self._session = session
        self._announce()

    def _announce(self) -> None:
        """Call the watchers if the state or the broker epoch has changed since their last call."""
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
                # The controller would name a registered broker leader although it does not serve yet.
                logger.exception("a watcher of the session state failed, trying again")
                self._announced = (state, _UNKNOWN_EPOCH)
                asyncio.get_running_loop().call_later(FAULT_SECONDS, self._wake.set)

    def _depose(self) -> None:
        if self._controller is not None:
            self._controller = None
            logger.info("this broker is not the controller any more")
            if self._listener is not None:
                self._listener.deposed()

    def _cancel_timer(self) -> None:
        if self._presumed_lost is not None:
            self._presumed_lost.cancel()
            self._presumed_lost = None
