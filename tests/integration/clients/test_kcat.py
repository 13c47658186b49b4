"""kcat, a widely used command-line tool, built on an old librdkafka."""

import json
import shutil
import subprocess

import pytest

from zhumq.testing.broker import RunningBroker

SECONDS_MAX = 60
KCAT = shutil.which("kcat")
pytestmark = pytest.mark.skipif(KCAT is None, reason="kcat is not installed")


def kcat(broker: RunningBroker, *arguments: str, lines: str = "") -> str:
    done = subprocess.run(
        [str(KCAT), "-b", broker.bootstrap, *arguments],
        input=lines,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    return done.stdout


def test_lines_go_in_and_come_out(zhumq_broker: RunningBroker) -> None:
    lines = "".join(f"key{index}:value{index}\n" for index in range(1_000))
    kcat(zhumq_broker, "-P", "-t", "t", "-K", ":", "-z", "snappy", lines=lines)
    assert kcat(zhumq_broker, "-C", "-t", "t", "-e", "-q", "-f", "%k:%s\\n") == lines


def test_metadata_is_listed(zhumq_broker: RunningBroker) -> None:
    kcat(zhumq_broker, "-P", "-t", "t", lines="x\n")
    listed = json.loads(kcat(zhumq_broker, "-L", "-J"))
    host, _, port = zhumq_broker.bootstrap.rpartition(":")
    assert listed["brokers"] == [{"id": 0, "name": f"{host}:{port}"}]
    assert [topic["topic"] for topic in listed["topics"]] == ["t"]


def test_a_group_reads_to_the_end(zhumq_broker: RunningBroker) -> None:
    kcat(zhumq_broker, "-P", "-t", "t", lines="a\nb\n")
    arguments = ["-G", "g", "-X", "auto.offset.reset=earliest", "-q", "-e", "t"]
    assert kcat(zhumq_broker, *arguments) == "a\nb\n"
    kcat(zhumq_broker, "-P", "-t", "t", lines="c\n")
    assert kcat(zhumq_broker, *arguments) == "c\n"


def test_offsets_are_asked_by_time(zhumq_broker: RunningBroker) -> None:
    kcat(zhumq_broker, "-P", "-t", "t", lines="a\nb\nc\n")
    assert kcat(zhumq_broker, "-Q", "-t", "t:0:-1").strip() == "t [0] offset 3"
    assert kcat(zhumq_broker, "-Q", "-t", "t:0:-2").strip() == "t [0] offset 0"
