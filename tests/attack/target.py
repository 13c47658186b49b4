"""A broker under attack: its addresses, its process, and the topics that attacks use."""

import struct
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.certificates import make_authority

from zhumq.host.ports import HOST, free_ports
from zhumq.protocol.api import ApiKey, RequestHeader, encode_request
from zhumq.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from zhumq.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from zhumq.protocol.schema import Message
from zhumq.records.batch import Record
from zhumq.records.builder import build_batch
from zhumq.testing.process import BrokerProcess, broker_process
from zhumq.testing.raw_client import RawClient

HONEST = "honest"
LARGE = "large"
COMPACTED = "compacted"
MANY = "many"
LARGE_BATCHES = 64
LARGE_BATCH_RECORDS = 10
LARGE_RECORD_BYTES = 99_000
MANY_PARTITIONS = 1_000
PRODUCE_VERSION = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The addresses of a broker under attack."""

    kafka: str
    tls: str
    sasl: str
    push: str
    http: str

    def to_arguments(self) -> list[str]:
        return [f"--{name}={value}" for name, value in asdict(self).items()]


@contextmanager
def attacked_broker(
    folder: Path, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[BrokerProcess, Target]]:
    """A broker with a plain, a TLS and a SASL listener, and the topics that attacks use."""
    # RSA: the broker's part of a handshake costs several times as much as with elliptic curves.
    certificate = make_authority(folder / "ca").issue("broker", is_rsa=True)
    plain, tls, sasl = (f"{HOST}:{port}" for port in free_ports(3))
    listeners = {
        "listeners": f"PLAINTEXT://{plain},SSL://{tls},SASL_PLAINTEXT://{sasl}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.location": str(certificate.combined_file),
    }
    with broker_process(folder / "data", settings={**listeners, **(settings or {})}) as process:
        target = Target(
            kafka=process.bootstrap, tls=tls, sasl=sasl, push=process.push, http=process.http
        )
        prepare(target)
        yield process, target


def address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def request(key: ApiKey, version: int, body: Message, client_id: str = "attack") -> bytes:
    """A request with its size in front."""
    header = RequestHeader(api_key=key, api_version=version, correlation_id=1, client_id=client_id)
    return encode_request(header, body)


def batch_of(value: bytes, count: int = 1) -> bytes:
    now_ms = int(time.time() * 1000)  # or retention would delete it at any moment
    records = [
        Record(offset=number, timestamp=now_ms, key=b"k", value=value, headers=())
        for number in range(count)
    ]
    return build_batch(records)


def produce_request(topic: str, batch: bytes, *, acks: int = 1) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=batch)
    data = TopicProduceData(name=topic, partition_data=[partition])
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[data])


def produce(client: RawClient, topic: str, batch: bytes, *, acks: int = 1) -> int:
    """Produces a batch and returns its offset. Raises ConnectionError if the broker refuses it."""
    response: ProduceResponse = client.ask(
        ApiKey.PRODUCE, produce_request(topic, batch, acks=acks), PRODUCE_VERSION
    )
    answer = response.responses[0].partition_responses[0]
    if answer.error_code:
        raise ConnectionError(f"produce was answered with error {answer.error_code}")
    return answer.base_offset


def prepare(target: Target) -> None:
    """Creates and fills the topics that attacks and honest clients use."""
    compacted = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    topics = [
        CreatableTopic(name=HONEST, num_partitions=1, replication_factor=1),
        CreatableTopic(name=LARGE, num_partitions=1, replication_factor=1),
        CreatableTopic(name=COMPACTED, num_partitions=1, replication_factor=1, configs=compacted),
        CreatableTopic(name=MANY, num_partitions=MANY_PARTITIONS, replication_factor=1),
    ]
    with RawClient(target.kafka) as client:
        created = client.ask(
            ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5
        )
        assert not any(each.error_code for each in created.topics), created
        batch = batch_of(b"x" * LARGE_RECORD_BYTES, LARGE_BATCH_RECORDS)
        for _ in range(LARGE_BATCHES):
            produce(client, LARGE, batch)


def healthz(target: Target, seconds_max: float) -> bool:
    with urllib.request.urlopen(f"http://{target.http}/healthz", timeout=seconds_max) as answer:
        return bool(answer.status == 200)


def memory_bytes(pid: int, name: str) -> int:
    """VmRSS (now) or VmHWM (the most since `reset_peak`) of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise ValueError(name)


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def half_of(frame_bytes: int, sent_bytes: int) -> bytes:
    """The beginning of a frame of zeros."""
    return struct.pack(">i", frame_bytes) + bytes(sent_bytes)
