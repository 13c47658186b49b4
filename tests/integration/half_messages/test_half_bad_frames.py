"""Hostile and broken producers of half messages: each is refused with a message, and the broker goes on."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from half_support import SETTINGS, wait_for_values

import zhumq
from zhumq.client.errors import HalfMessageRefused
from zhumq.client.half_link import HALF, HalfLink, LinkBroken
from zhumq.protocol.push import push_pb2 as pb
from zhumq.testing.broker import RunningBroker, broker

REGISTER = pb.HalfClientFrame(register=pb.HalfRegister(group="g"))


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(settings=SETTINGS | {"push.max.streams": "3"}) as broker_:
        with zhumq.Admin(broker_.bootstrap) as admin:
            admin.create_topic("t", partitions=1)
        yield broker_


def answers(running: RunningBroker, *frames: bytes) -> list[pb.HalfServerFrame]:
    """What the broker sends until it ends the stream."""
    with grpc.insecure_channel(running.push) as channel:
        stream: Any = channel.stream_stream(HALF)
        return [pb.HalfServerFrame.FromString(each) for each in stream(iter(frames), timeout=30)]


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff\xff\xff",
        pb.HalfClientFrame(decide=pb.HalfDecide(id="x")).SerializeToString(),
        pb.HalfClientFrame(register=pb.HalfRegister(group="")).SerializeToString(),
        pb.HalfClientFrame(register=pb.HalfRegister(group="x" * 250)).SerializeToString(),
    ],
)
def test_a_stream_begins_with_a_valid_register(running: RunningBroker, first: bytes) -> None:
    (frame,) = answers(running, first)
    assert (frame.refused.code, frame.refused.retry) == (pb.INVALID, False)
    assert frame.refused.message


def test_a_bad_request_is_refused_and_the_stream_goes_on(running: RunningBroker) -> None:
    bad = [
        b"\xff\xff\xff",
        pb.HalfClientFrame(number=2).SerializeToString(),
        pb.HalfClientFrame(number=3, register=REGISTER.register).SerializeToString(),
        pb.HalfClientFrame(
            number=4,
            decide=pb.HalfDecide(id="x", decision=77),  # type: ignore[arg-type]
        ).SerializeToString(),
        pb.HalfClientFrame(number=5, prepare=pb.HalfPrepare()).SerializeToString(),
        pb.HalfClientFrame(number=6, prepare=pb.HalfPrepare(id="", topic="t")).SerializeToString(),
    ]
    good = pb.HalfPrepare(id="good", topic="t", body=pb.HalfBody(value=b"v"))
    frames = answers(
        running,
        REGISTER.SerializeToString(),
        *bad,
        pb.HalfClientFrame(number=7, prepare=good).SerializeToString(),
    )
    assert frames[0].HasField("registered")
    codes = {each.answered.number: each.answered.code for each in frames[1:]}
    assert codes == {
        0: pb.INVALID,
        2: pb.INVALID,
        3: pb.INVALID,
        4: pb.INVALID,
        5: pb.UNKNOWN_TOPIC,
        6: pb.INVALID,
        7: pb.OK,
    }


def test_a_frame_above_the_limit_ends_its_stream_only(running: RunningBroker) -> None:
    link = HalfLink(running.push, None, REGISTER.register)
    frames = link.frames()
    assert next(frames).HasField("registered")
    large = pb.HalfPrepare(id="x", topic="t", body=pb.HalfBody(value=bytes(2 << 20)))
    link.send(pb.HalfClientFrame(number=1, prepare=large))
    with pytest.raises(LinkBroken):
        next(frames)
    link.close()
    with zhumq.HalfMessageProducer(running.bootstrap, group="g", check=None) as producer:
        with pytest.raises(HalfMessageRefused, match="million"):
            producer.prepare("t", bytes(2 << 20))
        producer.prepare("t", "after").commit()
        wait_for_values(running.bootstrap, "t", {b"after": 1})


def test_the_number_of_streams_is_bounded(running: RunningBroker) -> None:
    links = [HalfLink(running.push, None, REGISTER.register) for _ in range(3)]
    streams = [link.frames() for link in links]
    for stream in streams:
        assert next(stream).HasField("registered")
    (refused,) = answers(running, REGISTER.SerializeToString())
    assert (refused.refused.code, refused.refused.retry) == (pb.UNAVAILABLE, True)
    for link, stream in zip(links, streams, strict=True):
        link.finish()
        assert list(stream) == []
        link.close()
