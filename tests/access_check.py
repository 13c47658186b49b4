"""Plays the matrix of rights against a broker: sets up what each row is about, grants, asks, compares."""

import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.access_matrix import (
    ANY_ACL,
    CLUSTER,
    CLUSTER_REFUSED,
    GROUP,
    REFUSALS,
    TOPIC,
    TRANSACTION,
    Names,
    Right,
    Row,
    commit_request,
    create_request,
    produce_request,
    share_fetch,
)

from zhumq.client.wire import Connection
from zhumq.model.address import parse_address
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import APIS, ApiKey, RequestHeader, encode_response
from zhumq.protocol.messages import acls, groups, metadata, producers, share
from zhumq.protocol.schema import Message
from zhumq.security.acl import ANY_USER, CLUSTER_NAME, Operation, PatternType, Permission

SECONDS_MAX: Final = 30.0
HIDDEN_TOPIC: Final = "hidden-orders"
HIDDEN_GROUP: Final = "hidden-billing"
# Clients differ by their address, so that no row depends on how they authenticate.
ADMIN_HOST: Final = "127.0.0.2"
TESTED_HOST: Final = "127.0.0.3"


@dataclass(frozen=True, kw_only=True)
class Client:
    """How a client connects, and by what its ACLs know it."""

    connect: Callable[[], Connection]
    principal: str = ANY_USER
    host: str = "*"

    @classmethod
    def at(cls, bootstrap: str, host: str) -> "Client":
        return cls(connect=lambda: connect(bootstrap, host), host=host)


