"""TLS to a real ensemble, credentials, and nodes that only the brokers can use."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE
from secure_support import (
    DIGEST,
    PASSWORD,
    USER,
    SecureEnsemble,
    all_nodes,
    open_nodes,
    outsider,
    secure_ensemble,
)
from tests.certificates import KEY_PASSWORD, make_authority
from zookeeper_support import broker, change, close_all, open_store, topic_created, wait_for

from zhumq.cluster import zookeeper_layout as layout
from zhumq.cluster.dev_zookeeper import dev_zookeeper
from zhumq.cluster.ensemble_security import EnsembleSecurity, EnsembleTls
from zhumq.cluster.store import StoreUnusable
from zhumq.cluster.znodes import CredentialsRefused, NodeForbidden, NotAuthenticated
from zhumq.model.errors import ZhumqError
from zhumq.model.password import Password

pytestmark = pytest.mark.slow

IDENTITIES = ("digest", "sasl", "certificate")
CONNECT_MS = 1_500


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureEnsemble]:
    pytest.importorskip("puresasl")
    with secure_ensemble(tmp_path_factory.mktemp("secure")) as running:
        yield running


@pytest.fixture
def path() -> str:
    return f"/{uuid.uuid4()}"


def refusal(kind: type[ZhumqError], connect: str, security: EnsembleSecurity) -> str:
    """The error of a start, which has to be one line."""

    async def scenario() -> None:
        store = await open_store(connect, security=security, connect_ms_max=CONNECT_MS)
        await store.close()

    with pytest.raises(kind) as refused:
        asyncio.run(scenario())
    message = str(refused.value)
    assert "\n" not in message
    assert PASSWORD not in message
    return message


@pytest.mark.thorough
def test_stores_work_over_tls_and_through_a_restart_of_the_server(
    ensemble: SecureEnsemble, path: str
) -> None:
    async def scenario() -> None:
        connect = ensemble.zookeeper.secure_connect + path
        security = ensemble.identified("digest")
        stores = [await open_store(connect, security=security) for _ in range(2)]
        for index in range(300):
            await change(stores[index % 2], topic_created(f"topic-{index}"))
        await wait_for(lambda: all(len(store.image.topics) == 300 for store in stores))
        # Reads all topics at once: answers that share a TLS record are not left behind.
        third = await open_store(connect, security=security)
        assert third.image.topics == stores[0].image.topics
        (node,) = ensemble.zookeeper.nodes
        await asyncio.to_thread(node.kill)
        await asyncio.to_thread(ensemble.zookeeper.restart, node)
        # The credentials are given again: without them this would be refused.
        await change(stores[0], topic_created("after"))
        await wait_for(lambda: all("after" in store.image.topics for store in (*stores, third)))
        await close_all([*stores, third])

    asyncio.run(scenario())


def test_a_certificate_that_is_not_trusted_is_one_line(
    ensemble: SecureEnsemble, path: str, tmp_path: Path
) -> None:
    other = make_authority(tmp_path)
    connect = ensemble.zookeeper.secure_connect + path
    wrong = EnsembleSecurity(tls=EnsembleTls(truststore=other.certificate_file))
    assert "its certificate is not accepted" in refusal(StoreUnusable, connect, wrong)
    system = EnsembleSecurity(tls=EnsembleTls())
    assert "its certificate is not accepted" in refusal(StoreUnusable, connect, system)


def test_the_certificate_of_zookeeper_has_to_name_its_host(
    ensemble: SecureEnsemble, path: str
) -> None:
    # Issued for localhost and 127.0.0.1: this name of the machine is not in it.
    connect = ensemble.zookeeper.secure_connect.replace("127.0.0.1", "127.1") + path
    message = refusal(StoreUnusable, connect, EnsembleSecurity(tls=ensemble.tls))
    assert "mismatch" in message

    async def scenario() -> None:
        unchecked = replace(ensemble.tls, checks_host=False)
        store = await open_store(connect, security=EnsembleSecurity(tls=unchecked))
        await store.close()

    asyncio.run(scenario())


def test_a_plain_port_is_not_taken_for_tls(ensemble: SecureEnsemble, path: str) -> None:
    message = refusal(
        StoreUnusable, ensemble.zookeeper.connect + path, EnsembleSecurity(tls=ensemble.tls)
    )
    assert "is this ZooKeeper's secureClientPort?" in message


def test_files_that_cannot_be_used_are_one_line(
    ensemble: SecureEnsemble, path: str, tmp_path: Path
) -> None:
    connect = ensemble.zookeeper.secure_connect + path
    other = ensemble.authority.issue("other")
    mixed = tmp_path / "mixed.pem"
    mixed.write_bytes(
        ensemble.certificate.key_file.read_bytes() + other.certificate_file.read_bytes()
    )
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_bytes(
        other.encrypted_key_file.read_bytes() + other.certificate_file.read_bytes()
    )
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")

    def message(**files: Any) -> str:
        return refusal(StoreUnusable, connect, EnsembleSecurity(tls=replace(ensemble.tls, **files)))

    assert "truststore.location=/no/such cannot be read: No such file" in message(
        truststore=Path("/no/such")
    )
    assert "it holds no PEM certificate" in message(truststore=garbage)
    assert "does not belong to its certificate" in message(keystore=mixed)
    assert "it holds no PEM certificate with its key" in message(keystore=garbage)
    wrong = message(keystore=encrypted, key_password=Password("wrong-password"))
    assert "zookeeper.ssl.keystore.password is wrong" in wrong
    assert "wrong-password" not in wrong
    assert "zookeeper.ssl.keystore.password is wrong" in message(keystore=encrypted)

    async def scenario() -> None:
        tls = replace(ensemble.tls, keystore=encrypted, key_password=Password(KEY_PASSWORD))
        store = await open_store(connect, security=EnsembleSecurity(tls=tls))
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("by", IDENTITIES)
def test_a_client_without_the_brokers_identity_cannot_use_any_node(
    ensemble: SecureEnsemble, path: str, by: str
) -> None:
    async def scenario() -> None:
        security = ensemble.identified(by)
        connect = ensemble.zookeeper.secure_connect + path
        stores = [await open_store(connect, security=security) for _ in range(2)]
        await stores[0].register(broker(1))
        stores[0].campaign(broker(1).broker_id, _Listener())
        await change(stores[1], topic_created("topic"))
        await wait_for(lambda: stores[1].image.controller_id == 1)
        await asyncio.to_thread(_try_everything, ensemble, path)
        await close_all(stores)

    asyncio.run(scenario())


def _try_everything(ensemble: SecureEnsemble, path: str) -> None:
    assert open_nodes(ensemble.zookeeper, path) == []
    for options in ({}, {"auth_data": [("digest", f"{USER}:wrong")]}):
        with outsider(ensemble.zookeeper, **options) as client:
            attempts: list[Callable[[KazooClient], object]] = [
                lambda each: each.get(path + layout.SECRET),
                lambda each: each.set(path + layout.VERSION, b"{}"),
                lambda each: each.get_children(path),
                lambda each: each.create(path + "/settings", b"{}"),
                lambda each: each.create(path + "/topics/mine", b"{}"),
                lambda each: each.delete(path + layout.SECRET),
                lambda each: each.set_acls(path + layout.SECRET, OPEN_ACL_UNSAFE),
                lambda each: each.set_acls(path, OPEN_ACL_UNSAFE),
            ]
            for attempt in attempts:
                with pytest.raises(NoAuthError):
                    attempt(client)


class _Listener:
    """A controller that does nothing."""

    def elected(self, epoch: int) -> None: ...

    def deposed(self) -> None: ...

    def live_brokers(self, live: frozenset[int]) -> None: ...


@pytest.mark.parametrize("by", IDENTITIES)
def test_a_broker_without_the_credentials_is_refused_with_one_line(
    ensemble: SecureEnsemble, path: str, by: str
) -> None:
    async def create() -> None:
        store = await open_store(
            ensemble.zookeeper.secure_connect + path, security=ensemble.identified(by)
        )
        await store.close()

    asyncio.run(create())
    message = refusal(NodeForbidden, ensemble.zookeeper.connect + path, EnsembleSecurity())
    assert "give it the credentials of the cluster's other brokers" in message


def test_credentials_that_the_ensemble_refuses_are_one_line(
    ensemble: SecureEnsemble, path: str
) -> None:
    security = ensemble.identified("sasl")
    assert security.credentials is not None
    wrong = replace(security, credentials=replace(security.credentials, password=Password("wrong")))
    message = refusal(CredentialsRefused, ensemble.zookeeper.secure_connect + path, wrong)
    assert "check zookeeper.auth.scheme, zookeeper.auth.username and zookeeper.auth.password" in (
        message
    )


def test_acls_without_an_identity_are_refused(ensemble: SecureEnsemble, path: str) -> None:
    anonymous = EnsembleSecurity(tls=ensemble.tls, sets_acl=True)
    message = refusal(NotAuthenticated, ensemble.zookeeper.secure_connect + path, anonymous)
    assert "does not know who this broker is" in message


def test_a_cluster_without_acls_gets_them_broker_by_broker_while_it_runs(
    ensemble: SecureEnsemble, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain = ensemble.zookeeper.connect + path
    secure = ensemble.zookeeper.secure_connect + path
    caplog.set_level(logging.INFO, "zhumq.cluster")

    async def scenario() -> None:
        first, second = [await open_store(plain) for _ in range(2)]
        for index in range(20):
            await change(first, topic_created(f"topic-{index}"))
        await wait_for(lambda: "everyone who can reach ZooKeeper" in caplog.text)
        await first.close()
        # First every broker gets the credentials, one after the other.
        first = await open_store(secure, security=ensemble.identified("digest", sets_acl=False))
        await second.close()
        second = await open_store(secure, security=ensemble.identified("digest", sets_acl=False))
        assert path + layout.SECRET in await asyncio.to_thread(open_nodes, ensemble.zookeeper, path)
        # Then every broker gets zookeeper.set.acl.
        await first.close()
        first = await open_store(secure, security=ensemble.identified("digest"))
        await wait_for(lambda: "restricted " in caplog.text)
        assert await asyncio.to_thread(open_nodes, ensemble.zookeeper, path) == []
        # The second one still creates open nodes, but in a chroot that is closed.
        await change(second, topic_created("late"))
        late = f"{path}/topics/late"
        assert await asyncio.to_thread(open_nodes, ensemble.zookeeper, late) == [late]
        await second.close()
        caplog.clear()
        second = await open_store(secure, security=ensemble.identified("digest"))
        await wait_for(lambda: "restricted " in caplog.text)
        assert await asyncio.to_thread(open_nodes, ensemble.zookeeper, late) == []
        await change(first, topic_created("last"))
        await wait_for(lambda: len(second.image.topics) == 22)
        await close_all([first, second])
        caplog.clear()
        again = await open_store(secure, security=ensemble.identified("digest"))
        await change(again, topic_created("again"))
        await again.close()
        assert "restricted" not in caplog.text

    asyncio.run(scenario())


@pytest.mark.thorough
def test_a_restart_in_the_middle_of_the_migration_completes_it(
    ensemble: SecureEnsemble, path: str
) -> None:
    plain = ensemble.zookeeper.connect + path
    secure = ensemble.zookeeper.secure_connect + path

    async def scenario() -> None:
        first = await open_store(plain)
        for index in range(200):
            await change(first, topic_created(f"topic-{index}"))
        await first.close()
        # Ends before its work in the background has: the chroot is closed, nodes in it are open.
        interrupted = await open_store(secure, security=ensemble.identified("digest"))
        await interrupted.close()
        nodes = [f"{path}/topics/topic-{index}" for index in range(200)]

        def count_open() -> int:
            return sum(bool(open_nodes_at_once(ensemble, [node])) for node in nodes[:3])

        assert await asyncio.to_thread(count_open) > 0
        again = await open_store(secure, security=ensemble.identified("digest"))
        await wait_for(lambda: not open_nodes_at_once(ensemble, nodes))
        assert len(again.image.topics) == 200
        await again.close()

    asyncio.run(scenario())


def open_nodes_at_once(ensemble: SecureEnsemble, nodes: list[str]) -> list[str]:
    with outsider(ensemble.zookeeper) as client:
        results = [(node, client.get_async(node)) for node in nodes]
        for _, result in results:
            result.wait()
        return [node for node, result in results if result.successful()]


@pytest.mark.thorough
def test_a_running_broker_without_the_credentials_logs_one_line_and_recovers(
    ensemble: SecureEnsemble, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain = ensemble.zookeeper.connect + path
    secure = ensemble.zookeeper.secure_connect + path

    async def scenario() -> None:
        left_behind = await open_store(plain)
        secured = await open_store(secure, security=ensemble.identified("digest"))
        await wait_for(lambda: not open_nodes_at_once(ensemble, [path + layout.VERSION]))
        await change(secured, topic_created("topic"))
        await wait_for(lambda: "cannot follow the metadata of the cluster" in caplog.text)
        await asyncio.to_thread(_open_again, ensemble, path)
        await wait_for(lambda: "topic" in left_behind.image.topics)
        assert caplog.text.count("cannot follow the metadata of the cluster") == 1
        await close_all([left_behind, secured])

    asyncio.run(scenario())


def _open_again(ensemble: SecureEnsemble, path: str) -> None:
    nodes = all_nodes(ensemble.zookeeper, path)
    with outsider(ensemble.zookeeper, auth_data=[("digest", f"{USER}:{PASSWORD}")]) as client:
        for node in nodes:
            client.set_acls(node, OPEN_ACL_UNSAFE)


def test_acls_in_the_root_of_an_ensemble_need_it_for_the_cluster_alone(tmp_path: Path) -> None:
    with dev_zookeeper(data_dir=tmp_path) as zookeeper:
        security = EnsembleSecurity(credentials=DIGEST, sets_acl=True)
        with outsider(zookeeper) as client:
            client.create("/mine")
        message = refusal(StoreUnusable, zookeeper.connect, security)
        assert "would lock other applications out" in message
        assert "/mine" in message
        with outsider(zookeeper) as client:
            client.delete("/mine")

        async def scenario() -> None:
            store = await open_store(zookeeper.connect, security=security)
            await store.close()

        asyncio.run(scenario())
        assert [node for node in open_nodes(zookeeper, "") if "/zookeeper" not in node] == []
