"""Passwords of a real broker, given in every way, are in nothing that it writes or answers."""

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from secure_support import SecureEnsemble, all_nodes, secure_ensemble
from tests.certificates import KEY_PASSWORD

pytestmark = pytest.mark.slow

SECONDS_MAX = 60
AUTH = "zookeeper.auth.password"
KEY = "zookeeper.ssl.keystore.password"
SECRETS = {AUTH: "zookeeper-s3cr3t", KEY: KEY_PASSWORD}


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureEnsemble]:
    with secure_ensemble(tmp_path_factory.mktemp("secure")) as running:
        yield running


@dataclass(slots=True, kw_only=True)
class Given:
    """How a broker is given its passwords."""

    settings: dict[str, str]
    in_file: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


def given(way: str, folder: Path) -> Given:
    match way:
        case "flag":
            return Given(settings=dict(SECRETS))
        case "toml":
            return Given(settings={}, in_file=dict(SECRETS))
        case "variable":
            return Given(
                settings={AUTH: "${env:ZHUMQ_AUTH}", KEY: "${env:ZHUMQ_KEY}"},
                environment={"ZHUMQ_AUTH": SECRETS[AUTH], "ZHUMQ_KEY": SECRETS[KEY]},
            )
        case "file":
            for name, secret in SECRETS.items():
                private_file(folder / name, secret + "\n")
            return Given(
                settings={}, in_file={name: f"${{file:{folder / name}}}" for name in SECRETS}
            )
    assert way == "properties"
    file = private_file(
        folder / "secrets.properties", "".join(f"{name}: {SECRETS[name]}\n" for name in SECRETS)
    )
    return Given(settings={name: f"${{file:{file}:{name}}}" for name in SECRETS})


def private_file(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


class Broker:
    """`zhumq start` with everything that it writes kept."""

    def __init__(self, folder: Path, zookeeper: str, settings: Given) -> None:
        self.data = folder / "data"
        toml = private_file(
            folder / "zhumq.toml",
            "".join(f"{name} = '{text}'\n" for name, text in settings.in_file.items()),
        )
        command = [sys.executable, "-m", "zhumq", "start", "--config", str(toml)]
        command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--push", "off"]
        command += ["--data-dir", str(self.data), "--zookeeper", zookeeper, "--log-level", "debug"]
        for name, text in settings.settings.items():
            command += ["--set", f"{name}={text}"]
        self._log_file = folder / "broker.log"
        self._environment = {**os.environ, **settings.environment}
        self._command = command
        self.output = ""

    @contextlib.contextmanager
    def run(self) -> Iterator[dict[str, str]]:
        """The addresses in its ready line."""
        with (
            open(self._log_file, "w") as log,
            subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self._environment,
            ) as process,
        ):
            try:
                assert process.stdout is not None
                ready = process.stdout.readline()
                assert ready.startswith("zhumq ready"), self._log_file.read_text()
                yield dict(part.split("=", 1) for part in ready.split()[2:])
            finally:
                process.send_signal(signal.SIGTERM)
                rest, _ = process.communicate(timeout=SECONDS_MAX)
                self.output = ready + rest + self._log_file.read_text()


def secure_settings(ensemble: SecureEnsemble, folder: Path) -> dict[str, str]:
    keystore = private_file(folder / "keystore.pem", "")
    certificate = ensemble.certificate
    keystore.write_bytes(
        certificate.encrypted_key_file.read_bytes() + certificate.certificate_file.read_bytes()
    )
    return {
        "zookeeper.chroot.create": "true",
        "zookeeper.set.acl": "true",
        "zookeeper.auth.username": "zhumq",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(ensemble.authority.certificate_file),
        "zookeeper.ssl.keystore.location": str(keystore),
    }


def assert_without_secrets(text: str | bytes) -> None:
    content = text if isinstance(text, bytes) else text.encode()
    for secret in SECRETS.values():
        assert secret.encode() not in content


