"""A live broker under test: sends frames to it, and checks that it still serves other clients."""

import socket
import struct
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from zhumq.protocol.api import APIS, ApiKey, RequestHeader, decode_response, encode_request
from zhumq.protocol.messages.metadata import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from zhumq.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from zhumq.protocol.schema import Message

HANG_SECONDS = 1.0  # the longest a healthy client may have to wait, the scheduler aside
PROBE_SECONDS_MAX = 15.0  # the same on any machine, however busy: after this it hangs
ANSWER_SECONDS = 0.03  # a request may be parked; after this the next one is sent elsewhere
SLOW_SECONDS = 30.0  # for the few cases that ask for a lot of honest work


class Outcome(StrEnum):
    ANSWERED = "answered"
    CLOSED = "closed"
    WAITING = "waiting"


class Hang(AssertionError):
    """A healthy client was not answered in time."""


class Peer:
    """One connection that sends arbitrary bytes."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=SLOW_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> bool:
        """Sends bytes. Returns whether the connection was still open."""
        try:
            self._socket.sendall(data)
        except ConnectionError:
            return False
        return True

    def outcome(self, seconds: float = ANSWER_SECONDS) -> Outcome:
        """The outcome of the last request."""
        try:
            return Outcome.CLOSED if self.read_frame(seconds) is None else Outcome.ANSWERED
        except TimeoutError:
            return Outcome.WAITING

    def read_frame(self, seconds: float = SLOW_SECONDS) -> bytes | None:
        """An answer without its size; None if the broker closed the connection."""
        header = self._read(4, seconds)
        if header is None:
            return None
        return self._read(struct.unpack(">i", header)[0], SLOW_SECONDS)

    def ask(self, key: ApiKey, version: int, body: Message, seconds: float = SLOW_SECONDS) -> Any:
        self.send(encode_request(RequestHeader(key, version, 7, "probe"), body))
        frame = self.read_frame(seconds)
        if frame is None:
            raise ConnectionResetError(f"{key.name} v{version} closed the connection")
        correlation_id, message = decode_response(key, version, frame)
        assert correlation_id == 7
        return message

    def _read(self, count: int, seconds: float) -> bytes | None:
        self._socket.settimeout(seconds)
        parts = bytearray()
        while len(parts) < count:
            try:
                data = self._socket.recv(min(count - len(parts), 1 << 20))
            except ConnectionError:
                return None
            if not data:
                return None
            parts += data
        return bytes(parts)


class Target:
    """A broker, and a healthy client that probes it."""

    def __init__(self, bootstrap: str, pid: int) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.address = (host, int(port))
        self._pid = pid
        self._probe = Peer(self.address)
        self._memory_before = self.resident_bytes()
        self.longest_wait_seconds = 0.0

    def close(self) -> None:
        self._probe.__exit__()

    def prepare(self, topics: tuple[str, ...]) -> list[uuid.UUID]:
        """Creates the topics that random requests use, and returns their ids."""
        self._probe.ask(
            ApiKey.CREATE_TOPICS,
            5,
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=name,
                        num_partitions=2,
                        replication_factor=1,
                        configs=[
                            CreatableTopicConfig(
                                name="cleanup.policy",
                                value="compact" if "compact" in name else "delete",
                            )
                        ],
                    )
                    for name in topics
                ],
                timeout_ms=10_000,
            ),
        )
        requested = [MetadataRequestTopic(name=name) for name in topics]
        version = APIS[ApiKey.METADATA].max_version
        answer = self._probe.ask(ApiKey.METADATA, version, MetadataRequest(topics=requested))
        return [topic.topic_id for topic in answer.topics]

    @contextmanager
    def peer(self) -> Iterator[Peer]:
        with Peer(self.address) as peer:
            yield peer

    def check_health(self, case: str) -> None:
        """Checks that a healthy client is answered. Raises Hang."""
        started = time.monotonic() - self._starved_seconds()
        try:
            versions = self._probe.ask(
                ApiKey.API_VERSIONS, 3, ApiVersionsRequest(), seconds=PROBE_SECONDS_MAX
            )
        except (TimeoutError, ConnectionError) as error:
            raise Hang(f"{case}: a healthy client is not served any more: {error!r}") from error
        waited = time.monotonic() - self._starved_seconds() - started
        self.longest_wait_seconds = max(self.longest_wait_seconds, waited)
        assert versions.error_code == 0
        assert len(versions.api_keys) > 1

    def _starved_seconds(self) -> float:
        """Seconds in which the broker and this process were ready to run and not scheduled, in all."""
        waited_ns = [
            int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
            for pid in ("self", self._pid)
        ]
        return sum(waited_ns) / 1e9

    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self._pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise ProcessLookupError(self._pid)

    @property
    def memory_growth_bytes(self) -> int:
        return self.resident_bytes() - self._memory_before
