"""The cluster's picture in ZooKeeper: followed by one watch, changed by one transaction at a time."""

import asyncio
import contextlib
import logging
import random
import secrets
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster.membership import ControllerListener, Membership
from zhumq.cluster.store import (
    ControllerFenced,
    SessionState,
    StoreUnavailable,
    StoreUnusable,
    VersionConflict,
    Watcher,
)
from zhumq.cluster.znodes import (
    Check,
    Client,
    ConnectionLost,
    Delete,
    NodeChanged,
    NodeMissing,
    NodeTaken,
    Operation,
    SessionOver,
)
from zhumq.cluster.zookeeper_reader import read_image
from zhumq.metadata.changes import Change, apply_changes
from zhumq.metadata.image import Broker, ClusterImage
from zhumq.model.ids import BrokerId

if TYPE_CHECKING:
    from zhumq.cluster.zookeeper_client import ZookeeperClient

logger = logging.getLogger(__name__)

SESSION_TIMEOUT_MS: Final = 6_000
CONNECT_MS_MAX: Final = 10_000
# How long a proposal keeps trying through lost connections before it says that it does not know.
PROPOSAL_SECONDS_MAX: Final = 30.0
CLOSE_SECONDS_MAX: Final = 5.0  # what proposals under way get to end at a stop
RETRY_SECONDS: Final = 0.1
FAULT_SECONDS: Final = 5.0
# Old entries are removed by whoever makes every so many-th picture.
TRIM_INTERVAL: Final = 64
TRIM_AT_ONCE_MAX: Final = 1_000
SECRET_BYTES: Final = 32

# After so many conflicts in a row a transaction waits for a while before it tries again: where
# hundreds of brokers have news at the same moment, they would keep each other from telling it.
CONFLICTS_AT_ONCE_MAX: Final = 4
CONFLICT_PAUSE_SECONDS: Final = 0.005
CONFLICT_PAUSE_SECONDS_MAX: Final = 0.64

# What to change given the newest picture, and what has to hold or to be made with it.
Plan = Callable[[ClusterImage], tuple[Sequence[Change], Sequence[Operation]]]


def conflict_pause_seconds(conflicts: int, chance: float) -> float:
    """How long to wait after so many conflicts in a row; chance is drawn from 0 to 1."""
    if conflicts <= CONFLICTS_AT_ONCE_MAX:
        return 0.0
    doublings = min(conflicts - CONFLICTS_AT_ONCE_MAX, 10)
    return chance * min(CONFLICT_PAUSE_SECONDS * (1 << doublings), CONFLICT_PAUSE_SECONDS_MAX)


