"""Frames that have broken brokers before."""

import copy
import random
import struct
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import cramjam

from zhumq.protocol.api import APIS, ApiKey, ApiSpec, RequestHeader, encode_request
from zhumq.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from zhumq.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from zhumq.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from zhumq.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from zhumq.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from zhumq.protocol.schema import ArrayOf, Message, StructOf, fields_of
from zhumq.records.batch import CHECKED_OFFSET, CRC_OFFSET, HEADER_BYTES, Record
from zhumq.records.builder import build_batch
from zhumq.records.codecs import Compression, crc32c

from .messages import Messages
from .target import Outcome

# How long the sender of a request waits for its outcome: the broker works through a huge one, or the machine is busy.
OUTCOME_SECONDS_MAX = 120.0
NO_OUTCOME_SECONDS = 0.05  # how long a connection is watched that the broker has to leave alone

BOMB_BYTES = 192 * 1024 * 1024  # more than a batch may decompress to
BOMBS = 40
MANY_TOPICS = 100_000
SWOLLEN = 20_000
TOPIC = "fuzz-a"
COMPACTED_TOPIC = "fuzz-compacted"  # here the broker looks at every record's key


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Bytes to send on a connection of their own, and the allowed outcomes."""

    name: str
    data: bytes
    allowed: frozenset[Outcome] = frozenset({Outcome.CLOSED})

    @property
    def seconds(self) -> float:
        return NO_OUTCOME_SECONDS if Outcome.WAITING in self.allowed else OUTCOME_SECONDS_MAX


ANSWERED = frozenset({Outcome.ANSWERED})
CLOSED_OR_ANSWERED = frozenset({Outcome.CLOSED, Outcome.ANSWERED})
WAITING = frozenset({Outcome.WAITING})


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(key: ApiKey, version: int, body: Message) -> bytes:
    return encode_request(RequestHeader(key, version, 1, "fuzz"), body)


def frame_cases() -> Iterator[Case]:
    """Wrong sizes and headers."""
    for size in (0, -1, -(2**31), 2**31 - 1, 100 * 1024 * 1024 + 1):
        yield Case(name=f"size {size}", data=struct.pack(">i", size) + b"\x00" * 16)
    yield Case(name="half a size", data=b"\x00\x00", allowed=WAITING)
    metadata = request(ApiKey.METADATA, 9, MetadataRequest(topics=None))
    yield Case(name="half a frame", data=metadata[:-3], allowed=WAITING)
    yield Case(name="HTTP", data=b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    yield Case(name="TLS", data=bytes.fromhex("1603010200010001fc0303") + b"\x11" * 600)
    for length in range(1, len(metadata) - 4):
        yield Case(name=f"a frame cut at {length}", data=framed(metadata[4 : 4 + length]))
    yield Case(
        name="bytes after the end",
        data=framed(metadata[4:] + b"\x00"),
        allowed=CLOSED_OR_ANSWERED,
    )
    for key in (-1, 4, 7, 999, 32_767):
        yield Case(name=f"key {key}", data=framed(struct.pack(">hhih", key, 0, 1, -1)))
    for spec in APIS.values():
        for version in (-1, -32_768, spec.max_version + 1, 32_767):
            yield Case(
                name=f"{spec.key.name} v{version}",
                data=framed(struct.pack(">hhih", spec.key, version, 1, -1) + b"\x00" * 4),
                # KIP-511: ApiVersions in any version is answered in version 0.
                allowed=ANSWERED if spec.key is ApiKey.API_VERSIONS else CLOSED_OR_ANSWERED,
            )
    head = struct.pack(">hhih", ApiKey.METADATA, 1, 1, 4) + b"fuzz"
    for count in (2**31 - 1, 2**24):
        yield Case(name=f"{count} topics, none sent", data=framed(head + struct.pack(">i", count)))
    # Kafka reads every negative count of a nullable array as null.
    yield Case(name="-2 topics", data=framed(head + struct.pack(">i", -2)), allowed=ANSWERED)
    yield Case(name="a string beyond the frame", data=framed(head + b"\x00\x00\x00\x01\x7f\xff"))
    yield Case(name="not UTF-8", data=framed(head + b"\x00\x00\x00\x01\x00\x02\xff\xfe"))
    yield Case(
        name="a client id beyond the frame",
        data=framed(struct.pack(">hhih", ApiKey.METADATA, 1, 1, 32_767)),
    )
    flexible = struct.pack(">hhih", ApiKey.METADATA, 9, 1, -1)
    for bomb in (b"\xff" * 5, b"\xff" * 10, b"\xff" * 1_000, b"\xff\xff\xff\xff\x0f"):
        name = f"a varint of {len(bomb)} bytes"
        yield Case(name=f"{name} as count", data=framed(flexible + b"\x00" + bomb))
        yield Case(name=f"{name} as tag count", data=framed(flexible + bomb))
        yield Case(name=f"{name} as tag size", data=framed(flexible + b"\x01\x00" + bomb))


def produced(
    records: bytes | None, version: int = 9, *, topic: str = TOPIC, count: int = 1
) -> bytes:
    partitions = [PartitionProduceData(index=0, records=records)] * count
    topics = [TopicProduceData(name=topic, partition_data=partitions)]
    return request(
        ApiKey.PRODUCE, version, ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=topics)
    )


def produce_cases() -> Iterator[Case]:
    """Malformed record batches. All are answered with an error, or close the connection."""
    batch = build_batch([Record(offset=0, timestamp=1, key=b"k", value=b"v" * 50, headers=())])
    lies = {
        "no records": None,
        "no bytes": b"",
        "half a header": batch[:30],
        "half a batch": batch[:-1],
        "a batch and a half": batch + batch[:40],
        "wrong checksum": batch[:CRC_OFFSET] + b"\x00\x00\x00\x00" + batch[CHECKED_OFFSET:],
        "magic 0": batch[:16] + b"\x00" + batch[17:],
        "magic 1": batch[:16] + b"\x01" + batch[17:],
        "magic 99": batch[:16] + b"\x63" + batch[17:],
        "negative offset": struct.pack(">q", -5) + batch[8:],
    }
    for length in (0, -1, 48, 2**31 - 1, -(2**31)):
        lies[f"batch length {length}"] = batch[:8] + struct.pack(">i", length) + batch[12:]
    for count in (0, -1, 2, 1_000_000, 2**31 - 1):
        lies[f"{count} records"] = resealed(batch[:57] + struct.pack(">i", count) + batch[61:])
    for delta in (-1, 5, 2**31 - 1):
        lies[f"last offset delta {delta}"] = resealed(
            batch[:23] + struct.pack(">i", delta) + batch[27:]
        )
    for codec in (5, 6, 7):
        lies[f"compression {codec}"] = resealed(batch[:21] + struct.pack(">h", codec) + batch[23:])
    for codec in (1, 2, 3, 4):
        lies[f"plain bytes marked as compressed with {codec}"] = resealed(
            batch[:21] + struct.pack(">h", codec) + batch[23:]
        )
    lies["record length beyond the batch"] = resealed(
        batch[:HEADER_BYTES] + b"\xfe\x7f" + batch[63:]
    )
    lies["a varint bomb in a record"] = resealed(batch[:HEADER_BYTES] + b"\xff" * 40)
    for name, records in lies.items():
        for version in (3, 9, 12):
            yield Case(
                name=f"produce v{version}: {name}",
                data=produced(records, version),
                allowed=CLOSED_OR_ANSWERED,
            )


def bomb_cases() -> Iterator[Case]:
    """Decompression bombs: gigabytes of zeros in small batches."""
    zeros = bytes(BOMB_BYTES)
    packed = {
        Compression.GZIP: zlib.compress(zeros, wbits=31),
        Compression.ZSTD: bytes(cramjam.zstd.compress(zeros)),
        Compression.LZ4: bytes(cramjam.lz4.compress(zeros)),
    }
    del zeros
    # A raw snappy block starts with its size as a varint.
    packed[Compression.SNAPPY] = b"\xff\xff\xff\xff\x0f" + b"\x00" * 100
    for compression, payload in packed.items():
        batch = _compressed_batch(compression, payload)
        for topic in (TOPIC, COMPACTED_TOPIC):
            for count in (1, BOMBS):
                yield Case(
                    name=f"{count} {compression.name} bombs for {topic}",
                    data=produced(batch, topic=topic, count=count),
                    allowed=CLOSED_OR_ANSWERED,
                )


def many_cases() -> Iterator[Case]:
    """Requests that ask for a lot in few bytes."""
    names = [MetadataRequestTopic(name=f"fuzz-many-{number}") for number in range(MANY_TOPICS)]
    for create in (False, True):
        yield Case(
            name=f"{MANY_TOPICS} topics in one Metadata, auto-create {create}",
            data=request(
                ApiKey.METADATA, 9, MetadataRequest(topics=names, allow_auto_topic_creation=create)
            ),
            allowed=ANSWERED,
        )
    twice = [MetadataRequestTopic(name=TOPIC)] * 1_000
    yield Case(
        name="one topic a thousand times in one Metadata",
        data=request(ApiKey.METADATA, 9, MetadataRequest(topics=twice)),
        allowed=ANSWERED,
    )
    batch = build_batch([Record(offset=0, timestamp=1, key=b"k", value=b"v", headers=())])
    partition = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name=TOPIC, partition_data=[partition, partition])
    yield Case(
        name="one partition four times in one Produce",
        data=request(
            ApiKey.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic, topic])
        ),
        allowed=CLOSED_OR_ANSWERED,
    )
    fetched = FetchTopic(
        topic=TOPIC, partitions=[FetchPartition(partition=0, partition_max_bytes=2**31 - 1)] * 500
    )
    yield Case(
        name="one partition a thousand times in one Fetch",
        data=request(
            ApiKey.FETCH, 11, FetchRequest(max_bytes=2**31 - 1, topics=[fetched, fetched])
        ),
        allowed=CLOSED_OR_ANSWERED,
    )
    lookup = ListOffsetsPartition(partition_index=0, timestamp=1)
    asked = ListOffsetsTopic(name=TOPIC, partitions=[lookup] * MANY_TOPICS)
    yield Case(
        name="one partition many times in one ListOffsets",
        data=request(ApiKey.LIST_OFFSETS, 5, ListOffsetsRequest(topics=[asked])),
        allowed=ANSWERED,
    )
    created = CreatableTopic(name="fuzz-twice", num_partitions=1, replication_factor=1)
    for count in (2, 1_000):
        yield Case(
            name=f"one topic {count} times in one CreateTopics",
            data=request(
                ApiKey.CREATE_TOPICS,
                5,
                CreateTopicsRequest(topics=[created] * count, timeout_ms=1_000),
            ),
            allowed=ANSWERED,
        )
    for partitions in (0, -2, 10_001, 2**31 - 1):
        new_topic = CreatableTopic(
            name=f"fuzz-{partitions}", num_partitions=partitions, replication_factor=1
        )
        yield Case(
            name=f"a topic of {partitions} partitions",
            data=request(
                ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[new_topic], timeout_ms=1_000)
            ),
            allowed=ANSWERED,
        )


def swollen_cases(topic_ids: list[uuid.UUID]) -> Iterator[Case]:
    """Every API with each of its arrays enlarged in turn, by repeating one element."""
    messages = Messages(random.Random(1), topic_ids)
    for spec in APIS.values():
        version = spec.max_version
        for outer in fields_of(spec.request):
            if not isinstance(outer.type, ArrayOf) or version not in outer.versions:
                continue
            body = messages.message(spec.request, version)
            while not getattr(body, outer.name):
                body = messages.message(spec.request, version)
            element = getattr(body, outer.name)[0]
            swollen = request_with(body, outer.name, [element] * SWOLLEN)
            yield _swollen_case(f"{spec.key.name} with many {outer.name}", spec, swollen)
            if not isinstance(outer.type.element, StructOf):
                continue
            for inner in fields_of(outer.type.element.message):
                if isinstance(inner.type, ArrayOf) and version in inner.versions:
                    name = f"{spec.key.name} with many {outer.name}.{inner.name}"
                    while not getattr(element, inner.name):
                        element = messages.message(outer.type.element.message, version)
                    part = getattr(element, inner.name)[0]
                    grown = request_with(element, inner.name, [part] * SWOLLEN)
                    swollen = request_with(body, outer.name, [grown])
                    yield _swollen_case(name, spec, swollen)


def request_with(message: Message, name: str, value: object) -> Message:
    changed = copy.copy(message)
    setattr(changed, name, value)
    return changed


def _swollen_case(name: str, spec: ApiSpec, body: Message) -> Case:
    data = request(spec.key, spec.max_version, body)
    return Case(name=name, data=data, allowed=CLOSED_OR_ANSWERED)


def resealed(batch: bytes) -> bytes:
    """The batch with the right length and checksum, so that only the intended field is wrong."""
    sized = batch[:8] + struct.pack(">i", len(batch) - 12) + batch[12:]
    checksum = struct.pack(">I", crc32c(sized[CHECKED_OFFSET:]))
    return sized[:CRC_OFFSET] + checksum + sized[CHECKED_OFFSET:]


def _compressed_batch(compression: Compression, payload: bytes) -> bytes:
    plain = build_batch([Record(offset=0, timestamp=1, key=b"k", value=b"v", headers=())])
    head = plain[:21] + struct.pack(">h", int(compression)) + plain[23:HEADER_BYTES]
    return resealed(head + payload)
