"""The connection that every administrative operation takes: requests to the brokers at one address."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from zhumq.admin.errors import AdminError, Unavailable, kafka_errors
from zhumq.admin.reachability import REACH_TIMEOUT_SECONDS, addresses_of
from zhumq.client.errors import PushUnavailable
from zhumq.client.retrying_admin import (
    PAUSE_SECONDS,
    RETRY_SECONDS,
    TRANSIENT,
    AdminRequest,
    RetryingAdmin,
)
from zhumq.client.routes import quiet_settings
from zhumq.client.security import Security, as_security
from zhumq.client.waiting import Waiting
from zhumq.model.address import Address
from zhumq.model.errors import MalformedFrame

if TYPE_CHECKING:
    from concurrent.futures import Future

    from zhumq.admin.repeated_metadata import Metadata
    from zhumq.client.wire import Connection
    from zhumq.protocol.api import ApiKey

REQUEST_TIMEOUT_SECONDS: Final = 15.0  # for the answer to one request of `request`
PUSH_KEPT_SECONDS: Final = 10.0  # the push addresses, for a program that asks often

Answer = TypeVar("Answer")
Key = TypeVar("Key")


class ClusterConnection:
    """The brokers at an address. Repeats requests while leaders change; errors become AdminError.

    It connects with the first request, and any broker will do. `push` gives the push listeners that the
    brokers would otherwise be asked for. With `waiting`, connection errors are logged and explained.
    `security` is a ClientSecurity, or settings with Kafka's names. `retry_seconds` is how long a request is repeated
    while no broker can serve it. `asks_often`: for a program that runs on, which decodes metadata only after a change.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        push: str | None = None,
        client_id: str = "zhumq-admin",
        waiting: Waiting | None = None,
        security: Security = None,
        retry_seconds: float = RETRY_SECONDS,
        asks_often: bool = False,
    ) -> None:
        self.bootstrap = bootstrap
        self.push = push
        self.retry_seconds = retry_seconds
        self.security = as_security(security)
        self._client_id = client_id
        self._waiting = waiting
        self._asks_often = asks_often
        settings: dict[str, Any] = {"client.id": client_id}
        if waiting is not None:
            settings["error_cb"] = waiting.on_error
        self._admin = RetryingAdmin(
            quiet_settings(bootstrap, self.security, **settings),
            waiting.raise_if_refused if waiting is not None else None,
            retry_seconds=retry_seconds,
        )
        self._wires: dict[str, Connection] = {}  # by address
        # Since when, and the addresses, or why there are none.
        self._push_known: tuple[float, list[str] | PushUnavailable] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()

    def ask(self, doing: str, method: Callable[..., Any], *arguments: Any) -> Any:
        """The answer to a request that may be repeated: a method of AdminClient, for one resource."""
        return self.ask_with(doing, _request(method, arguments))

    def ask_with(self, doing: str, request: AdminRequest[Answer]) -> Answer:
        """The answer to requests that may be repeated together."""
        with kafka_errors(doing, self._waiting):
            return self._admin.ask(request)

    def ask_each(
        self, begin: Callable[[AdminClient, float], Mapping[Key, "Future[Answer]"]]
    ) -> dict[Key, Answer]:
        """The answers that there are to a request about many things, which may be repeated: what is refused has none, nor
        what no broker can serve in the time."""
        found: dict[Key, Answer] = {}

        def request(admin: AdminClient, seconds: float) -> None:
            failure: KafkaException | None = None
            for key, future in begin(admin, seconds).items():
                try:
                    found[key] = future.result()
                except KafkaException as error:
                    if error.args[0].code() in TRANSIENT:
                        failure = error
            if failure is not None:
                raise failure

        with suppress(AdminError):
            self.ask_with("ask for each", request)
        return found

    def change(self, doing: str, method: Callable[..., Any], *arguments: Any) -> None:
        """Carry out a request that must not be carried out twice: a method of AdminClient."""
        with kafka_errors(doing, self._waiting):
            self._admin.change(_request(method, arguments))

    def attempts(self) -> Iterator[bool]:
        """Attempts at what brokers cannot serve for a while, with a pause between them; True: the last one."""
        deadline = time.monotonic() + self.retry_seconds
        while time.monotonic() < deadline:
            yield False
            time.sleep(PAUSE_SECONDS)
        yield True

    def metadata(self) -> ClusterMetadata:
        """The topics and brokers of the cluster."""
        if self._asks_often:
            with suppress(Unavailable):  # The client library tries again, at other brokers.
                return cast("ClusterMetadata", self._repeated_metadata())
        with kafka_errors("list topics", self._waiting):
            return self._admin.metadata()

    def push_addresses(self, ask: Callable[[], list[str]]) -> list[str]:
        """The addresses of push listeners that `ask` finds. It makes a client of its own, which a page that is open would pay
        for with each look: who asks often is given what was found a moment ago."""
        now = time.monotonic()
        if self._push_known is None or now - self._push_known[0] >= PUSH_KEPT_SECONDS:
            try:
                self._push_known = now, ask()
            except PushUnavailable as error:
                self._push_known = now, error
        _, found = self._push_known
        if not self._asks_often:
            self._push_known = None
        if isinstance(found, PushUnavailable):
            raise PushUnavailable(str(found))
        return found

    def forget_push_addresses(self) -> None:
        """One of them did not answer."""
        self._push_known = None

    def broker_addresses(self) -> dict[int, str]:
        """The brokers of the cluster, for requests to one of them. Without the topics, of which there may be many."""
        found = self.ask("list brokers", AdminClient.describe_cluster).nodes
        return {
            each.id: str(Address(each.host, each.port))
            for each in sorted(found, key=lambda each: int(each.id))
        }

    def request(
        self,
        key: "ApiKey",
        body: Any,
        *,
        address: str | None = None,
        version: int | None = None,
    ) -> Any:
        """The answer to a request that Kafka's client library lacks, of any broker or the one at the address.
        It is not repeated. Without a version it goes out in the newest."""
        return self._on_wire(
            key, address or self.bootstrap, lambda wire: wire.ask(key, body, version)
        )

    def _repeated_metadata(self) -> "Metadata":
        from zhumq.admin.repeated_metadata import decode_metadata  # noqa: PLC0415
        from zhumq.protocol.api import ApiKey  # noqa: PLC0415
        from zhumq.protocol.messages.metadata import MetadataRequest  # noqa: PLC0415

        body = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return self._on_wire(
            ApiKey.METADATA,
            self.bootstrap,
            lambda wire: decode_metadata(*wire.ask_undecoded(ApiKey.METADATA, body)),
        )

    def _on_wire(
        self, key: "ApiKey", address: str, ask: "Callable[[Connection], Answer]"
    ) -> Answer:
        """What a request on our own connection to this address gives. It is not repeated."""
        # Imported here: most operations do not need the codecs, which take time to load.
        from zhumq.client.wire import Connection  # noqa: PLC0415

        try:
            wire = self._wires.get(address)
            if wire is None:
                wire = self._wires[address] = Connection.open(
                    addresses_of(address),
                    client_id=self._client_id,
                    connect_seconds=REACH_TIMEOUT_SECONDS,
                    request_seconds=REQUEST_TIMEOUT_SECONDS,
                    security=self.security,
                )
            return ask(wire)
        except (OSError, MalformedFrame) as reason:
            lost = self._wires.pop(address, None)
            if lost is not None:
                lost.close()
            raise Unavailable(
                f"the broker at {address} did not answer"
                f" {key.name.lower().replace('_', ' ')}: {reason}"
            ) from reason


def _request(method: Callable[..., Any], arguments: tuple[Any, ...]) -> AdminRequest[Any]:
    def request(admin: AdminClient, seconds: float) -> Any:
        found = method(admin, *arguments, request_timeout=seconds)
        (future,) = found.values() if isinstance(found, dict) else (found,)
        return future.result()

    return request
