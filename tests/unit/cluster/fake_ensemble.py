"""An in-memory ensemble whose client loses answers, sessions and time exactly when a test requests it."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster.ensemble_link import EnsembleLink
from zhumq.cluster.znodes import (
    ANY_VERSION,
    Check,
    ConnectionLost,
    Create,
    Delete,
    LinkState,
    Node,
    NodeChanged,
    NodeMissing,
    NodeTaken,
    Operation,
    SessionOver,
    SetData,
    ZnodeError,
)
from zhumq.cluster.zookeeper_reader import read_image
from zhumq.cluster.zookeeper_store import ZookeeperStore

Watch = Callable[[], None]
SPINS = 12


@dataclass(slots=True)
class Request:
    """A request of the client and its progress."""

    run: Callable[[], Any]
    path: str
    future: "asyncio.Future[Any]"
    is_served: bool = False
    result: Any = None
    # How many link events the loop processes before this answer.
    after_events: int = 0


@dataclass(slots=True)
class StoredNode:
    data: bytes
    owner: int
    zxid: int
    version: int = 0
    modified: int = field(default=0)


class FakeEnsemble:
    """A Client with its server. Requests wait in a queue as in kazoo.

    Requests made between two connections are sent in the next connection, whatever its session. A
    broken connection ends the others.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, StoredNode] = {}
        self.session = 1  # on the server; 0: expired
        self.is_up = True
        self.is_expired_link = False  # the client knows that its session expired
        self.requests: list[Request] = []
        self.events: list[tuple[LinkState, int]] = []  # link events, in order
        self.events_seen = 0
        self.on_link: Callable[[LinkState, int], None] = lambda _link, _session: None
        self.answers_at_once = True
        self._sessions = 1
        self._zxid = 0
        self._watches: defaultdict[str, list[Watch]] = defaultdict(list)
        self._counter = 0
        for operation in layout.first_operations("c", b"s" * 32):
            self._carry_out(operation)

    # The client

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        found = await self._ask(path, lambda: self._read(path, watch))
        assert isinstance(found, Node)
        return found

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        found: list[Node | None] = []
        for path in paths:
            try:
                found.append(await self.get(path))
            except NodeMissing:
                found.append(None)
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> bool:
        def look() -> bool:
            self._watch(path, watch)
            return path in self.nodes

        return bool(await self._ask(path, look))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def look() -> list[str]:
            self._watch(f"{path}/", watch)
            return [each.rpartition("/")[2] for each in self.nodes if _parent(each) == path]

        return list(await self._ask(path, look))

    async def multi(self, operations: Sequence[Operation]) -> list[str]:
        return list(await self._ask(operations[0].path, lambda: self._multi(operations)))

    async def sync(self) -> None:
        """No effect: there is one server."""

    async def ensure_chroot(self) -> None:
        """No effect: there is no chroot."""

    async def close(self) -> None:
        self._end_requests(ConnectionLost)

    # The network and the server, as the test controls them

    def suspend(self) -> None:
        """Break the connection: the client does not learn the results of its requests."""
        if not self.is_up:
            return
        self.is_up = False
        self._event(LinkState.SUSPENDED)
        self._end_requests(ConnectionLost)

    def expire(self) -> None:
        """Expire the session on the server, with its ephemeral nodes."""
        for path in [path for path, node in self.nodes.items() if node.owner == self.session != 0]:
            self._remove(path)
        self.session = 0

    def connect(self) -> None:
        """One attempt to connect: the session continues, or the client learns that it expired."""
        if self.is_up:
            return
        if self.session == 0 and not self.is_expired_link:
            self.is_expired_link = True
            self._event(LinkState.LOST)
            self._end_requests(SessionOver)
            return
        if self.session == 0:
            self._sessions += 1
            self.session = self._sessions
        self.is_up, self.is_expired_link = True, False
        self._event(LinkState.CONNECTED)

    def see_event(self) -> None:
        """Deliver the next link event to the loop."""
        if self.events_seen < len(self.events):
            link, session = self.events[self.events_seen]
            self.events_seen += 1
            self.on_link(link, session)

    def serve(self) -> None:
        """The server carries out its next request."""
        request = next((each for each in self.requests if not each.is_served), None)
        if request is None or not self.is_up or self.session == 0:
            return
        try:
            request.result = request.run()
        except ZnodeError as error:
            request.result = error
        request.is_served = True
        request.after_events = len(self.events)

    def answer(self) -> None:
        """The client gets the next answer."""
        if not self.requests or not self.requests[0].is_served:
            return
        request = self.requests.pop(0)
        while self.events_seen < request.after_events:
            self.see_event()
        if request.future.done():
            return
        if isinstance(request.result, ZnodeError):
            request.future.set_exception(request.result)
        else:
            request.future.set_result(request.result)

    async def spin(self) -> None:
        """Let every ready task run."""
        for _ in range(SPINS):
            await asyncio.sleep(0)
            if self.answers_at_once:
                self.serve()
                self.answer()

    async def settle(self, is_settled: Callable[[], bool], seconds: float = 10.0) -> None:
        """Make everything work from now on, and wait until `is_settled`."""
        self.answers_at_once = True
        deadline = asyncio.get_running_loop().time() + seconds
        while not (is_settled() and self.is_up and self.events_seen == len(self.events)):
            assert asyncio.get_running_loop().time() < deadline, "the cluster does not settle"
            if self.session == 0:
                self.suspend()
            self.connect()
            self.see_event()
            await self.spin()

    # Inside

    def _event(self, link: LinkState) -> None:
        self.events.append((link, self.session if link is LinkState.CONNECTED else 0))
        # A broken connection calls every watch, as in kazoo.
        if link is not LinkState.CONNECTED:
            watches, self._watches = self._watches, defaultdict(list)
            self._fire([watch for some in watches.values() for watch in some])

    async def _ask(self, path: str, run: Callable[[], Any]) -> Any:
        future = asyncio.get_running_loop().create_future()
        self.requests.append(Request(run=run, path=path, future=future))
        return await future

    def _end_requests(self, error: type[ZnodeError]) -> None:
        requests, self.requests = self.requests, []
        for request in requests:
            if not request.future.done():
                request.future.set_exception(error(request.path))

    def _read(self, path: str, watch: Watch | None) -> Node:
        node = self.nodes.get(path)
        if node is None:
            raise NodeMissing(path)
        self._watch(path, watch)
        return Node(
            data=node.data,
            version=node.version,
            created_zxid=node.zxid,
            modified_zxid=node.modified,
            owner_session=node.owner,
        )

    def _multi(self, operations: Sequence[Operation]) -> list[str]:
        before = {path: StoredNode(**_fields(node)) for path, node in self.nodes.items()}
        self._zxid += 1
        try:
            made = [self._carry_out(operation) for operation in operations]
        except ZnodeError:
            self.nodes = before
            raise
        return [path for path in made if path is not None]

    def _carry_out(self, operation: Operation) -> str | None:
        path = operation.path
        if isinstance(operation, Create):
            if operation.sequential:
                self._counter += 1
                path = f"{path}{self._counter:010d}"
            if path in self.nodes:
                raise NodeTaken(path)
            owner = self.session if operation.ephemeral else 0
            self.nodes[path] = StoredNode(operation.data, owner, self._zxid, 0, self._zxid)
            self._changed(path)
            return path
        node = self.nodes.get(path)
        if node is None:
            raise NodeMissing(path)
        if isinstance(operation, Delete):
            self._remove(path)
            return None
        if isinstance(operation, SetData | Check) and operation.version not in (
            ANY_VERSION,
            node.version,
        ):
            raise NodeChanged(path)
        if isinstance(operation, SetData):
            node.data, node.version, node.modified = operation.data, node.version + 1, self._zxid
            self._changed(path)
        return None

    def _remove(self, path: str) -> None:
        del self.nodes[path]
        self._changed(path)

    def _watch(self, key: str, watch: Watch | None) -> None:
        if watch is not None:
            self._watches[key].append(watch)

    def _changed(self, path: str) -> None:
        self._fire([*self._watches.pop(path, []), *self._watches.pop(f"{_parent(path)}/", [])])

    def _fire(self, watches: Sequence[Watch]) -> None:
        for watch in watches:
            asyncio.get_running_loop().call_soon(watch)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _fields(node: StoredNode) -> dict[str, Any]:
    return {name: getattr(node, name) for name in ("data", "owner", "zxid", "version", "modified")}


async def open_fake_store(ensemble: FakeEnsemble) -> ZookeeperStore:
    """A store on the ensemble, as `ZookeeperStore.open` creates it on a real one."""
    link = EnsembleLink(connect_ms_max=60_000)
    ensemble.on_link = link.changed
    ensemble.events.append((LinkState.CONNECTED, ensemble.session))
    ensemble.see_event()
    reading = asyncio.ensure_future(read_image(ensemble))
    while not reading.done():
        await ensemble.spin()
    image, token = reading.result()
    store = ZookeeperStore(ensemble, link, image, token, b"s" * 32, session_timeout_ms=60_000)
    store.start()
    return store
