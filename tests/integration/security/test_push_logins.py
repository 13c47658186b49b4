"""A push stream lasts no longer than its login, its logins are audited, and its quota slows it down."""

import asyncio
import json
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import pytest
from confluent_kafka import Producer
from sasl_support import Issuer, sasl_broker
from test_push_authentication import basic, call
from tests.sasl_client import PASSWORD, USER

import zhumq
from zhumq.admin.connection import ClusterConnection
from zhumq.admin.quotas import alter_quotas
from zhumq.admin.topics import create_topic
from zhumq.admin.users import create_user, delete_user
from zhumq.client.errors import AuthenticationFailed
from zhumq.client.security import ClientSecurity
from zhumq.model.password import Password
from zhumq.protocol.push import push_pb2 as pb
from zhumq.testing.broker import RunningBroker
from zhumq.testing.secured import secured_broker

SECONDS_MAX = 30.0
LIFETIME_MS = 1_500
QUOTA = 50_000
VALUE = b"x" * 5_000
MESSAGES = 50
# 250 KB at 50 KB/s are five seconds, of which the first burst is one or two.
THROTTLED_SECONDS_MIN = 2.0


class PushStream:
    """A stream with credentials in its metadata, read frame by frame."""

    def __init__(self, push: str, header: str, topic: str, client_id: str = "") -> None:
        self._sent: queue.Queue[pb.ClientFrame | None] = queue.Queue()
        self._channel = grpc.insecure_channel(push)
        stream = self._channel.stream_stream(
            "/zhumq.push.v1.Push/Stream",
            request_serializer=pb.ClientFrame.SerializeToString,
            response_deserializer=pb.ServerFrame.FromString,
        )
        self._frames: Any = stream(
            iter(self._sent.get, None), metadata=[("authorization", header)], timeout=SECONDS_MAX
        )
        choices = [pb.TopicChoice(name=topic)]
        subscribe = pb.Subscribe(topics=choices, mode=pb.PSB, credits=MESSAGES, client_id=client_id)
        self._sent.put(pb.ClientFrame(subscribe=subscribe))
        assert self.receive("subscribed").broker_id >= 0

    def receive(self, kind: str) -> Any:
        """The next frame of this kind; others are skipped."""
        for frame in self._frames:
            if frame.HasField(kind):
                return getattr(frame, kind)
            assert not frame.HasField("refused"), frame.refused
        pytest.fail(f"the stream ended without a frame {kind!r}")

    def receive_messages(self, count: int) -> float:
        """Receive this many; returns how long it took."""
        begun = time.monotonic()
        while count > 0:
            ranges = self.receive("messages").ranges
            count -= sum(each.last_offset - each.first_offset + 1 for each in ranges)
        return time.monotonic() - begun

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _at: TracebackType | None,
    ) -> None:
        self._sent.put(None)
        self._channel.close()


@pytest.fixture(scope="module")
def running(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {**issuer.settings, "quota__window__num": "2"}
    data_dir = tmp_path_factory.mktemp("data")
    with sasl_broker(mechanisms="PLAIN,OAUTHBEARER", data_dir=data_dir, **settings) as started:
        yield started


def security(user: str = USER, password: str = PASSWORD) -> ClientSecurity:
    return ClientSecurity.of(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
        }
    )


@pytest.fixture(scope="module")
def admin(running: RunningBroker) -> Iterator[ClusterConnection]:
    with ClusterConnection(running.bootstrap, security=security()) as connection:
        create_topic(connection, "pushed", partitions=1)
        yield connection


def fill(running: RunningBroker, topic: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": running.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "batch.num.messages": 1,
        }
    )
    for _ in range(MESSAGES):
        producer.produce(topic, VALUE)
    assert producer.flush(SECONDS_MAX) == 0


def test_a_stream_ends_when_its_token_expires(
    running: RunningBroker, admin: ClusterConnection, issuer: Issuer
) -> None:
    del admin
    expires_at = int(time.time()) + 2
    with PushStream(running.push, f"Bearer {issuer.token(exp=expires_at)}", "pushed") as stream:
        refused = stream.receive("refused")
    assert (refused.code, refused.retry) == (pb.LOGIN_ENDED, True)
    assert time.time() >= expires_at


def test_a_stream_ends_when_its_user_is_deleted_and_others_go_on(
    running: RunningBroker, admin: ClusterConnection
) -> None:
    create_user(admin, "bob", Password("bob's secret"))
    with (
        PushStream(running.push, basic(USER, PASSWORD), "pushed") as other,
        PushStream(running.push, basic("bob", "bob's secret"), "pushed") as stream,
    ):
        delete_user(admin, "bob")
        refused = stream.receive("refused")
        assert (refused.code, refused.retry) == (pb.LOGIN_ENDED, True)
        assert "deleted" in refused.message
        fill(running, "pushed")
        other.receive_messages(MESSAGES)
    with grpc.insecure_channel(running.push) as channel:
        header = basic("bob", "bob's secret")
        assert call(channel, header) is grpc.StatusCode.UNAUTHENTICATED


