"""`zhumq start --web` and `zhumq web` as processes: they serve, they end together, their errors are one line."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from zhumq.testing.process import NO_WATERMARKS, BrokerProcess

SECONDS_MAX = 60.0
SOON_SECONDS = 20.0  # for the answer that no broker is there


def zhumq(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "zhumq", *arguments]


@contextmanager
def started(data_dir: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    settings = [
        part for name, value in NO_WATERMARKS.items() for part in ("--set", f"{name}={value}")
    ]
    anywhere = ["--listen", "127.0.0.1:0", "--push", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    process = subprocess.Popen(
        zhumq("start", *anywhere, "--web", "127.0.0.1:0", "--data-dir", str(data_dir), *settings),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        ready = re.match(r"zhumq ready kafka=.* web=(http://\S+)$", process.stdout.readline())
        assert ready is not None
        yield process, ready.group(1)
    finally:
        process.kill()
        process.wait(SECONDS_MAX)
        process.stdout.close()


def wait_until_refused(url: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/healthz")
        except httpx.TransportError:
            return
    raise AssertionError("the REST API outlives its broker")


def test_the_api_serves_beside_the_broker_and_stops_with_it(tmp_path: Path) -> None:
    with started(tmp_path) as (process, url):
        assert httpx.post(f"{url}/api/v1/topics", json={"topic": "orders"}).status_code == 201
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/healthz")


def test_the_api_ends_when_its_broker_is_killed(tmp_path: Path) -> None:
    with started(tmp_path) as (process, url):
        assert httpx.get(f"{url}/healthz").text == "ok\n"
        process.kill()
        wait_until_refused(url)


@pytest.mark.thorough
def test_a_dead_broker_is_answered_soon_and_a_restarted_one_is_found(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    process = subprocess.Popen(
        zhumq("web", "--listen", "127.0.0.1:0", "--bootstrap", broker.bootstrap),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().split("url=")[1].split()[0]
        with httpx.Client(base_url=f"{url}/api/v1", timeout=SECONDS_MAX) as api:
            assert api.get("/cluster").status_code == 200
            broker.kill()
            # A connection that was open tries for a while; the next request is answered soon.
            assert api.get("/cluster").status_code == 503
            answer = api.get("/cluster", timeout=SOON_SECONDS)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
            broker.start()
            deadline = time.monotonic() + SECONDS_MAX
            while api.get("/cluster").status_code != 200:
                assert time.monotonic() < deadline
    finally:
        process.terminate()
        assert process.wait(SECONDS_MAX) == 0
        process.stdout.close()
        broker.kill()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["web", "--listen", "0.0.0.0:0"], "passwords would be sent in the clear"),
        (["web", "--listen", "x"], "--listen 'x' is not HOST:PORT"),
        (["web", "--tls-cert", "a.pem"], "--tls-cert and --tls-key go together"),
        (["web", "--tls-cert", "no.pem", "--tls-key", "no.pem"], "there is no file no.pem"),
        (["web", "--config", "no.properties"], "--config: cannot read no.properties"),
        (["start", "--listen", "SASL_PLAINTEXT://127.0.0.1:0", "--web", "127.0.0.1:0"], "--web needs --web-config"),
    ],
)  # fmt: skip
def test_errors_are_one_line_that_says_what_to_do(
    tmp_path: Path, arguments: list[str], reason: str
) -> None:
    done = subprocess.run(
        zhumq(*arguments),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 1
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