class World:
    """A broker on which an administrator may do everything, and a tested client what it is granted."""

    def __init__(self, admin: Client, tested: Client, *, quotes_requests: bool = False) -> None:
        """`quotes_requests`: error messages of the broker quote the request that they refuse."""
        self._admin = admin
        self._tested = tested
        self.quotes_requests = quotes_requests
        self.admin = admin.connect()
        self._numbers = iter(range(1, 10_000))
        nodes = self.admin.ask(ApiKey.METADATA, metadata.MetadataRequest(topics=[]))
        self.broker_id = nodes.brokers[0].node_id
        self.make(HIDDEN_TOPIC, HIDDEN_GROUP)

    @classmethod
    def by_address(
        cls, bootstrap: str, *, tested_host: str = TESTED_HOST, quotes_requests: bool = False
    ) -> "World":
        """On a broker that permits everything as long as there are no ACLs.

        The broker's own machine and the administrator keep all rights, unless it is the tested one.
        """
        everything = [
            acl_of(Right(Operation.ALL, type_), name, Client.at(bootstrap, host))
            for host in ("127.0.0.1", ADMIN_HOST)
            if host != tested_host
            for type_, name in (
                (TOPIC, "*"),
                (GROUP, "*"),
                (TRANSACTION, "*"),
                (CLUSTER, CLUSTER_NAME),
            )
        ]
        admin = Client.at(bootstrap, ADMIN_HOST)
        with admin.connect() as client:
            create_acls(client, everything)
        tested = Client.at(bootstrap, tested_host)
        return cls(admin, tested, quotes_requests=quotes_requests)

    def close(self) -> None:
        self.admin.close()

    def names(self, row: Row) -> Names:
        """A topic with a record and a group with an offset, which no other row uses."""
        number = next(self._numbers)
        topic, group = f"orders-{number:04}", f"billing-{number:04}"
        return Names(
            topic=topic,
            group=group,
            transaction=f"payments-{number:04}",
            new_topic=f"new-orders-{number:04}",
            topic_id=self.make(topic, None if row.needs_share_group else group),
            broker_id=self.broker_id,
        )

    def make(self, topic: str, group: str | None) -> uuid.UUID:
        created = self.admin.ask(ApiKey.CREATE_TOPICS, create_request(topic)).topics[0]
        assert not created.error_code, created
        self._until_ok(ApiKey.PRODUCE, produce_request(topic), 12)
        if group is None:
            return created.topic_id
        find = groups.FindCoordinatorRequest(coordinator_keys=[group])
        self._until_ok(ApiKey.FIND_COORDINATOR, find, 6)
        self._until_ok(ApiKey.OFFSET_COMMIT, commit_request(group, name=topic), 9)
        return created.topic_id

    def prepare(self, row: Row, names: Names) -> None:
        """What has to be there before each request of the row."""
        if row.needs_share_group:
            join = share.ShareGroupHeartbeatRequest(
                group_id=names.group,
                member_id=names.member_id,
                subscribed_topic_names=[names.topic],
            )
            self._until_ok(ApiKey.SHARE_GROUP_HEARTBEAT, join, None)
            leave = share.ShareGroupHeartbeatRequest(
                group_id=names.group, member_id=names.member_id, member_epoch=-1
            )
            self._until_ok(ApiKey.SHARE_GROUP_HEARTBEAT, leave, None)
        if row.needs_transactional_id:
            find = groups.FindCoordinatorRequest(key_type=1, coordinator_keys=[names.transaction])
            self._until_ok(ApiKey.FIND_COORDINATOR, find, None)
            init = producers.InitProducerIdRequest(
                transactional_id=names.transaction, transaction_timeout_ms=10_000
            )
            self._until_ok(ApiKey.INIT_PRODUCER_ID, init, None)
        if row.needs_producer:
            # The broker looks at the first requests of a connection, and not at all of one that sends many.
            with self._admin.connect() as producer:
                produced = producer.ask(ApiKey.PRODUCE, produce_request(names.topic), 12)
                assert not codes_of(produced), produced
        if row.needs_share_session:
            self._until_ok(ApiKey.SHARE_FETCH, share_fetch(names), None)

    def ask(self, row: Row, names: Names) -> Any:
        """The tested client asks, on a connection of its own."""
        self.prepare(row, names)
        with self._tested.connect() as tested:
            return tested.ask(row.key, row.request(names), row.version)

    def settle(
        self, check: Callable[[], Iterator[str]], rights: Iterable[Right], names: Names
    ) -> list[str]:
        """What is wrong when the tested client has these rights and no others."""
        self.revoke_all()
        marker = f"marker-{next(self._numbers)}"
        named = [(right, name_of(right, names)) for right in rights]
        self.grant(*named, (Right(Operation.DESCRIBE, TOPIC), marker))
        self._until_described(marker)
        return list(check())

    def _until_described(self, topic: str) -> None:
        """Waits until the broker decides by the newest ACL. The topic does not exist."""
        request = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        deadline = time.monotonic() + SECONDS_MAX
        with self._tested.connect() as tested:
            while codes_of(tested.ask(ApiKey.METADATA, request)) & REFUSALS:
                assert time.monotonic() < deadline, "the broker does not take up its ACLs"

    def grant(self, *rights: tuple[Right, str]) -> None:
        """Each right with the name of its resource."""
        create_acls(self.admin, [acl_of(right, name, self._tested) for right, name in rights])

    def revoke_all(self) -> None:
        mine = acls.DeleteAclsFilter(
            **{
                **ANY_ACL,
                "principal_filter": self._tested.principal,
                "host_filter": self._tested.host,
            }
        )
        result = self.admin.ask(ApiKey.DELETE_ACLS, acls.DeleteAclsRequest(filters=[mine]))
        assert not result.filter_results[0].error_code, result

    def _until_ok(self, key: ApiKey, request: Any, version: int | None) -> None:
        """Repeats a request until leaders and coordinators are elected."""
        deadline = time.monotonic() + SECONDS_MAX
        while codes_of(response := self.admin.ask(key, request, version)):
            assert time.monotonic() < deadline, f"{key.name} is refused: {response}"


def check_row(world: World, row: Row) -> Iterator[str]:
    """What is wrong with the answers to a row."""
    names = world.names(row)
    yield from world.settle(lambda: _without_rights(world, row, names), (), names)
    for missing in row.needs if len(row.needs) > 1 else ():
        others = [each for each in row.needs if each is not missing]
        yield from world.settle(
            lambda missing=missing: _without_one(world, row, names, missing), others, names
        )
    yield from world.settle(lambda: _with_rights(world, row, names), row.needs, names)