def test_a_token_for_the_name_of_a_deleted_user_keeps_its_stream(
    running: RunningBroker, admin: ClusterConnection, issuer: Issuer
) -> None:
    create_user(admin, "carol", Password("carol's secret"))
    create_topic(admin, "of-carol", partitions=1)
    with PushStream(running.push, f"Bearer {issuer.token(sub='carol')}", "of-carol") as stream:
        delete_user(admin, "carol")
        fill(running, "of-carol")
        stream.receive_messages(MESSAGES)


def test_logins_of_calls_and_their_failures_are_in_the_audit_log_and_counted(
    issuer: Issuer, tmp_path: Path
) -> None:
    settings = {**issuer.settings, "connection__failed__authentication__delay__ms": "0"}
    with (
        sasl_broker(mechanisms="PLAIN,OAUTHBEARER", data_dir=tmp_path, **settings) as running,
        grpc.insecure_channel(running.push) as channel,
    ):
        for header in (
            basic(USER, PASSWORD),
            basic(USER, "wrong"),
            f"Bearer {issuer.token(sub='dave')}",
            "Bearer nonsense",
            None,
        ):
            call(channel, header)
    events = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
    assert {(each["listener"], each["host"], each["action"]) for each in events} == {
        ("PUSH", "127.0.0.1", "Authenticate")
    }
    assert {(each["principal"], each["resource"], each["allowed"]) for each in events} == {
        (f"User:{USER}", "PLAIN", True),
        (f"User:{USER}", "PLAIN", False),
        ("User:dave", "OAUTHBEARER", True),
        ("User:ANONYMOUS", "OAUTHBEARER", False),
        ("User:ANONYMOUS", "", False),
    }


@pytest.mark.slow
@pytest.mark.parametrize("entity", [{"user": USER}, {"client-id": "slow"}])
def test_deliveries_stay_at_the_quota_of_their_consumer_and_others_are_unaffected(
    running: RunningBroker, admin: ClusterConnection, issuer: Issuer, entity: dict[str, str | None]
) -> None:
    topic = f"quota-{'-'.join(entity)}"
    create_topic(admin, topic, partitions=1)
    fill(running, topic)
    alter_quotas(admin, entity, {"consumer_byte_rate": QUOTA})
    try:
        with PushStream(running.push, basic(USER, PASSWORD), topic, "slow") as stream:
            assert stream.receive_messages(MESSAGES) >= THROTTLED_SECONDS_MIN
        header = f"Bearer {issuer.token(sub='erin')}"
        with PushStream(running.push, header, topic, "fast") as stream:
            assert stream.receive_messages(MESSAGES) < THROTTLED_SECONDS_MIN
    finally:
        alter_quotas(admin, entity, {"consumer_byte_rate": None})


def test_a_stream_that_pauses_for_its_quota_goes_on_when_the_quota_is_removed(
    running: RunningBroker, admin: ClusterConnection
) -> None:
    create_topic(admin, "paused", partitions=1)
    fill(running, "paused")
    # The first message is worth a pause of eight minutes.
    alter_quotas(admin, {"user": USER}, {"consumer_byte_rate": 10})
    try:
        with PushStream(running.push, basic(USER, PASSWORD), "paused") as stream:
            assert len(stream.receive("messages").ranges) == 1
            alter_quotas(admin, {"user": USER}, {"consumer_byte_rate": None})
            stream.receive_messages(MESSAGES - 1)
    finally:
        alter_quotas(admin, {"user": USER}, {"consumer_byte_rate": None})


@pytest.mark.thorough
def test_the_push_client_logs_in_again_and_says_when_its_user_is_deleted(tmp_path: Path) -> None:
    settings = {"connections.max.reauth.ms": str(LIFETIME_MS)}
    with (
        secured_broker(tmp_path, settings=settings) as secured,
        ClusterConnection(secured.bootstrap, security=secured.admin_security) as admin,
        zhumq.Producer(secured.bootstrap, security=secured.admin_security) as producer,
    ):
        create_topic(admin, "orders", partitions=1)
        read: set[int] = set()
        read_at_deletion: list[int] = []

        async def scenario() -> None:
            logged_in_until = time.monotonic() + 3 * LIFETIME_MS / 1000
            async with zhumq.PushConsumer(
                "orders", group="readers", bootstrap=secured.bootstrap, security=secured.security
            ) as consumer:
                producer.send("orders", b"x")
                async for message in consumer:
                    read.add(message.offset)
                    if time.monotonic() > logged_in_until and not read_at_deletion:
                        read_at_deletion.extend(sorted(read))
                        delete_user(admin, "alice")
                    producer.send("orders", b"x")

        async def bounded() -> None:
            async with asyncio.timeout(SECONDS_MAX):
                await scenario()

        with pytest.raises(AuthenticationFailed, match="refused the client"):
            asyncio.run(bounded())
        assert read_at_deletion == list(range(len(read_at_deletion)))
        assert read_at_deletion
