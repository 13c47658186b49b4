"""A ZooKeeper session on the event loop. The only module that uses kazoo and its threads."""

import asyncio
import contextlib
import importlib.util
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Self, assert_never

from kazoo.client import KazooClient, KazooState  # type: ignore[import-untyped]
from kazoo.exceptions import (  # type: ignore[import-untyped]
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    MarshallingError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
    SystemZookeeperError,
)
from kazoo.handlers.threading import (  # type: ignore[import-untyped]
    SequentialThreadingHandler,
)
from kazoo.protocol.states import KeeperState  # type: ignore[import-untyped]
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE  # type: ignore[import-untyped]

from zhumq.cluster.ensemble_security import (
    OPEN,
    AuthScheme,
    EnsembleCredentials,
    EnsembleSecurity,
    EnsembleTls,
)
from zhumq.cluster.store import StoreUnusable
from zhumq.cluster.znodes import (
    Check,
    ConnectionLost,
    Create,
    CredentialsRefused,
    Delete,
    LinkState,
    Node,
    NodeChanged,
    NodeForbidden,
    NodeMissing,
    NodePermission,
    NodeRefused,
    NodeTaken,
    NotAuthenticated,
    Operation,
    SessionOver,
    SetData,
    ZnodeError,
)

READS_AT_ONCE_MAX: Final = 500
RECONNECT_SECONDS_MAX: Final = 1.0
REVIVE_SECONDS: Final = 0.2
REVIVE_REFUSED_SECONDS: Final = 2.0  # after the ensemble refused the credentials
_ERRORS: Final[tuple[tuple[type[Exception], type[ZnodeError]], ...]] = (
    (NoNodeError, NodeMissing),
    (NodeExistsError, NodeTaken),
    (BadVersionError, NodeChanged),
    (NoAuthError, NodeForbidden),
    (InvalidACLError, NotAuthenticated),
    (AuthFailedError, CredentialsRefused),
    (ConnectionLoss, ConnectionLost),
    (OperationTimeoutError, ConnectionLost),
    (SessionMovedError, ConnectionLost),
    # A server answers so to any failure of its own while it prepares a request: nothing is wrong with ours.
    (MarshallingError, ConnectionLost),
    (SystemZookeeperError, ConnectionLost),
    (SessionExpiredError, SessionOver),
)

logger = logging.getLogger(__name__)
# kazoo logs every failed attempt to connect; the broker logs the states of its session itself.
_quiet = logging.getLogger("zhumq.cluster.kazoo")
_quiet.setLevel(logging.ERROR)


_LINK_STATES: Final = {
    KazooState.CONNECTED: LinkState.CONNECTED,
    KazooState.SUSPENDED: LinkState.SUSPENDED,
    KazooState.LOST: LinkState.LOST,
}


