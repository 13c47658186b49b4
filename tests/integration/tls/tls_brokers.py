"""Brokers with TLS listeners in processes of their own, and what clients need to reach them."""

import ssl
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer
from tests.certificates import Authority, Certificate, make_authority

from zhumq.host.ports import HOST, free_ports

READ_SECONDS_MAX = 60.0


class Secured:
    """A CA with certificates for brokers and for alice, and settings that use them."""

    def __init__(self, folder: Path) -> None:
        self.authority: Authority = make_authority(folder / "ca")
        self.broker: Certificate = self.authority.issue("broker")
        self.alice: Certificate = self.authority.issue("alice")

    @property
    def stores(self) -> dict[str, str]:
        return {
            "ssl.keystore.location": str(self.broker.combined_file),
            "ssl.truststore.location": str(self.authority.certificate_file),
        }

    def librdkafka(self, bootstrap: str, shown: Certificate | None = None) -> dict[str, str]:
        settings = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.certificate_file),
            "log_level": "0",
        }
        if shown is not None:
            settings["ssl.certificate.location"] = str(shown.certificate_file)
            settings["ssl.key.location"] = str(shown.key_file)
        return settings

    def kafka_python(self, bootstrap: str, shown: Certificate | None = None) -> dict[str, str]:
        settings = {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SSL",
            "ssl_cafile": str(self.authority.certificate_file),
        }
        if shown is not None:
            settings["ssl_certfile"] = str(shown.certificate_file)
            settings["ssl_keyfile"] = str(shown.key_file)
        return settings

    def context(self, shown: Certificate | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.certificate_file))
        if shown is not None:
            context.load_cert_chain(shown.certificate_file, shown.key_file)
        return context


def listeners(*names: str) -> tuple[str, dict[str, str]]:
    """The setting `listeners` for these names on free ports, and their addresses."""
    addresses = {
        name: f"{HOST}:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)
    }
    return ",".join(f"{name}://{address}" for name, address in addresses.items()), addresses


def produce(settings: Mapping[str, str], topic: str, values: list[bytes]) -> None:
    errors: list[object] = []
    producer = Producer({**settings, "message.max.bytes": "4000000", "linger.ms": "20"})

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            errors.append(error)

    for value in values:
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(READ_SECONDS_MAX) == 0
    assert not errors, errors[0]


def consume(settings: Mapping[str, str], topic: str, count: int, group: str) -> list[bytes]:
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes] = []
    try:
        while len(values) < count:
            # No more than there are: it waits for as many as it is asked for.
            messages = consumer.consume(min(1_000, count - len(values)), READ_SECONDS_MAX)
            assert messages, f"{len(values)} of {count} messages"
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                values.append(message.value() or b"")
    finally:
        consumer.close()
    return values