def _without_rights(world: World, row: Row, names: Names) -> Iterator[str]:
    refused = world.ask(row, names)
    if codes_of(refused) != ({row.refused} if row.refused else set()):
        yield f"without rights: {refused}"
    yield from leaks_of(row, names, refused, "without rights")
    quotes = world.quotes_requests and row.refused is CLUSTER_REFUSED
    if row.refused and not row.by_id and not quotes:
        absent = replace(
            names,
            topic=names.topic.replace("orders", "others"),
            group=names.group.replace("billing", "nothing"),
        )
        other = encoded(row, world.ask(row, absent))
        for mine, others in ((names.topic, absent.topic), (names.group, absent.group)):
            other = other.replace(others.encode(), mine.encode())
        if encoded(row, refused) != other:
            yield "without rights, what exists is answered otherwise than what does not"


def _without_one(world: World, row: Row, names: Names, missing: Right) -> Iterator[str]:
    response = world.ask(row, names)
    if row.lists:
        yield from leaks_of(row, names, response, f"without {missing}")
    elif not codes_of(response) & REFUSALS:
        yield f"permitted without {missing}: {response}"


def _with_rights(world: World, row: Row, names: Names) -> Iterator[str]:
    granted = world.ask(row, names)
    if codes_of(granted) & REFUSALS:
        yield f"with all rights: {granted}"
    if row.lists and getattr(names, row.lists).encode() not in encoded(row, granted):
        yield f"with all rights {row.lists} is missing: {granted}"
    if not row.shows_all and b"hidden" in encoded(row, granted):
        yield f"with rights to others: {granted}"


def leaks_of(row: Row, names: Names, response: Any, when: str) -> Iterator[str]:
    data = encoded(row, response)
    if b"hidden" in data or (row.lists and getattr(names, row.lists).encode() in data):
        yield f"{when} names are shown: {response}"


def connect(bootstrap: str, host: str) -> Connection:
    address = parse_address(bootstrap)
    stream = socket.create_connection(
        (address.host, address.port), timeout=SECONDS_MAX, source_address=(host, 0)
    )
    return Connection(stream, client_id="access")


def create_acls(client: Connection, creations: list[acls.AclCreation]) -> None:
    request = acls.CreateAclsRequest(creations=creations)
    for result in client.ask(ApiKey.CREATE_ACLS, request).results:
        assert not result.error_code, result


def acl_of(right: Right, name: str, client: Client) -> acls.AclCreation:
    pattern = PatternType.LITERAL
    if len(name) > 1 and name.endswith("*"):
        name, pattern = name[:-1], PatternType.PREFIXED
    return acls.AclCreation(
        resource_type=right.type,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=client.principal,
        host=client.host,
        operation=right.operation,
        permission_type=Permission.ALLOW,
    )


def name_of(right: Right, names: Names) -> str:
    if right.type is CLUSTER:
        return CLUSTER_NAME
    field = right.name.removesuffix("*")
    return getattr(names, field) + right.name[len(field) :]


def encoded(row: Row, response: Any) -> bytes:
    version = APIS[row.key].max_version if row.version is None else row.version
    parts = encode_response(RequestHeader(row.key, version, 0, None), response)
    return b"".join(bytes(part) for part in parts)  # type: ignore[call-overload]


def codes_of(message: Any) -> set[ErrorCode]:
    """All error codes of a response, whatever they are about."""
    if isinstance(message, list):
        return {code for each in message for code in codes_of(each)}
    if not isinstance(message, Message):
        return set()
    found: set[ErrorCode] = set()
    for name in type(message).__slots__:
        value = getattr(message, name)
        if name.endswith("error_code") and name != "topic_config_error_code":
            found.add(ErrorCode(value))
        else:
            found |= codes_of(value)
    return found - {ErrorCode.NONE}