class ZookeeperClient:
    """One session, replaced by a new one after it was lost. Created by `connect`."""

    def __init__(
        self,
        kazoo: Any,
        handler: "_Handler",
        on_link: Callable[[LinkState, int], None],
        operation_ms_max: int,
    ) -> None:
        self._kazoo = kazoo
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._operation_seconds_max = operation_ms_max / 1_000
        self._on_link = on_link
        self._closed = False
        self._reviving: asyncio.Task[None] | None = None
        kazoo.add_listener(self._state_changed)

    @classmethod
    async def connect(
        cls,
        ensemble: str,
        *,
        session_timeout_ms: int,
        connect_ms_max: int,
        on_link: Callable[[LinkState, int], None],
        security: EnsembleSecurity = OPEN,
    ) -> Self:
        """Connect. Raises StoreUnusable if no server answers in time."""
        if security.tls is not None:
            security.tls.context()  # Raises what is wrong with its files, before the first attempt.
        handler = _Handler(security.tls)
        try:
            kazoo = KazooClient(
                hosts=ensemble,
                timeout=session_timeout_ms / 1_000,
                handler=handler,
                default_acl=CREATOR_ALL_ACL if security.sets_acl else None,
                **_credential_options(security.credentials),
                connection_retry={
                    "max_tries": -1,
                    "delay": 0.05,
                    "max_delay": RECONNECT_SECONDS_MAX,
                },
                logger=_quiet,
            )
        except (ValueError, KazooException) as reason:
            raise StoreUnusable(f"{ensemble!r} names no ZooKeeper ensemble: {reason}") from None
        client = cls(kazoo, handler, on_link, session_timeout_ms)
        live = kazoo.start_async()
        if not await asyncio.to_thread(live.wait, connect_ms_max / 1_000):
            await client.close()
            raise StoreUnusable(
                f"no ZooKeeper answers at {ensemble} within {connect_ms_max / 1_000:g} s:"
                f" {handler.failure or 'start the ensemble, or correct --zookeeper'}"
            )
        return client

    async def get(self, path: str, watch: Callable[[], None] | None = None) -> Node:
        return _node(await self._answer(self._kazoo.get_async(path, self._on_loop(watch)), path))

    async def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        found: list[Node | None] = []
        for start in range(0, len(paths), READS_AT_ONCE_MAX):
            some = paths[start : start + READS_AT_ONCE_MAX]
            results = await asyncio.gather(*map(self.get, some), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException) and not isinstance(result, NodeMissing):
                    raise result
                found.append(None if isinstance(result, BaseException) else result)
        return found

    async def exists(self, path: str, watch: Callable[[], None] | None = None) -> bool:
        result = self._kazoo.exists_async(path, self._on_loop(watch))
        return await self._answer(result, path) is not None

    async def children(self, path: str, watch: Callable[[], None] | None = None) -> list[str]:
        result = self._kazoo.get_children_async(path, self._on_loop(watch))
        return list(await self._answer(result, path))

    async def multi(self, operations: Sequence[Operation]) -> list[str]:
        transaction = self._kazoo.transaction()
        for operation in operations:
            _add(transaction, operation)
        path = operations[0].path
        with self._while_in_session():
            answers = await self._answer(transaction.commit_async(), path)
            for operation, answer in zip(operations, answers, strict=True):
                # kazoo reports every other operation as rolled back or as not tried.
                if isinstance(answer, Exception) and not isinstance(
                    answer, (RolledBackError, RuntimeInconsistency)
                ):
                    raise translated(answer, operation.path)
            failed = [answer for answer in answers if isinstance(answer, Exception)]
            if failed:
                raise translated(failed[0], path)
        return [answer for answer in answers if isinstance(answer, str)]

    async def acl(self, path: str) -> frozenset[NodePermission]:
        entries, _ = await self._answer(self._kazoo.get_acls_async(path), path)
        return frozenset((each.id.scheme, each.id.id, each.perms) for each in entries)

    async def restrict(self, path: str) -> None:
        await self._answer(self._kazoo.set_acls_async(path, CREATOR_ALL_ACL), path)

    async def sync(self) -> None:
        await self._answer(self._kazoo.sync_async("/"), "/")

    async def ensure_chroot(self) -> None:
        # kazoo creates only the last part of a nested chroot, so create it without the chroot.
        chroot, self._kazoo.chroot = self._kazoo.chroot, ""
        try:
            # The parents of the chroot are not the cluster's, so everyone may use them.
            result = self._kazoo.ensure_path_async(chroot, OPEN_ACL_UNSAFE)
            await self._answer(result, chroot)
        finally:
            self._kazoo.chroot = chroot

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._kazoo.remove_listener(self._state_changed)
        if self._reviving is not None:
            await asyncio.wait({self._reviving})
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._kazoo.stop()
        self._kazoo.close()

    def _state_changed(self, state: str) -> None:
        """Called in kazoo's connection thread, which must not block."""
        # Read the id here, in the thread that sets it. On the event loop it could be missing or belong
        # to another session while the change of the link is still on its way to the loop.
        client_id = self._kazoo.client_id
        self._call_on_loop(
            self._on_link, _LINK_STATES[state], int(client_id[0]) if client_id else 0
        )
        if self._kazoo.client_state == KeeperState.CLOSED:
            logger.warning("the ZooKeeper client has stopped: restarting it")
            self._call_on_loop(self._revive, REVIVE_SECONDS)
        elif self._kazoo.client_state == KeeperState.AUTH_FAILED:
            logger.warning("ZooKeeper refused the credentials of this broker: trying again")
            self._call_on_loop(self._revive, REVIVE_REFUSED_SECONDS)

    def _revive(self, pause_seconds: float) -> None:
        """Restart kazoo, with a new session, after its connection thread has ended.

        An answer out of order ends that thread for good, where the Java client only reconnects
        (github.com/python-zk/kazoo/issues/254). So does a connection that breaks during SASL.
        """
        if not self._closed:
            self._reviving = self._loop.create_task(self._restart(pause_seconds))

    async def _restart(self, pause_seconds: float) -> None:
        while not self._closed:
            await asyncio.sleep(pause_seconds)
            try:
                await asyncio.to_thread(self._kazoo.start_async)
            except Exception:
                logger.exception("the ZooKeeper client does not restart")
            else:
                return

    def _call_on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        # The loop may be closed while kazoo's threads still make callbacks.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _on_loop(self, watch: Callable[[], None] | None) -> Callable[[Any], None] | None:
        if watch is None:
            return None
        return lambda _event: self._call_on_loop(watch)

    async def _answer(self, result: Any, path: str) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()
        result.rawlink(lambda done: self._call_on_loop(_settle, future, done, path))
        connection = self._handler.connection
        with self._while_in_session():
            try:
                async with asyncio.timeout(self._operation_seconds_max):
                    return await future
            except TimeoutError:
                self._handler.drop(connection, "ZooKeeper does not answer")
                raise ConnectionLost(path) from None

    @contextlib.contextmanager
    def _while_in_session(self) -> Iterator[None]:
        """Drop the connection if a request finds the session over.

        A follower may let a client connect while its session ends. It then answers pings and reads for as
        long as the connection lives, and only requests to write find out.
        """
        connection = self._handler.connection
        try:
            yield
        except SessionOver:
            self._handler.drop(connection, "the session with ZooKeeper is over")
            raise


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with TLS connections of our own, and connections that can be given up.

    kazoo trusts the CAs of the system beside the given one, and sees an answer that arrived in one TLS
    record with the answer before it only when the next record arrives. And it waits for ever on a connection that
    gives no answers as long as requests are sent often: it looks for the answer to a ping only between them.
    """

    def __init__(self, tls: EnsembleTls | None) -> None:
        super().__init__()
        self._tls = tls
        self.failure = ""  # why the last attempt to connect with TLS failed
        self.connection: socket.socket | None = None  # the newest

    def create_connection(self, *arguments: Any, **named: Any) -> Any:
        self.connection = self._connect(*arguments, **named)
        return self.connection

    def drop(self, connection: socket.socket | None, reason: str) -> None:
        """End a connection that is of no use. kazoo finds it ended, and connects again with its session."""
        if connection is None or connection is not self.connection:
            return
        self.connection = None
        with contextlib.suppress(OSError):  # kazoo has closed it.
            # Not that of an SSLSocket, which also changes what kazoo's thread reads with.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)
            logger.warning("%s: connecting again", reason)

    def _connect(self, *arguments: Any, **named: Any) -> Any:
        if self._tls is None:
            return super().create_connection(*arguments, **named)
        address = named["address"]
        try:
            connection = _dial(self._tls.context(), address, named["hostname"], named["timeout"])
        except (OSError, StoreUnusable) as reason:
            failure = f"{address[0]}:{address[1]}: {_reason_of(reason)}"
            if failure != self.failure:
                logger.warning("cannot connect to ZooKeeper at %s", failure)
            self.failure = failure
            raise OSError(failure) from None
        self.failure = ""
        return connection

    def select(self, readers: Any, writers: Any, others: Any, timeout: Any = None) -> Any:
        decrypted = [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]
        ready = super().select(readers, writers, others, 0 if decrypted else timeout)
        return ([*{*ready[0], *decrypted}], *ready[1:])


def _dial(
    context: ssl.SSLContext, address: tuple[str, int], hostname: str, timeout: float
) -> ssl.SSLSocket:
    connection = socket.create_connection(address, timeout)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(connection, server_hostname=hostname)
    except BaseException:
        connection.close()
        raise


def _reason_of(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason}): is this ZooKeeper's secureClientPort?"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _credential_options(credentials: EnsembleCredentials | None) -> dict[str, Any]:
    """The options of kazoo. It logs neither of them at the levels that its logger has here."""
    if credentials is None:
        return {}
    username, password = credentials.username, credentials.password.reveal()
    if credentials.scheme is AuthScheme.DIGEST:
        return {"auth_data": [("digest", f"{username}:{password}")]}
    if importlib.util.find_spec("puresasl") is None:
        raise StoreUnusable(
            "zookeeper.auth.scheme=sasl needs pure-sasl: `pip install 'zhumq[cluster]'`"
        )
    return {"sasl_options": {"mechanism": "DIGEST-MD5", "username": username, "password": password}}


def _settle(future: "asyncio.Future[Any]", done: Any, path: str) -> None:
    if future.done():
        return
    if done.successful():
        future.set_result(done.value)
    else:
        future.set_exception(translated(done.exception, path))


def translated(error: Exception, path: str) -> Exception:
    """The store's error for one of kazoo's."""
    for theirs, ours in _ERRORS:
        if isinstance(error, theirs):
            return ours(path)
    if isinstance(error, RuntimeError):
        # Answers out of order: the result of the request is unknown.
        return ConnectionLost(path)
    if isinstance(error, KazooException):
        return NodeRefused(path, f"{type(error).__name__} {error}")
    return error


def _node(answer: Any) -> Node:
    data, stat = answer
    return Node(
        data=data,
        version=stat.version,
        created_zxid=stat.czxid,
        modified_zxid=stat.mzxid,
        owner_session=stat.ephemeralOwner,
    )


def _add(transaction: Any, operation: Operation) -> None:
    match operation:
        case Create():
            transaction.create(
                operation.path,
                operation.data,
                ephemeral=operation.ephemeral,
                sequence=operation.sequential,
            )
        case SetData():
            transaction.set_data(operation.path, operation.data, operation.version)
        case Delete():
            transaction.delete(operation.path)
        case Check():
            transaction.check(operation.path, operation.version)
        case _:
            assert_never(operation)
