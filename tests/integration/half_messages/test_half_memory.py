"""100,000 pending half messages: the broker holds no bodies in memory, refuses more, and has them all after a kill."""

import contextlib
import time
from pathlib import Path

import pytest
from half_support import SETTINGS, listed, wait_for, wait_for_values

import zhumq
from zhumq.admin.errors import Unavailable
from zhumq.client.half_link import HalfLink
from zhumq.protocol.push import push_pb2 as pb
from zhumq.testing.process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

COUNT = 100_000
BODY = bytes(1_000)
BYTES_MAX = 100 << 20  # less than the bodies together
ONE_SHARD = {
    "half.message.topic.num.partitions": "1",
    "half.message.check.first.ms": "6000",
    "half.message.check.interval.ms": "30000",
}


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def is_loaded(bootstrap: str) -> bool:
    with contextlib.suppress(Unavailable):
        return len(listed(bootstrap)) == 1_000
    return False


def prepare_all(push: str, first: int, count: int) -> list[int]:
    """Sends all requests without waiting for answers. Returns the codes."""
    link = HalfLink(push, None, pb.HalfRegister(group="g", client_id="load"))
    codes = []
    frames = link.frames()
    assert next(frames).HasField("registered")
    for number in range(first, first + count):
        prepare = pb.HalfPrepare(id=f"{number:032}", topic="t", body=pb.HalfBody(value=BODY))
        link.send(pb.HalfClientFrame(number=number + 1, prepare=prepare))
        if number - first >= 500:
            codes.append(next(frames).answered.code)
    link.finish()
    codes += [frame.answered.code for frame in frames]
    link.close()
    return codes


def test_a_hundred_thousand_pending_messages_take_bounded_memory(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", settings=SETTINGS | ONE_SHARD)
    broker.start()
    try:
        with zhumq.Admin(broker.bootstrap) as admin:
            admin.create_topic("t", partitions=1)
        assert prepare_all(broker.push, 0, 1_000) == [pb.OK] * 1_000
        before = resident_bytes(broker.pid)
        began = time.monotonic()
        assert prepare_all(broker.push, 1_000, COUNT - 1_000) == [pb.OK] * (COUNT - 1_000)
        seconds = time.monotonic() - began
        growth = resident_bytes(broker.pid) - before
        each = growth / (COUNT - 1_000)
        figure = f"{growth >> 20} MiB for {COUNT} pending, {each:.0f} bytes each, {seconds:.0f} s"
        print(figure)
        assert growth < BYTES_MAX
        assert prepare_all(broker.push, COUNT, 1) == [pb.TOO_MANY_HALF_MESSAGES]

        broker.kill()
        broker.start()
        wait_for(lambda: is_loaded(broker.bootstrap), "the shard is loaded", 300)
        loaded = resident_bytes(broker.pid)
        print(f"{loaded >> 20} MiB after a restart, {before >> 20} MiB before the messages")
        assert loaded - before < BYTES_MAX
        with zhumq.HalfMessageProducer(broker.bootstrap, group="g", check=None) as producer:
            producer.decide(f"{COUNT - 1:032}", is_commit=True)
            producer.decide(f"{0:032}", is_commit=False)
            wait_for_values(broker.bootstrap, "t", {BODY: 1})
            producer.prepare("t", "room again").rollback()
    finally:
        broker.kill()
