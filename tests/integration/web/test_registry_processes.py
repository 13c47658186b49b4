"""The schema registry through restarts, with several processes at once, with a damaged log, and with ACLs."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import confluent_kafka
import httpx
import pytest
from confluent_support import error, record, register

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.schema_log import SchemaLink, SchemaWriter
from zhumq.admin.schema_store import SchemaStore
from zhumq.admin.schemas import list_subjects
from zhumq.admin.settings import topic_settings
from zhumq.admin.topics import create_topic, delete_topic, topic_partitions
from zhumq.client.errors import ProducerFenced
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.secured import ADMIN, MECHANISM, USER, SecuredBroker, secured_broker
from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig
from zhumq.web.credentials import BrokerSecurity

SECONDS_MAX = 60.0
TOPIC = "_schemas"


@contextmanager
def web_process(bootstrap: str) -> Iterator[httpx.Client]:
    command = [sys.executable, "-m", "zhumq", "web", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*command, "--bootstrap", bootstrap], stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert process.stdout is not None
        ready = re.match(r"zhumq web ready url=(\S+) ", process.stdout.readline())
        assert ready is not None
        with httpx.Client(base_url=f"{ready.group(1)}/registry", timeout=SECONDS_MAX) as client:
            yield client
    finally:
        process.terminate()
        process.wait(SECONDS_MAX)
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def registry_of(bootstrap: str) -> Iterator[httpx.Client]:
    with (
        rest_api(WebConfig(bootstrap=bootstrap)) as url,
        httpx.Client(base_url=f"{url}/registry", timeout=SECONDS_MAX) as client,
    ):
        yield client


def test_schemas_are_there_after_a_restart_of_broker_and_registry(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path / "data") as first, registry_of(first.bootstrap) as registry:
        id_ = register(registry, "a", record("R", x="int"))
        registry.put("/config/a", json={"compatibility": "FULL"})
        connection = ClusterConnection(first.bootstrap)
        assert topic_partitions(connection, TOPIC) == [0]
        assert [each.latest_id for each in list_subjects(connection)] == [id_]
        assert topic_settings(connection, TOPIC)["cleanup.policy"].value == "compact"
    with broker(data_dir=tmp_path / "data") as second, registry_of(second.bootstrap) as registry:
        assert registry.get("/subjects").json() == ["a"]
        assert registry.get("/config/a").json() == {"compatibilityLevel": "FULL"}
        assert register(registry, "b", record("S", x="int")) == id_ + 1


def test_two_processes_never_give_one_id_twice() -> None:
    count = 12
    with broker() as running, ExitStack() as stack:
        registries = [stack.enter_context(web_process(running.bootstrap)) for _ in range(2)]

        def write(index: int) -> tuple[str, int]:
            # Each schema is registered by both at once, under a subject of its own and under a common one.
            registry, name = registries[index % 2], f"R{index // 2}"
            common = registry.post("/subjects/common/versions", json={"schema": '"string"'})
            assert common.status_code == 200, common.text
            return name, register(registry, f"s{index}", record(name, x="int"))

        with ThreadPoolExecutor(4) as threads:
            ids = list(threads.map(write, range(count)))
        by_schema: dict[str, set[int]] = {}
        for name, id_ in ids:
            by_schema.setdefault(name, set()).add(id_)
        assert all(len(each) == 1 for each in by_schema.values()), by_schema
        assert len({id_ for _, id_ in ids}) == count // 2
        for registry in registries:
            # Each process sees at once what the other has written.
            assert registry.get("/subjects/common/versions").json() == [1]
            assert len(registry.get("/subjects").json()) == count + 1


def test_a_writer_that_was_replaced_writes_nothing() -> None:
    with broker() as running:
        connection = ClusterConnection(running.bootstrap)
        create_topic(connection, TOPIC, partitions=1, settings={"cleanup.policy": "compact"})
        old, new = SchemaWriter(connection), SchemaWriter(connection)
        key = b'{"keytype":"MODE","magic":0}'
        old.begin()
        old.write([(key, b'{"mode":"READONLY"}')])
        new.begin()
        with pytest.raises(ProducerFenced):
            old.write([(key, b'{"mode":"IMPORT"}')])
        new.write([(key, b'{"mode":"READWRITE"}')])
        link, store = SchemaLink(connection), SchemaStore()
        assert store.read(link, lambda registry: registry.mode(None)) == "READWRITE"
        assert store.skipped == 0
        for each in (old, new, link, store):
            each.close()


def test_messages_that_are_no_records_are_skipped() -> None:
    with broker() as running, registry_of(running.bootstrap) as registry:
        id_ = register(registry, "a", record("R", x="int"))
        producer = confluent_kafka.Producer({"bootstrap.servers": running.bootstrap})
        failures: list[object] = []
        for key, value in (
            (b"no JSON", b"x"),
            (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b"\xff\x00"),
            (b'{"keytype":"SCHEMA","subject":"b","version":"1"}', b"{}"),
            (b'{"keytype":"NEW"}', b"{}"),
        ):
            producer.produce(
                TOPIC,
                value,
                key=key,
                partition=0,
                on_delivery=lambda error, _: failures.append(error),
            )
        # What another registry of Confluent's writes is read.
        value = {"subject": "c", "version": 1, "id": 40, "md5": "x", "schema": '"int"', "deleted": False}  # fmt: skip
        key = b'{"keytype":"SCHEMA","subject":"c","version":1,"magic":1}'
        producer.produce(TOPIC, json.dumps(value).encode(), key=key, partition=0)
        assert producer.flush(SECONDS_MAX) == 0
        assert set(failures) == {None}
        assert registry.get("/subjects").json() == ["a", "c"]
        assert registry.get(f"/schemas/ids/{id_}").status_code == 200
        assert register(registry, "d", record("S", x="int")) == 41


def test_a_topic_that_was_created_again_is_read_anew() -> None:
    with broker() as running, registry_of(running.bootstrap) as registry:
        for name in ("a", "b", "c"):
            register(registry, name, record(name.upper(), x="int"))
        connection = ClusterConnection(running.bootstrap)
        delete_topic(connection, TOPIC)
        deadline = time.monotonic() + SECONDS_MAX
        while registry.get("/subjects").json() and time.monotonic() < deadline:
            pass
        assert registry.get("/subjects").json() == []
        assert register(registry, "z", record("Z", x="int")) == 1


def test_a_topic_that_loses_schemas_is_refused(running: RunningBroker, topic: str) -> None:
    with broker() as other, registry_of(other.bootstrap) as registry:
        create_topic(ClusterConnection(other.bootstrap), TOPIC, partitions=1)
        answer = registry.post(f"/subjects/{topic}/versions", json={"schema": '"int"'})
        assert "cleanup.policy" in error(answer, 422)
        assert registry.get("/subjects").json() == []


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"authorizer.class.name": "zhumq", "super.users": f"User:{ADMIN}"}
    with secured_broker(tmp_path_factory.mktemp("secured") / "new", settings=settings) as started:
        yield started


def test_callers_have_the_rights_of_the_topic(secured: SecuredBroker) -> None:
    file = Path(secured.data_dir).parent / "web.properties"
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={MECHANISM}\n"
        f"ssl.truststore.location={secured.authority}\nssl.truststore.type=PEM\n"
    )
    config = WebConfig(bootstrap=secured.bootstrap, security=BrokerSecurity.read(file))
    with rest_api(config) as url, ExitStack() as stack:

        def client(user: str, password: str) -> httpx.Client:
            auth = (user, password) if user else None
            made = httpx.Client(base_url=f"{url}/registry", auth=auth, timeout=SECONDS_MAX)
            return stack.enter_context(made)

        admin = client(ADMIN, secured.admin_security.password.reveal())
        alice = client(USER, secured.security.password.reveal())
        error(client("", "").get("/subjects"), 401)
        error(client(USER, "wrong").get("/subjects"), 401)
        id_ = register(admin, "a", record("R", x="int"))
        paths = ("/subjects", f"/schemas/ids/{id_}", "/config", "/mode", "/subjects/a/versions/1")
        for path in paths:  # Though the process has it all in memory.
            error(alice.get(path), 403)
        api = httpx.Client(base_url=f"{url}/api/v1", auth=admin.auth, timeout=SECONDS_MAX)
        stack.enter_context(api)

        def grant(kind: str, name: str, operation: str) -> None:
            rule = {"resource_type": kind, "resource_name": name, "operation": operation}
            acl = {**rule, "principal": f"User:{USER}"}
            granted = api.post("/acls", json={"acls": [acl]})
            assert granted.status_code == 201, granted.text

        grant("TOPIC", TOPIC, "READ")
        for path in paths:
            assert alice.get(path).status_code == 200, path
        body = {"schema": record("R", x="int")}
        # What is registered is found without the right to write.
        assert alice.post("/subjects/a/versions", json=body).json()["id"] == id_
        new = {"schema": record("R", x="int", y=("int", 0))}
        for answer in (
            alice.post("/subjects/a/versions", json=new),
            alice.delete("/subjects/a"),
            alice.put("/config/a", json={"compatibility": "NONE"}),
            alice.put("/mode", json={"mode": "READONLY"}),
        ):
            error(answer, 403)
        grant("TOPIC", TOPIC, "WRITE")
        error(alice.post("/subjects/a/versions", json=new), 403)
        grant("TRANSACTIONAL_ID", "zhumq-schemas", "WRITE")
        assert alice.post("/subjects/a/versions", json=new).json()["version"] == 2
        assert admin.get("/subjects/a/versions").json() == [1, 2]
        assert register(admin, "b", record("S", x="int")) == 3
