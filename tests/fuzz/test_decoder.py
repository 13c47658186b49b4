"""Broken requests never make the decoder fail in any but its own ways."""

import contextlib
import random

import pytest

from zhumq.model.errors import MalformedFrame
from zhumq.protocol.api import APIS, ApiKey, UnsupportedApiVersion, decode_request

from .messages import Messages, mutate

FRAMES_PER_API = 1_000


@pytest.mark.parametrize("key", list(APIS), ids=lambda key: key.name.lower())
def test_a_broken_request_is_malformed_or_of_an_unknown_version_and_nothing_else(
    key: ApiKey,
) -> None:
    messages = Messages(random.Random(int(key)))
    for _ in range(FRAMES_PER_API):
        frame = messages.frame(key)[4:]
        assert decode_request(frame).header.api_key is key
        with contextlib.suppress(MalformedFrame, UnsupportedApiVersion):
            decode_request(mutate(messages.random, frame))


def test_noise_is_malformed() -> None:
    draw = random.Random(1)
    for _ in range(3_000):
        frame = draw.randbytes(draw.choice((1, 4, 8, 10, 12, 40, 400)))
        if frame[:1] != b"\x00":
            frame = b"\x00" + frame[1:]
        with contextlib.suppress(MalformedFrame, UnsupportedApiVersion):
            decode_request(frame)