@pytest.mark.parametrize("way", ["flag", "toml", "variable", "file", "properties"])
def test_a_password_is_in_no_output_no_answer_and_no_file(
    way: str, ensemble: SecureEnsemble, tmp_path: Path
) -> None:
    path = f"/{uuid.uuid4()}"
    settings = given(way, tmp_path)
    settings.settings |= secure_settings(ensemble, tmp_path)
    broker = Broker(tmp_path, ensemble.zookeeper.secure_connect + path, settings)
    with broker.run() as addresses:
        admin = AdminClient({"bootstrap.servers": addresses["kafka"]})
        admin.create_topics([NewTopic("topic", 1)])["topic"].result(SECONDS_MAX)
        described = describe(admin)
        for name in SECRETS:
            assert described[name].value is None
            assert described[name].is_sensitive
            assert described[name].is_read_only
            assert all(each.value is None for each in described[name].synonyms.values())
        assert not described["zookeeper.auth.username"].is_sensitive
        assert_without_secrets(repr({name: vars(entry) for name, entry in described.items()}))
        assert_without_secrets(refused_change(admin, AUTH))
        assert_without_secrets(refused_change(admin, "no.such.setting"))
        with urllib.request.urlopen(f"http://{addresses['http']}/metrics") as metrics:
            assert_without_secrets(metrics.read())
    assert_without_secrets(broker.output)
    assert ("shows a password to everyone" in broker.output) == (way == "flag")
    files = [file for file in broker.data.rglob("*") if file.is_file()]
    assert files
    for file in files:
        assert_without_secrets(file.read_bytes())
    nodes = all_nodes(ensemble.zookeeper, path)
    assert f"{path}/topics/topic" in nodes
    for node in nodes.values():
        assert_without_secrets(node)


def describe(admin: AdminClient) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.BROKER, "0")
    return dict(admin.describe_configs([resource])[resource].result(SECONDS_MAX))


def refused_change(admin: AdminClient, name: str) -> str:
    entry = ConfigEntry(name, SECRETS[AUTH], incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
    with pytest.raises(KafkaException) as refused:
        admin.incremental_alter_configs([resource])[resource].result(SECONDS_MAX)
    assert name in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("way", ["flag", "file"])
@pytest.mark.parametrize(
    ("setting", "value", "line"),
    [
        ("zookeeper.auth.username", "", "zookeeper.auth.username is missing"),
        ("zookeeper.auth.username", "a:b", "has a colon"),
        ("num.partitions", "many", "num.partitions='many' is not usable"),
        ("zookeeper.ssl.keystore.location", "/no/such/file", "cannot be read: No such file"),
        ("zookeeper.ssl.truststore.type", "JKS", "it takes one of PEM"),
        ("zookeeper.ssl.client.enable", "false", "set zookeeper.ssl.client.enable=true"),
    ],
)
def test_an_error_at_start_is_one_line_without_the_password(
    way: str, setting: str, value: str, line: str, ensemble: SecureEnsemble, tmp_path: Path
) -> None:
    settings = given(way, tmp_path)
    settings.settings |= {**secure_settings(ensemble, tmp_path), setting: value}
    broker = Broker(tmp_path, ensemble.zookeeper.secure_connect + "/refused", settings)
    with pytest.raises(AssertionError, match="zhumq: "), broker.run():
        pass
    assert_without_secrets(broker.output)
    errors = [each for each in broker.output.splitlines() if each.startswith("zhumq: ")]
    assert len(errors) == 1
    assert line in errors[0]
    assert "Traceback" not in broker.output


@pytest.mark.thorough
def test_a_missing_secret_is_one_line(ensemble: SecureEnsemble, tmp_path: Path) -> None:
    for reference in ("${env:ZHUMQ_NO_SUCH}", "${file:/no/such}", "${file:/no/such:key}"):
        settings = Given(settings={AUTH: reference, "zookeeper.auth.username": "zhumq"})
        broker = Broker(tmp_path, ensemble.zookeeper.connect, settings)
        with pytest.raises(AssertionError, match="zhumq: "), broker.run():
            pass
        (line,) = broker.output.splitlines()
        assert line.startswith(f"zhumq: {AUTH}={reference} is not usable: ")
