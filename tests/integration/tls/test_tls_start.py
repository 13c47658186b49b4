"""What is wrong with the listeners or their certificates is one line on stderr, and `zhumq tls dev` works as it is."""

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.certificates import STORE_PASSWORD
from tls_brokers import Secured, listeners

from zhumq.testing.process import BrokerProcess

SECONDS_MAX = 60.0


def zhumq(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "zhumq", *words],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.mark.thorough
def test_a_broker_that_cannot_serve_says_why_in_one_line(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    expired = secured.authority.issue("old", valid_from_days=-9, valid_days=-1)
    two_ports = "SSL://127.0.0.1:19093,PLAINTEXT://127.0.0.1:19093"
    cases: list[tuple[dict[str, str], str]] = [
        ({"ssl.keystore.location": str(expired.combined_file)}, "expired on"),
        ({"ssl.keystore.location": "/none.pem"}, "cannot read /none.pem: No such file"),
        ({"ssl.truststore.location": "", "ssl.client.auth": "required"}, "ssl.truststore.location"),
        ({"ssl.principal.mapping.rules": "RULE:x/y"}, "'RULE:x/y' is neither"),
        ({"listener.security.protocol.map": "SSL:SLL"}, "one of PLAINTEXT, SSL"),
        ({"listeners": two_ports}, "both on port 19093"),
        (
            {
                "ssl.keystore.location": str(secured.broker.keystore_file),
                "ssl.keystore.password": "not it",
            },
            "opens with the password in ssl.keystore.password",
        ),
    ]
    for changes, line in cases:
        settings = {"listeners": "SSL://127.0.0.1:0", **secured.stores, **changes}
        words = [word for pair in settings.items() for word in ("--set", "=".join(pair))]
        data = tmp_path / "data"
        done = zhumq("start", "--data-dir", str(data), "--http", "127.0.0.1:0", *words)
        assert done.returncode != 0
        assert done.stdout == ""
        errors = [each for each in done.stderr.splitlines() if each.startswith("zhumq: ")]
        assert len(errors) == 1, done.stderr
        assert line in errors[0]
        assert "Traceback" not in done.stderr
        assert "not it" not in done.stderr


def test_a_pkcs12_store_with_a_password_from_a_file_serves(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    password = tmp_path / "password"
    password.write_text(STORE_PASSWORD)
    password.chmod(0o600)
    text, addresses = listeners("SSL")
    process = BrokerProcess(
        tmp_path / "data",
        settings={
            "listeners": text,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(secured.broker.keystore_file),
            "ssl.keystore.password": f"${{file:{password}}}",
        },
    )
    process.start()
    try:
        admin = AdminClient(secured.librdkafka(addresses["SSL"]))
        assert admin.list_topics(timeout=SECONDS_MAX).brokers
        assert STORE_PASSWORD not in process.log
    finally:
        process.kill()


def test_the_files_of_tls_dev_work_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "tls dev"
    made = zhumq("tls", "dev", str(folder), "--host", "10.0.0.7", "--client", "alice")
    assert made.returncode == 0, made.stderr
    assert "User:CN=alice" in made.stdout
    assert "10.0.0.7" in made.stdout
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    again = zhumq("tls", "dev", str(folder))
    assert again.returncode == 1
    assert "is not empty" in again.stderr
    wrong = zhumq("tls", "dev", str(tmp_path / "x"), "--host", "ä.example")
    assert "neither a host name nor an address" in wrong.stderr

    process = subprocess.Popen(
        [
            sys.executable, "-m", "zhumq", "start", "--config", str(folder / "broker.toml"),
            "--set", "listeners=SSL://127.0.0.1:0", "--http", "127.0.0.1:0",
            "--data-dir", str(tmp_path / "data"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ready = re.match(r"zhumq ready kafka=127\.0\.0\.1:(\d+) ", process.stdout.readline())
        assert ready is not None
        admin = AdminClient(
            {
                "bootstrap.servers": f"localhost:{ready[1]}",
                "security.protocol": "SSL",
                "ssl.ca.location": str(folder / "ca.crt"),
                "ssl.keystore.location": str(folder / "client.p12"),
                "ssl.keystore.password": (folder / "stores.password").read_text(),
            }
        )
        assert admin.list_topics(timeout=SECONDS_MAX).brokers
    finally:
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0
        process.stdout.close()
