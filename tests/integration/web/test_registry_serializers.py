"""Confluent's own client and serializers, unchanged, with the schema registry of a live broker."""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import httpx
import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from confluent_support import record
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from zhumq.admin.protoc import compile_protobuf
from zhumq.testing.broker import RunningBroker

SECONDS_MAX = 30.0


@pytest.fixture
def client(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"{url}/registry"}) as made:
        yield made


@pytest.fixture
def round_trip(running: RunningBroker, topic: str) -> Callable[[bytes], bytes]:
    """Send a value through the broker."""

    def send(value: bytes) -> bytes:
        producer = confluent_kafka.Producer({"bootstrap.servers": running.bootstrap})
        producer.produce(topic, value)
        assert producer.flush(SECONDS_MAX) == 0
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": running.bootstrap,
                "group.id": topic,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        try:
            message: Any = consumer.poll(SECONDS_MAX)
            assert message is not None
            assert message.error() is None
            found: bytes = message.value()
            return found
        finally:
            consumer.close()

    return send


def test_avro_travels_from_a_serializer_to_a_deserializer(
    client: SchemaRegistryClient, topic: str, round_trip: Callable[[bytes], bytes]
) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    old = record("Order", id="string")
    data = AvroSerializer(client, old)({"id": "o-1"}, context)
    assert data is not None
    assert data[0] == 0
    received = round_trip(data)
    assert AvroDeserializer(client)(received, context) == {"id": "o-1"}
    new = record("Order", id="string", total=("int", 5))
    AvroSerializer(client, new)({"id": "o-2", "total": 7}, context)
    assert AvroDeserializer(client, new)(received, context) == {"id": "o-1", "total": 5}
    assert client.get_versions(f"{topic}-value") == [1, 2]
    with pytest.raises(SchemaRegistryError) as refused:
        AvroSerializer(client, record("Order", number="int"))({"number": 1}, context)
    assert refused.value.http_status_code == 409


def test_avro_types_are_shared_by_references(client: SchemaRegistryClient, topic: str) -> None:
    customer = json.loads(record("Customer", name="string"))
    client.register_schema(f"{topic}-customer", Schema(json.dumps(customer), "AVRO"))
    reference = SchemaReference("Customer", f"{topic}-customer", 1)
    order = Schema(record("Order", by="Customer"), "AVRO", [reference])
    context = SerializationContext(topic, MessageField.VALUE)
    value = {"by": {"name": "Ada"}}
    data = AvroSerializer(client, order)(value, context)
    assert AvroDeserializer(client)(data, context) == value
    id_ = client.get_latest_version(f"{topic}-value").schema_id
    assert client.get_referenced_by(f"{topic}-customer", 1) == [id_]


def test_every_method_of_confluents_client_works(client: SchemaRegistryClient, topic: str) -> None:
    one, two = Schema(record("R", a="int"), "AVRO"), Schema(record("R", a="int", b=("int", 0)), "AVRO")  # fmt: skip
    first = client.register_schema(topic, one)
    second = client.register_schema_full_response(topic, two)
    assert second.version == 2
    assert second.guid is not None
    client.clear_caches()
    assert client.get_schema_by_guid(second.guid).schema_str == two.schema_str.replace(" ", "")
    assert client.get_schema(first).schema_str == one.schema_str.replace(" ", "")
    assert set(client.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    assert client.get_subjects_by_schema_id(first) == [topic]
    assert [each.version for each in client.get_schema_versions(first)] == [1]
    assert client.lookup_schema(topic, two).version == 2
    assert topic in client.get_subjects()
    assert client.get_latest_version(topic).schema_id == second.schema_id
    assert client.get_version(topic, 1).schema_id == first
    assert client.get_versions(topic) == [1, 2]
    assert client.set_compatibility(topic, "FULL_TRANSITIVE") == {"compatibility": "FULL_TRANSITIVE"}  # fmt: skip
    assert client.get_compatibility(topic) == "FULL_TRANSITIVE"
    assert client.test_compatibility(topic, one)
    broken = Schema(record("R", a="string"), "AVRO")
    assert not client.test_compatibility(topic, broken)
    assert not client.test_compatibility_all_versions(topic, broken)
    assert client.set_config(topic, ServerConfig(compatibility=ConfigCompatibilityLevel.FORWARD)) == {"compatibility": "FORWARD"}  # fmt: skip
    assert client.get_config(topic).compatibility_level == "FORWARD"
    client.delete_config(topic)
    assert client.get_compatibility() == "BACKWARD"
    assert client.update_mode(topic, "READONLY") == "READONLY"
    assert client.get_mode(topic) == "READONLY"
    client.delete_mode(topic)
    assert client.get_global_mode() == "READWRITE"
    assert client.get_contexts() == ["."]
    assert client.delete_version(topic, 1) == 1
    assert client.delete_subject(topic) == [2]
    assert client.delete_subject(topic, permanent=True) == [1, 2]
    client.clear_caches()  # It has kept the latest version.
    with pytest.raises(SchemaRegistryError) as missing:
        client.get_latest_version(topic)
    assert missing.value.error_code == 40401


def test_the_registry_answers_at_its_root(registry: httpx.Client) -> None:
    assert registry.get("").json() == registry.get("/").json() == {}


PERSON = {
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}, "address": {"$ref": "address.json"}},
    "required": ["name"],
    "additionalProperties": False,
}
ADDRESS = {"title": "Address", "type": "object", "properties": {"city": {"type": "string"}}}