class ZookeeperStore:
    """A MetadataStore on an ensemble. Made by `open`, which returns it with the newest picture."""

    def __init__(
        self,
        client: Client,
        image: ClusterImage,
        token: int,
        membership: Membership,
        secret: bytes,
    ) -> None:
        # Known to the brokers of this cluster, and to whoever may read its ZooKeeper.
        self.secret = secret
        self._client = client
        self._image = image
        # The version of the node /version when it held the number of our picture.
        self._token = token
        self._membership = membership
        self._watchers: list[Watcher] = []
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False

    @classmethod
    async def open(
        cls,
        ensemble: str,
        *,
        new_cluster_id: str,
        expected_cluster_id: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connect_ms_max: int = CONNECT_MS_MAX,
        create_chroot: bool = False,
    ) -> Self:
        """Connect to `HOST:PORT,.../CHROOT` and read the picture, or begin a cluster there.

        Raises StoreUnusable, in bounded time, if nobody answers, the chroot is missing, or what is
        there belongs to something else or to another cluster.
        """
        zookeeper_client = _load_client()
        membership = Membership(session_timeout_ms, connect_ms_max)
        client = await zookeeper_client.connect(
            ensemble,
            session_timeout_ms=session_timeout_ms,
            connect_ms_max=connect_ms_max,
            on_link=membership.link_changed,
        )

        async def enter() -> tuple[ClusterImage, int, bytes]:
            await _prepare_chroot(client, ensemble, create_chroot)
            await _begin_cluster(client, ensemble, new_cluster_id, expected_cluster_id)
            return *await read_image(client), await _read_secret(client)

        try:
            image, token, secret = await membership.persist(enter, f"{ensemble} was read")
            _check_cluster(image, ensemble, expected_cluster_id)
        except BaseException:
            await client.close()
            raise
        store = cls(client, image, token, membership, secret)
        membership.attach(client, store)
        store._spawn(store._follow())
        store._spawn(membership.keep())
        store._changed.set()
        return store

    @property
    def image(self) -> ClusterImage:
        return self._image

    @property
    def session(self) -> SessionState:
        return self._membership.state

    @property
    def broker_epoch(self) -> int | None:
        """The epoch of this broker's registration; None while others may take it for dead."""
        return self._membership.broker_epoch

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def watch_session(self, watcher: Callable[[SessionState], None]) -> None:
        """Call back with every new state of the session, on the event loop."""
        self._membership.watch(watcher)

    async def register(self, broker: Broker) -> None:
        """Raises BrokerIdTaken if another live broker has the number, and names it."""
        await self._membership.register(broker)

    def campaign(self, broker_id: BrokerId, listener: ControllerListener) -> None:
        """Stand for controller, in this session and in every later one."""
        self._membership.campaign(broker_id, listener)

    async def propose(
        self,
        changes: Sequence[Change],
        expected_version: int,
        *,
        controller_epoch: int | None = None,
    ) -> ClusterImage:
        """With a controller epoch the changes also count only if no later controller was elected;
        otherwise ControllerFenced is raised."""

        def plan(image: ClusterImage) -> tuple[Sequence[Change], Sequence[Operation]]:
            if image.version != expected_version:
                raise VersionConflict(f"at version {image.version}, not {expected_version}")
            guards = layout.gone_guards(changes)
            if controller_epoch is not None:
                guards.insert(0, self._controller_guard(image, controller_epoch))
            return changes, guards

        return await self._carried_through(plan)

    async def transact(self, plan: Plan) -> ClusterImage:
        """Decide on the newest picture, and again if it has moved on meanwhile."""
        conflicts = 0
        while True:
            with contextlib.suppress(VersionConflict):
                return await self._carried_through(plan)
            conflicts += 1
            await asyncio.sleep(conflict_pause_seconds(conflicts, random.random()))  # noqa: S311

    async def close(self) -> None:
        self._closed = True
        writing = [task for task in self._tasks if task.get_name() == "propose"]
        if writing:
            await asyncio.wait(writing, timeout=CLOSE_SECONDS_MAX)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()
        self._membership.closed()

    def look_again(self) -> None:
        """There may be a newer picture."""
        self._changed.set()

    async def _carried_through(self, plan: Plan) -> ClusterImage:
        # Once begun it goes on, even if the client that asked for it goes away in the middle: the
        # ensemble and our picture must not part.
        task = self._spawn(self._transact_once(plan), name="propose")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is not None and waiting.cancelling():
                raise
            # Not whoever waits here was cancelled, but the proposal, by the end of the store.
            raise StoreUnavailable("the store is closed") from None

    async def _transact_once(self, plan: Plan) -> ClusterImage:
        async with self._turn:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            before = self._image
            changes, guards = plan(before)
            after = apply_changes(before, changes)
            mark = str(uuid.uuid4())
            operations = layout.transaction(
                before, after, changes, mark=mark, version_token=self._token, guards=guards
            )
            try:
                async with asyncio.timeout(PROPOSAL_SECONDS_MAX):
                    await self._commit(operations, after.version, mark, guards)
            except TimeoutError:
                self._changed.set()
                raise StoreUnavailable(
                    f"ZooKeeper does not answer for {PROPOSAL_SECONDS_MAX:g} s"
                ) from None
            self._token += 1
            self._take_over(after)
        if after.version % TRIM_INTERVAL == 0:
            self._spawn(self._trim(after.version))
        return after

    async def _commit(
        self, operations: Sequence[Operation], version: int, mark: str, guards: Sequence[Operation]
    ) -> None:
        """Return when the operations have been carried out, once."""
        tried_before = False
        while True:
            try:
                await self._client.multi(operations)
            except (ConnectionLost, SessionOver):
                # Nobody knows whether it happened. Trying again is safe: the version stands guard.
                tried_before = True
                await self._membership.wait_until_connected()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except (NodeChanged, NodeTaken, NodeMissing) as reason:
                try:
                    if tried_before and await self._is_ours(version, mark):
                        return
                    await self._refuse(reason, guards)
                except (ConnectionLost, SessionOver):
                    # Why it was refused is not known yet: asked again, it is refused again.
                    await self._membership.wait_until_connected()
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
            return

    async def _is_ours(self, version: int, mark: str) -> bool:
        path = layout.entry_path(version)
        try:
            node = await self._client.get(path)
        except NodeMissing:
            return False
        return layout.decode_entry(path, node.data).mark == mark

    async def _refuse(
        self, reason: NodeChanged | NodeTaken | NodeMissing, guards: Sequence[Operation]
    ) -> None:
        """Raise what a failed operation means to whoever proposed it."""
        if reason.path == layout.CONTROLLER:
            await self._catch_up()
            raise ControllerFenced(
                f"broker {self._image.controller_id} is the controller of epoch"
                f" {self._image.controller_epoch}"
            ) from None
        if reason.path == layout.VERSION:
            await self._catch_up()
            raise VersionConflict(f"at version {self._image.version}") from None
        if any(isinstance(guard, Delete) and guard.path == reason.path for guard in guards):
            await self._catch_up()
            raise VersionConflict(f"{reason.path} is there: the broker is alive") from None
        if any(guard.path == reason.path for guard in guards):
            raise reason
        raise StoreUnusable(
            f"the node {reason.path} in ZooKeeper was changed by something else than zhumq"
        ) from None

    def _controller_guard(self, image: ClusterImage, controller_epoch: int) -> Operation:
        token = self._membership.controller_token(controller_epoch)
        if token is None or image.controller_epoch != controller_epoch:
            raise ControllerFenced(
                f"broker {image.controller_id} is the controller of epoch {image.controller_epoch}"
            )
        return Check(path=layout.CONTROLLER, version=token)

    async def _follow(self) -> None:
        """Keep up with the ensemble for as long as the store is open."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                async with self._turn:
                    await self._catch_up()
            except (ConnectionLost, SessionOver):
                await self._membership.wait_until_connected()
                await asyncio.sleep(RETRY_SECONDS)
                self._changed.set()
            except Exception:
                # A damaged node, or a watcher's own fault. The broker lives on with what it has.
                logger.exception("cannot follow the cluster; trying again")
                await asyncio.sleep(FAULT_SECONDS)
                self._changed.set()

    async def _catch_up(self) -> None:
        """Make our picture at least as new as the ensemble's is now, change by change."""
        # The watch is set by the same request that reads: nothing fits between the two.
        node = await self._client.get(layout.VERSION, self._changed.set)
        newest = layout.decode_counters(node.data).version
        lacking = range(self._image.version + 1, newest + 1)
        if not lacking:
            return
        if len(lacking) <= layout.ENTRIES_KEPT:
            paths = [layout.entry_path(version) for version in lacking]
            nodes = await self._client.get_all(paths)
            entries = [
                layout.decode_entry(path, each.data)
                for path, each in zip(paths, nodes, strict=True)
                if each is not None
            ]
            if len(entries) == len(lacking):
                self._token = node.version
                for entry in entries:
                    self._take_over(apply_changes(self._image, entry.changes))
                return
        image, self._token = await read_image(self._client)
        self._take_over(image)

    def _take_over(self, image: ClusterImage) -> None:
        self._image = image
        self._membership.image_changed(image)
        for watcher in self._watchers:
            watcher(image)

    async def _trim(self, newest: int) -> None:
        """Remove entries that no broker needs any more. Whoever is further behind reads anew."""
        oldest_kept = layout.entry_path(newest - layout.ENTRIES_KEPT + 1)
        with contextlib.suppress(ConnectionLost, SessionOver, NodeMissing):
            names = await self._client.children(layout.CHANGES)
            paths = [f"{layout.CHANGES}/{name}" for name in sorted(names)]
            old = [path for path in paths if path < oldest_kept][:TRIM_AT_ONCE_MAX]
            if old:
                await self._client.multi([Delete(path=path) for path in old])

    def _spawn(
        self, work: Coroutine[Any, Any, Any], name: str | None = None
    ) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        # Whoever proposed has either heard of it or gone away; the others have no one to tell.
        if error is not None and task.get_name() != "propose":
            logger.error("a task of the store failed", exc_info=error)


