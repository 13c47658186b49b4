"""The push endpoint: on, off, without grpcio, with TLS; and the published protocol."""

import asyncio
import os
import re
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from push_support import run
from tests.certificates import KEY_PASSWORD, Certificate, make_authority

from zhumq import PushConsumer
from zhumq.client.errors import PushUnavailable, SubscriptionRefused
from zhumq.net.tls_config import ClientAuth, Store, TlsConfig
from zhumq.net.tls_context import TlsSource
from zhumq.push.callers import any_caller
from zhumq.push.server import PushServer
from zhumq.push.settings import PushSettings
from zhumq.push.unread import UnreadFrames
from zhumq.testing.broker import RunningBroker

REPOSITORY = Path(__file__).resolve().parents[3]
PROTO = REPOSITORY / "src" / "zhumq" / "protocol" / "push" / "push.proto"
WITHOUT_GRPC = """
import sys
sys.modules["grpc"] = None
from zhumq.cli.main import main
main()
"""
SECONDS_MAX = 30.0


def ready_line(*arguments: str, folder: Path, program: tuple[str, ...] = ("-m", "zhumq")) -> str:
    command = [sys.executable, *program, "start", "--listen", "127.0.0.1:0"]
    command += ["--http", "127.0.0.1:0", "--data-dir", str(folder / "data"), *arguments]
    with (
        open(folder / "log", "w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0
    return line


def test_push_can_be_turned_off(tmp_path: Path) -> None:
    assert " push=off " in ready_line("--push", "off", folder=tmp_path)


def test_a_broker_without_grpcio_serves_without_push_and_logs_how_to_install_it(
    tmp_path: Path,
) -> None:
    assert " push=off " in ready_line(folder=tmp_path, program=("-c", WITHOUT_GRPC))
    assert "pip install 'zhumq[push]'" in (tmp_path / "log").read_text()


def test_a_client_without_grpcio_raises_an_error_that_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['grpc'] = None\n"
        "import zhumq\n"
        "zhumq.Producer, zhumq.Consumer, zhumq.Worker, zhumq.Admin\n"
        "for use in (lambda: zhumq.PushConsumer('t'), lambda: zhumq.Consumer('t', mode='psb')):\n"
        "    try: use()\n"
        "    except Exception as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
    )
    assert done.stdout.count("pip install 'zhumq[push]'") == 2


def test_importing_the_package_loads_neither_client_library_nor_broker() -> None:
    code = (
        "import sys, zhumq; print(sorted({'grpc', 'confluent_kafka', 'uvloop'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
    )
    assert done.stdout == "[]\n"


def test_a_client_of_a_broker_without_push_gets_a_clear_error(tmp_path: Path) -> None:
    from zhumq.broker.app import BrokerApp
    from zhumq.broker.config import BrokerConfig

    async def scenario() -> None:
        config = BrokerConfig.load(
            listen="127.0.0.1:0", http="127.0.0.1:0", push="off", data_dir=tmp_path
        )
        app = await BrokerApp.start(config)
        try:
            consumer = PushConsumer("t", bootstrap=str(app.kafka_address))
            with pytest.raises(PushUnavailable, match="do not push"):
                await consumer.__aenter__()
        finally:
            await app.stop()

    run(scenario())


def test_the_python_code_matches_the_published_protocol(tmp_path: Path) -> None:
    made = subprocess.run(
        [
            sys.executable, "-m", "grpc_tools.protoc", f"-I{REPOSITORY / 'src'}",
            f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", str(PROTO),
        ],
        check=False,
    )  # fmt: skip
    assert made.returncode == 0
    for name in ("push_pb2.py", "push_pb2.pyi"):
        fresh = (tmp_path / "zhumq" / "protocol" / "push" / name).read_text()
        assert fresh == PROTO.with_name(name).read_text(), "run `make proto`"


class _EmptyCluster:
    """The parts of PushServices that a refusal needs."""

    def __init__(self) -> None:
        self.settings = PushSettings()
        self.image = SimpleNamespace(topics={})
        self.sessions = self
        self.endings = self
        self.streams: set[object] = set()
        self.half_streams: set[object] = set()
        self.unread = UnreadFrames(time.monotonic)
        self.closing = False
        self.caller_of = any_caller

    async def restore(self) -> None: ...

    async def finish(self) -> None: ...

    async def close(self) -> None: ...


@pytest.mark.thorough
@pytest.mark.parametrize("auth", [ClientAuth.NONE, ClientAuth.REQUIRED])
def test_the_push_endpoint_serves_tls(tmp_path: Path, auth: ClientAuth) -> None:
    authority = make_authority(tmp_path)
    broker, client = authority.issue("broker"), authority.issue("alice")
    other = make_authority(tmp_path / "other").issue("alice")
    encrypted = broker.encrypted_key_file.read_bytes() + broker.certificate_file.read_bytes()
    broker.combined_file.write_bytes(encrypted)
    tls = TlsSource(
        "PUSH",
        TlsConfig(
            key_store=Store(setting="key store", location=str(broker.combined_file)),
            key_password=KEY_PASSWORD,
            trust_store=Store(setting="trust store", location=str(authority.certificate_file)),
            client_auth=auth,
        ),
    )
    services: Any = _EmptyCluster()

    def credentials(shown: Certificate | None) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(
            root_certificates=authority.certificate_file.read_bytes(),
            private_key=None if shown is None else shown.key_file.read_bytes(),
            certificate_chain=None if shown is None else shown.certificate_file.read_bytes(),
        )

    async def scenario() -> None:
        server = await PushServer.open(services, "127.0.0.1", 0, tls=tls)
        push = f"localhost:{server.address[1]}"
        try:
            async with PushConsumer("t", push=push, credentials=credentials(client)) as consumer:
                with pytest.raises(SubscriptionRefused, match="no topic 't'"):
                    await anext(consumer)
            refused = [None, credentials(other), credentials(None)]
            for wrong in refused if auth is ClientAuth.REQUIRED else refused[:1]:
                async with PushConsumer("t", push=push, credentials=wrong) as consumer:
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(anext(consumer), 1)
        finally:
            await server.close()

    run(scenario())


def test_the_push_endpoint_shows_a_replaced_certificate(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    first, second = authority.issue("first"), authority.issue("second")
    file = tmp_path / "broker.pem"
    file.write_bytes(first.combined_file.read_bytes())
    seconds = [0.0]
    tls = TlsSource(
        "PUSH",
        TlsConfig(
            key_store=Store(setting="key store", location=str(file)),
            trust_store=Store(setting="trust store"),
        ),
        clock=lambda: seconds[0],
    )
    services: Any = _EmptyCluster()
    context = ssl.create_default_context(cafile=str(authority.certificate_file))
    context.set_alpn_protocols(["h2"])

    async def scenario() -> None:
        server = await PushServer.open(services, "127.0.0.1", 0, tls=tls)

        async def shown() -> str:
            _, writer = await asyncio.open_connection(
                *server.address, ssl=context, server_hostname="localhost"
            )
            subject = writer.get_extra_info("peercert")["subject"]
            writer.transport.abort()
            return str(subject[0][0][1])

        try:
            assert await shown() == "first"
            file.write_bytes(second.combined_file.read_bytes())
            seconds[0] += 60
            assert await shown() == "second"
        finally:
            await server.close()

    run(scenario())


def test_an_invalid_address_is_refused() -> None:
    for wrong in ("", "nowhere", "host:", "host:0", "host:99999"):
        with pytest.raises(ValueError, match=re.escape(repr(wrong))):
            run(PushConsumer("t", push=wrong).__aenter__())


def test_a_refusal_is_an_error_with_its_code(running: RunningBroker) -> None:
    async def scenario() -> None:
        async with PushConsumer("not-there", push=running.push) as consumer:
            with pytest.raises(SubscriptionRefused, match="no topic 'not-there'") as refused:
                await anext(consumer)
            assert refused.value.code == "UNKNOWN_TOPIC"

    run(scenario())