def test_json_travels_with_a_reference(
    client: SchemaRegistryClient, topic: str, round_trip: Callable[[bytes], bytes]
) -> None:
    client.register_schema(f"{topic}-address", Schema(json.dumps(ADDRESS), "JSON"))
    reference = SchemaReference("address.json", f"{topic}-address", 1)
    schema = Schema(json.dumps(PERSON), "JSON", [reference])
    context = SerializationContext(topic, MessageField.VALUE)
    value = {"name": "Ada", "address": {"city": "London"}}
    data = JSONSerializer(schema, client)(value, context)
    assert data is not None
    read = JSONDeserializer(schema, schema_registry_client=client)
    assert read(round_trip(data), context) == value
    assert client.get_latest_version(f"{topic}-value").schema.schema_type == "JSON"
    narrower = {**PERSON, "required": ["name", "address"]}
    broken = Schema(json.dumps(narrower), "JSON", [reference])
    assert not client.test_compatibility(f"{topic}-value", broken)
    with pytest.raises(SerializationError):
        JSONSerializer(schema, client)({"name": 5}, context)


def test_protobuf_travels_with_references(
    client: SchemaRegistryClient, topic: str, round_trip: Callable[[bytes], bytes]
) -> None:
    money, order = protobuf_classes(topic)
    context = SerializationContext(topic, MessageField.VALUE)
    value = order(id="o-1", total=money(cents=250))
    value.at.FromSeconds(1_700_000_000)
    data = ProtobufSerializer(order, client)(value, context)
    assert data is not None
    read = ProtobufDeserializer(order, {}, client)
    assert read(round_trip(data), context) == value
    latest = client.get_latest_version(f"{topic}-value")
    assert latest.schema.schema_type == "PROTOBUF"
    assert "message Order {" in latest.schema.schema_str
    (reference,) = [
        each for each in latest.schema.references if each.name == f"{topic}/money.proto"
    ]
    assert client.get_referenced_by(reference.subject, reference.version) == [latest.schema_id]
    serialized = client.get_version(f"{topic}-value", 1, fmt="serialized").schema.schema_str
    file = FileDescriptorProto.FromString(base64.b64decode(serialized))
    assert [each.name for each in file.message_type] == ["Order"]


def protobuf_classes(topic: str) -> tuple[Any, Any]:
    """The classes of two .proto files, one of which imports the other."""
    package = topic.replace("-", "_")
    files = {
        f"{topic}/money.proto": f'syntax = "proto3"; package {package}; message Money {{ int64 cents = 1; }}',
        f"{topic}/order.proto": f'syntax = "proto3"; package {package}; import "{topic}/money.proto";'
        ' import "google/protobuf/timestamp.proto";'
        " message Order { string id = 1; Money total = 2; google.protobuf.Timestamp at = 3; }",
    }
    pool = descriptor_pool.DescriptorPool()
    for each in compile_protobuf(files, f"{topic}/order.proto"):
        pool.AddSerializedFile(each)
    found = [pool.FindMessageTypeByName(f"{package}.{name}") for name in ("Money", "Order")]
    money, order = (message_factory.GetMessageClass(each) for each in found)
    return money, order
