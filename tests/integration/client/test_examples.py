"""The programs in examples/ as they are started by a reader: a server on a loopback port, a worker, a real broker."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from client_support import until

import zhumq
from zhumq import Admin
from zhumq.admin.groups import describe_group
from zhumq.testing.broker import RunningBroker

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SECONDS_MAX = 60
SERVERS = {
    "fastapi_orders": ["-m", "uvicorn", "app:app", "--port", "0"],
    "django_orders": ["-m", "uvicorn", "shop.asgi:application", "--port", "0", "--lifespan", "off"],
}
WORKERS = {
    "fastapi_orders": ["worker.py"],
    "django_orders": ["manage.py", "pack_orders"],
}


@contextmanager
def running(
    example: str, arguments: list[str], bootstrap: str, stderr: int | None = None
) -> Iterator[Any]:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=EXAMPLES / example,
        env=os.environ | {"ZHUMQ_BOOTSTRAP": bootstrap},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def serving(example: str, bootstrap: str) -> Iterator[str]:
    """Yields the address of the example's server."""
    with running(example, SERVERS[example], bootstrap, subprocess.STDOUT) as process:
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if found := re.search(r"running on (http://127\.0\.0\.1:\d+)", line):
                yield found[1]
                process.send_signal(signal.SIGTERM)
                assert process.wait(SECONDS_MAX) in (0, -signal.SIGTERM)
                return
        pytest.fail("the server did not start: " + "".join(lines))


@pytest.mark.thorough
@pytest.mark.parametrize("example", sorted(SERVERS))
def test_orders_are_taken_packed_and_dead_lettered(
    zhumq_broker: RunningBroker, example: str
) -> None:
    bootstrap = zhumq_broker.bootstrap
    with Admin(bootstrap) as admin:
        admin.create_topic("orders", partitions=1)
    with serving(example, bootstrap) as address, httpx.Client(base_url=address) as client:
        taken = client.post("/orders", json={"customer": "ada", "item": "chair"})
        assert (taken.status_code, taken.json()["offset"]) == (202, 0)
        assert client.post("/orders", json={"customer": "bob", "item": 7}).status_code == 422
        assert client.post("/orders", content=b"{").status_code == 422
        nothing = {"customer": "eve", "item": "table", "count": 0}
        assert client.post("/orders", json=nothing).json()["offset"] == 1
    with zhumq.Producer(bootstrap) as producer:
        producer.send("orders", b"no order", partition=0)
        producer.send("orders", b'{"customer":"ada","item":"lamp","count":2}', key=b"ada")
    with running(example, WORKERS[example], bootstrap) as worker:
        printed = iter(worker.stdout.readline, "")
        packed = (line.strip() for line in printed if line.startswith("packed"))
        assert next(packed) == "packed 1 x chair for ada"
        assert next(packed) == "packed 2 x lamp for ada"
        with Admin(bootstrap) as admin:
            until(
                lambda: admin.dead_letter_topics() and len(list(admin.dead_letters("orders"))) == 2
            )
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(SECONDS_MAX) == 0
    with Admin(bootstrap) as admin:
        group = describe_group(admin, "packers")
        assert (group.members, [each.committed for each in group.offsets]) == ((), [4])
        reasons = {each.story.offset: each.story.reason for each in admin.dead_letters("orders")}
    assert reasons[1] == "ValueError: nothing to pack for eve"
    assert reasons[2].startswith("cannot decode the value of orders-0@2: ")


@pytest.mark.thorough
@pytest.mark.parametrize("example", sorted(SERVERS))
def test_an_endpoint_says_when_it_has_no_broker(example: str) -> None:
    with serving(example, "127.0.0.1:1") as address:
        answer = httpx.post(f"{address}/orders", json={"customer": "ada", "item": "x"}, timeout=60)
        assert answer.status_code == 503
