"""The metadata store on ZooKeeper: follows the image with one watch, writes it in transactions."""

import asyncio
import contextlib
import logging
import random
import secrets
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster.ensemble_link import EnsembleLink
from zhumq.cluster.ensemble_security import OPEN, EnsembleSecurity
from zhumq.cluster.membership import ControllerListener, Membership
from zhumq.cluster.node_acls import restrict_nodes, restrict_root, warn_if_open
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
    Create,
    Delete,
    NodeChanged,
    NodeForbidden,
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
# How long a proposal retries through lost connections before its result is reported as unknown.
PROPOSAL_SECONDS_MAX: Final = 30.0
CLOSE_SECONDS_MAX: Final = 5.0  # for proposals in flight at a stop
RETRY_SECONDS: Final = 0.1
FAULT_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 10.0
# The broker that writes a version divisible by this number deletes old entries.
TRIM_INTERVAL: Final = 64
TRIM_AT_ONCE_MAX: Final = 1_000
SECRET_BYTES: Final = 32

# After this many consecutive conflicts a transaction waits before it retries: hundreds of brokers that
# write at the same moment would otherwise keep conflicting with each other.
CONFLICTS_AT_ONCE_MAX: Final = 4
CONFLICT_PAUSE_SECONDS: Final = 0.005
CONFLICT_PAUSE_SECONDS_MAX: Final = 0.64

# Plans on the newest image: the changes, and the operations that guard them or go with them.
Plan = Callable[[ClusterImage], tuple[Sequence[Change], Sequence[Operation]]]


def conflict_pause_seconds(conflicts: int, chance: float) -> float:
    """The wait after this many consecutive conflicts; `chance` is a random number from 0 to 1."""
    if conflicts <= CONFLICTS_AT_ONCE_MAX:
        return 0.0
    doublings = min(conflicts - CONFLICTS_AT_ONCE_MAX, 10)
    return chance * min(CONFLICT_PAUSE_SECONDS * (1 << doublings), CONFLICT_PAUSE_SECONDS_MAX)


