"""Every client of ours over TLS and SASL: it works, and each way to be refused is one line within seconds."""

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from secured_support import (
    SESSION_MS,
    SecuredCluster,
    certificate,
    login,
    secured_cluster,
    write_properties,
)
from tests.certificates import make_authority

from zhumq import (
    Admin,
    Caller,
    Consumer,
    PriorityConsumer,
    Producer,
    Service,
    TransactionalProducer,
    Worker,
)
from zhumq.cli.main import run
from zhumq.client.errors import AuthenticationFailed, SecurityFailed
from zhumq.client.security import ClientSecurity
from zhumq.client.wire import Connection
from zhumq.model.address import parse_address
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.metadata import MetadataRequest

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SECONDS_MAX = 60.0
# Of a class of the client library, on a busy machine; librdkafka alone would never end.
REFUSED_SECONDS_MAX = 20.0

Given = tuple[str, dict[str, str] | None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with secured_cluster(tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture
def topic(cluster: SecuredCluster) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Admin(cluster.sasl_ssl, security=login(cluster, user="admin")) as admin:
        admin.create_topic(name, partitions=1)
    return name


def produce(bootstrap: str, security: dict[str, str] | None, topic: str) -> None:
    with Producer(bootstrap, security=security) as producer:
        producer.send(topic, b"hello")


def consume(bootstrap: str, security: dict[str, str] | None, topic: str) -> None:
    with Consumer(topic, group=topic, bootstrap=bootstrap, security=security) as consumer:
        assert next(iter(consumer)).value == b"hello"


def work(bootstrap: str, security: dict[str, str] | None, topic: str) -> None:
    seen: list[bytes | None] = []
    worker = Worker(
        topic,
        lambda task: seen.append(task.value),
        group=f"{topic}-work",
        bootstrap=bootstrap,
        security=security,
    )
    deadline = time.monotonic() + SECONDS_MAX
    worker.run(until=lambda: bool(seen) or time.monotonic() > deadline)
    assert seen == [b"hello"]


def administer(bootstrap: str, security: dict[str, str] | None, topic: str) -> None:
    with Admin(bootstrap, security=security) as admin:
        assert admin.topics()[topic] == 1


def transact(bootstrap: str, security: dict[str, str] | None, topic: str) -> None:
    with (
        TransactionalProducer(bootstrap, transactional_id=topic, security=security) as producer,
        producer.transaction() as transaction,
    ):
        transaction.send(topic, b"in a transaction")


def call(bootstrap: str, security: dict[str, str] | None, topic: str) -> None:
    with Caller(bootstrap, security=security) as caller, ThreadPoolExecutor(1) as threads:
        service = Service(
            topic,
            lambda task: task.value,
            group=f"{topic}-service",
            bootstrap=bootstrap,
            security=security,
        )
        serving = threads.submit(service.run)
        try:
            assert caller.call(topic, b"echo", timeout=SECONDS_MAX) == b"echo"
        finally:
            service.stop()
            serving.result(SECONDS_MAX)


def prefer(bootstrap: str, security: dict[str, str] | None, topic: str) -> None:
    with PriorityConsumer(
        {topic: 1}, group=f"{topic}-prefer", bootstrap=bootstrap, security=security
    ) as consumer:
        assert next(iter(consumer)).value == b"hello"


USES: tuple[Callable[[str, dict[str, str] | None, str], None], ...] = (
    produce,
    consume,
    work,
    administer,
    transact,
    call,
    prefer,
)


def works(bootstrap: str, security: dict[str, str], topic: str) -> None:
    for use in USES:
        use(bootstrap, security, topic)


@pytest.mark.thorough
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_class_works_over_sasl_ssl(
    cluster: SecuredCluster, topic: str, mechanism: str
) -> None:
    works(cluster.sasl_ssl, login(cluster, mechanism), topic)


@pytest.mark.thorough
def test_every_class_works_over_sasl_plaintext(cluster: SecuredCluster, topic: str) -> None:
    plain = login(cluster) | {"security.protocol": "SASL_PLAINTEXT"}
    works(cluster.sasl_plaintext, plain, topic)


@pytest.mark.thorough
def test_every_class_works_with_a_client_certificate(cluster: SecuredCluster, topic: str) -> None:
    works(cluster.ssl, certificate(cluster), topic)


def test_the_commands_take_client_properties(
    cluster: SecuredCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    file = write_properties(tmp_path / "client.properties", login(cluster))
    name = f"t-{uuid.uuid4().hex[:8]}"
    options = ["--bootstrap", cluster.sasl_ssl, "--config", file]
    assert run(["topic", "create", name, *options]) == 0
    produce(cluster.sasl_ssl, login(cluster), name)
    monkeypatch.setenv("ZHUMQ_CLIENT_CONFIG", file)
    capfd.readouterr()
    assert run(["consume", name, "--until-end", *options[:2]]) == 0
    assert capfd.readouterr().out == "hello\n"


def refusals(cluster: SecuredCluster, folder: Path) -> dict[str, tuple[Given, str]]:
    """Settings that are refused, and the words for each."""
    other = str(make_authority(folder / "other").certificate_file)
    certified = certificate(cluster)
    return {
        "wrong password": (
            (cluster.sasl_ssl, login(cluster, password="wrong")),
            "refused the user 'alice'",
        ),
        "unknown user": (
            (cluster.sasl_ssl, login(cluster, user="mallory", password="x")),
            "'mallory'",
        ),
        "unknown CA": (
            (cluster.sasl_ssl, login(cluster) | {"ssl.truststore.location": other}),
            "certificate is not trusted",
        ),
        "plain client, TLS port": (
            (cluster.ssl, None),
            "the port speaks TLS: set security.protocol=SSL or SASL_SSL",
        ),
        "TLS client, plain port": (
            (cluster.plaintext, certified),
            "the port does not speak TLS: set security.protocol=PLAINTEXT",
        ),
        "no SASL, SASL port": (
            (cluster.sasl_plaintext, None),
            "if the listener uses SASL, set security.protocol=SASL_PLAINTEXT or SASL_SSL",
        ),
        "SASL, no SASL port": (
            (cluster.ssl, login(cluster) | certified | {"security.protocol": "SASL_SSL"}),
            "the listener is without SASL",
        ),
        "no certificate": (
            (cluster.ssl, login(cluster) | {"security.protocol": "SSL"}),
            "wants a client certificate",
        ),
    }


REFUSALS = (
    "wrong password", "unknown user", "unknown CA", "plain client, TLS port",
    "TLS client, plain port", "no SASL, SASL port", "SASL, no SASL port", "no certificate",
)  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_a_command_that_is_refused_says_why_in_one_line(
    cluster: SecuredCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    (bootstrap, settings), words = refusals(cluster, tmp_path)[name]
    file = write_properties(tmp_path / "client.properties", settings or {})
    began = time.monotonic()
    assert run(["topic", "list", "--bootstrap", bootstrap, "--config", file]) == 1
    assert time.monotonic() - began < REFUSED_SECONDS_MAX
    output = capfd.readouterr()
    (line,) = [each for each in output.err.splitlines() if each.startswith("zhumq: ")]
    assert words in line
    assert "wrong" not in line


@pytest.mark.thorough
@pytest.mark.parametrize("name", REFUSALS)
def test_a_class_that_is_refused_raises_why_within_seconds(
    cluster: SecuredCluster, tmp_path: Path, topic: str, name: str
) -> None:
    (bootstrap, settings), words = refusals(cluster, tmp_path)[name]
    expected = AuthenticationFailed if "user" in words else SecurityFailed
    began = time.monotonic()
    with ThreadPoolExecutor(len(USES)) as pool:
        used = [pool.submit(use, bootstrap, settings, topic) for use in USES]
        failures = [each.exception() for each in used]
    assert time.monotonic() - began < REFUSED_SECONDS_MAX
    for failure in failures:
        assert isinstance(failure, expected)
        assert words in str(failure)
        assert "wrong" not in str(failure)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "mechanism",
    [  # Each waits for the end of a session.
        pytest.param(each, marks=[] if each == "SCRAM-SHA-512" else [pytest.mark.long])
        for each in MECHANISMS
    ],
)
def test_a_connection_authenticates_again_before_its_session_ends(
    cluster: SecuredCluster, mechanism: str
) -> None:
    security = ClientSecurity.of(login(cluster, mechanism))
    with Connection.open(
        [parse_address(cluster.sasl_ssl)],
        client_id="test",
        request_seconds=SECONDS_MAX,
        security=security,
    ) as connection:
        connection.negotiate()
        # The broker closes a connection that is used after the end of its session.
        until = time.monotonic() + 2.5 * SESSION_MS / 1000
        while time.monotonic() < until:
            connection.ask(ApiKey.METADATA, MetadataRequest(topics=[]))