def _load_client() -> "type[ZookeeperClient]":
    # Imported here because a single node does without kazoo.
    try:
        from zhumq.cluster.zookeeper_client import ZookeeperClient  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        if missing.name is None or not missing.name.startswith("kazoo"):
            raise
        raise StoreUnusable("--zookeeper needs kazoo: `pip install 'zhumq[cluster]'`") from None
    return ZookeeperClient


async def _prepare_chroot(client: Client, ensemble: str, create: bool) -> None:
    await client.sync()
    _, slash, chroot = ensemble.partition("/")
    if not slash or await client.exists("/"):
        return
    if not create:
        raise StoreUnusable(
            f"there is no node /{chroot} in ZooKeeper at {ensemble}:"
            " create it, or correct the path at the end of --zookeeper"
        )
    await client.ensure_chroot()


def _check_cluster(image: ClusterImage, ensemble: str, expected_cluster_id: str | None) -> None:
    if expected_cluster_id is not None and image.cluster_id != expected_cluster_id:
        raise StoreUnusable(
            f"the data folder belongs to cluster {expected_cluster_id}, and {ensemble} is"
            f" cluster {image.cluster_id}: correct --zookeeper or --data-dir"
        )


async def _read_secret(client: Client) -> bytes:
    try:
        return layout.decode_secret((await client.get(layout.SECRET)).data)
    except NodeMissing as missing:
        raise StoreUnusable(f"the node {missing.path} is missing in ZooKeeper") from None


async def _begin_cluster(
    client: Client, ensemble: str, cluster_id: str, expected_cluster_id: str | None
) -> None:
    """Make the first nodes, unless they are there."""
    if await client.exists(layout.FORMAT):
        return
    if expected_cluster_id is not None:
        raise StoreUnusable(
            f"the data folder belongs to cluster {expected_cluster_id}, and there is none at"
            f" {ensemble}: correct --zookeeper or --data-dir"
        )
    try:
        await client.multi(layout.first_operations(cluster_id, secrets.token_bytes(SECRET_BYTES)))
    except NodeTaken as taken:
        # Two brokers of a new cluster may begin it at the same moment: one of them is enough.
        if not await client.exists(layout.FORMAT):
            raise StoreUnusable(
                f"{ensemble} has a node {taken.path} that is not zhumq's: choose another chroot,"
                " such as HOST:PORT/zhumq"
            ) from None