class ZookeeperStore:
    """A MetadataStore on an ensemble. `open` creates it with the newest metadata image."""

    def __init__(
        self,
        client: Client,
        link: EnsembleLink,
        image: ClusterImage,
        token: int,
        secret: bytes,
        *,
        session_timeout_ms: int,
    ) -> None:
        # Known to the brokers of this cluster and to every client that may read its ZooKeeper nodes: all
        # that reach the ensemble, unless the nodes have ACLs.
        self.secret = secret
        self._client = client
        self._image = image
        # The version of the node /version when it held the version of our image.
        self._token = token
        self._link = link
        self._membership = Membership(link, client, self, session_timeout_ms)
        self._watchers: list[Watcher] = []
        self._lock = asyncio.Lock()
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
        security: EnsembleSecurity = OPEN,
    ) -> Self:
        """Connect to `HOST:PORT,.../CHROOT` and read the metadata image, or create a cluster there.

        Raises StoreUnusable, in bounded time, if no server answers, the chroot is missing, or its
        nodes belong to another application or another cluster.
        """
        zookeeper_client = _load_client()
        link = EnsembleLink(connect_ms_max)
        client = await zookeeper_client.connect(
            ensemble,
            session_timeout_ms=session_timeout_ms,
            connect_ms_max=connect_ms_max,
            on_link=link.changed,
            security=security,
        )

        async def read() -> tuple[ClusterImage, int, bytes]:
            await _prepare_chroot(client, ensemble, create_chroot)
            if security.sets_acl:
                await restrict_root(client, ensemble)
            await _begin_cluster(client, ensemble, new_cluster_id, expected_cluster_id)
            return *await read_image(client), await _read_secret(client)

        try:
            image, token, secret = await link.retry_until_answered(read, f"{ensemble} was read")
            _check_cluster(image, ensemble, expected_cluster_id)
        except BaseException:
            await client.close()
            raise
        store = cls(client, link, image, token, secret, session_timeout_ms=session_timeout_ms)
        store.start()
        store._spawn(
            restrict_nodes(client, link) if security.sets_acl else warn_if_open(client, ensemble)
        )
        return store

    def start(self) -> None:
        """Follow the nodes of the cluster, and keep this broker's membership up."""
        self._spawn(self._follow())
        self._spawn(self._membership.maintain())
        self._changed.set()

    @property
    def image(self) -> ClusterImage:
        return self._image

    @property
    def session(self) -> SessionState:
        return self._membership.state

    @property
    def broker_epoch(self) -> int | None:
        """The epoch of this broker's registration; None while its session may have expired."""
        return self._membership.broker_epoch

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def watch_session(self, watcher: Callable[[SessionState], None]) -> None:
        """Call the watcher with every new session state, on the event loop."""
        self._membership.watch(watcher)

    async def register(self, broker: Broker) -> None:
        """Raises BrokerIdTaken, with its address, if another live broker has the id."""
        await self._membership.register(broker)

    def campaign(self, broker_id: BrokerId, listener: ControllerListener) -> None:
        """Run for controller, in this session and in every later one."""
        self._membership.campaign(broker_id, listener)

    async def propose(
        self,
        changes: Sequence[Change],
        expected_version: int,
        *,
        controller_epoch: int | None = None,
    ) -> ClusterImage:
        """With a controller epoch the changes count only while that controller is the newest one.

        Otherwise raises ControllerFenced.
        """

        def plan(image: ClusterImage) -> tuple[Sequence[Change], Sequence[Operation]]:
            if image.version != expected_version:
                raise VersionConflict(f"at version {image.version}, not {expected_version}")
            guards = layout.gone_guards(changes)
            if controller_epoch is not None:
                guards.insert(0, self._controller_guard(image, controller_epoch))
            return changes, guards

        return await self._run_to_completion(plan)

    async def transact(self, plan: Plan) -> ClusterImage:
        """Plan on the newest image, and again after every conflict."""
        conflicts = 0
        while True:
            with contextlib.suppress(VersionConflict):
                return await self._run_to_completion(plan)
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

    def check_for_changes(self) -> None:
        """Read the newest image if there is a newer one."""
        self._changed.set()

    async def _run_to_completion(self, plan: Plan) -> ClusterImage:
        # A started transaction is completed even if its client disconnects: the ensemble and our
        # image must not diverge.
        task = self._spawn(self._transact_once(plan), name="propose")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if waiting is not None and waiting.cancelling():
                raise
            # The store was closed and cancelled the proposal; the waiting task was not cancelled.
            raise StoreUnavailable("the store is closed") from None

    async def _transact_once(self, plan: Plan) -> ClusterImage:
        async with self._lock:
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
            self._publish(after)
        if after.version % TRIM_INTERVAL == 0:
            self._spawn(self._trim(after.version))
        return after

    async def _commit(
        self, operations: Sequence[Operation], version: int, mark: str, guards: Sequence[Operation]
    ) -> None:
        """Return when the operations have been carried out exactly once."""
        tried_before = False
        while True:
            try:
                await self._client.multi(operations)
            except (ConnectionLost, SessionOver):
                # The result is unknown. A retry is safe: the version of /version guards it.
                tried_before = True
                await self._link.wait_until_connected()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except (NodeChanged, NodeTaken, NodeMissing) as reason:
                try:
                    if tried_before and await self._is_ours(version, mark):
                        return
                    await self._raise_refusal(reason, guards)
                except (ConnectionLost, SessionOver):
                    # The reason of the refusal is unknown: retry, and it is refused again.
                    await self._link.wait_until_connected()
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

    async def _raise_refusal(
        self, reason: NodeChanged | NodeTaken | NodeMissing, guards: Sequence[Operation]
    ) -> None:
        """Raise the error that a failed operation means for its proposal."""
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
            raise VersionConflict(f"{reason.path} exists: the broker is alive") from None
        if any(guard.path == reason.path for guard in guards):
            raise reason
        raise StoreUnusable(
            f"the node {reason.path} in ZooKeeper was changed by another application than zhumq"
        ) from None

    def _controller_guard(self, image: ClusterImage, controller_epoch: int) -> Operation:
        token = self._membership.controller_token(controller_epoch)
        if token is None or image.controller_epoch != controller_epoch:
            raise ControllerFenced(
                f"broker {image.controller_id} is the controller of epoch {image.controller_epoch}"
            )
        return Check(path=layout.CONTROLLER, version=token)

    async def _follow(self) -> None:
        """Follow the changes of other brokers until the store is closed."""
        is_forbidden = False
        while True:
            try:
                await self._wait_for_change()
                self._changed.clear()
                async with self._lock:
                    await self._catch_up()
                is_forbidden = False
            except (ConnectionLost, SessionOver):
                await self._link.wait_until_connected()
                await asyncio.sleep(RETRY_SECONDS)
                self._changed.set()
            except NodeForbidden as reason:
                if not is_forbidden:  # once, not every few seconds
                    logger.error("cannot follow the metadata of the cluster: %s", reason)  # noqa: TRY400
                is_forbidden = True
                await asyncio.sleep(FAULT_SECONDS)
                self._changed.set()
            except Exception:
                # A damaged node, or a fault in a watcher. The broker continues with its current image.
                logger.exception("cannot follow the metadata of the cluster; trying again")
                await asyncio.sleep(FAULT_SECONDS)
                self._changed.set()

    async def _wait_for_change(self) -> None:
        # ZooKeeper does not report changes of a node that this broker may not read any more: look at times.
        while not self._changed.is_set():
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                node = await self._client.get(layout.VERSION)
                if layout.decode_counters(node.data).version != self._image.version:
                    self._changed.set()

    async def _catch_up(self) -> None:
        """Bring our image up to the ensemble's current version, change by change."""
        # One request reads and sets the watch, so no change can fall between the two.
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
                    self._publish(apply_changes(self._image, entry.changes))
                return
        image, self._token = await read_image(self._client)
        self._publish(image)

    def _publish(self, image: ClusterImage) -> None:
        self._image = image
        self._membership.on_image_changed(image)
        for watcher in self._watchers:
            watcher(image)

    async def _trim(self, newest: int) -> None:
        """Delete old entries. A broker that is further behind reads the whole image again."""
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
        # A proposal raises its error to its caller; other tasks have no caller.
        if error is not None and task.get_name() != "propose":
            logger.error("a task of the store failed", exc_info=error)


def _load_client() -> "type[ZookeeperClient]":
    # Imported here because a single node does not need kazoo.
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
    """Create the first nodes unless they exist."""
    if await client.exists(layout.FORMAT):
        if not await client.exists(layout.SECURITY):  # written by a release before it
            with contextlib.suppress(NodeTaken):
                await client.multi([Create(path=layout.SECURITY)])
        return
    if expected_cluster_id is not None:
        raise StoreUnusable(
            f"the data folder belongs to cluster {expected_cluster_id}, and there is none at"
            f" {ensemble}: correct --zookeeper or --data-dir"
        )
    try:
        await client.multi(layout.first_operations(cluster_id, secrets.token_bytes(SECRET_BYTES)))
    except NodeTaken as taken:
        # Two brokers may create a new cluster at the same moment: one of them is enough.
        if not await client.exists(layout.FORMAT):
            raise StoreUnusable(
                f"{ensemble} has a node {taken.path} that is not zhumq's: choose another chroot,"
                " such as HOST:PORT/zhumq"
            ) from None
