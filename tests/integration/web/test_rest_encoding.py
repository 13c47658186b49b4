"""Messages sent through the REST API with a schema: what Confluent's deserializers read, and what does not fit is refused."""

import base64
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from confluent_support import record, register
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from rest_support import create, problem

from zhumq.admin.protoc import compile_protobuf

PROTO = 'syntax = "proto3"; package shop; message Order { int64 cents = 1; } message Refund { string id = 1; Order of = 2; }'
PERSON = '{"$schema": "http://json-schema.org/draft-07/schema#", "title": "P", "type": "object", "properties": {"age": {"type": "integer"}}}'


def post(api: httpx.Client, topic: str, *messages: dict[str, Any]) -> httpx.Response:
    return api.post(f"/topics/{topic}/messages", json={"messages": list(messages)})


def sent_values(api: httpx.Client, topic: str, part: str = "value") -> list[bytes]:
    found = api.get(f"/topics/{topic}/messages", params={"format": "base64"}).json()["items"]
    return [base64.b64decode(each[part]["base64"]) for each in found]


def test_deserializers_read_what_was_sent_as_json_with_a_schema(
    api: httpx.Client, registry: httpx.Client, url: str, topic: str
) -> None:
    create(api, topic, partitions=1, settings={"schema.validation": "both"})
    schema = record("Order", id="string", cents="long", note=(["null", "string"], None))
    register(registry, f"{topic}-key", '"string"')
    register(registry, f"{topic}-value", schema)
    big = '{"id": "o-1", "cents": 1152921504606846976, "note": "é"}'
    subject = {"subject": f"{topic}-value"}
    answer = post(
        api,
        topic,
        {
            "key": {"text": '"k"', "schema": {"subject": f"{topic}-key", "version": 1}},
            "value": {"text": big, "schema": subject},
        },
    )
    # The brokers refuse what has no registered schema: this has one.
    assert answer.status_code == 201, answer.text
    (data,), (key,) = sent_values(api, topic), sent_values(api, topic, "key")
    with SchemaRegistryClient({"url": f"{url}/registry"}) as client:
        value_of = SerializationContext(topic, MessageField.VALUE)
        read = AvroDeserializer(client)
        assert read(data, value_of) == {"id": "o-1", "cents": 2**60, "note": "é"}
        assert read(key, SerializationContext(topic, MessageField.KEY)) == "k"


def test_protobuf_and_json_are_written_as_their_serializers_do(
    api: httpx.Client, registry: httpx.Client, url: str, topic: str
) -> None:
    create(api, topic, partitions=1)
    register(registry, f"{topic}-proto", PROTO, schemaType="PROTOBUF")
    register(registry, f"{topic}-json", PERSON, schemaType="JSON")
    refund = {"subject": f"{topic}-proto", "message": "shop.Refund"}
    answer = post(
        api,
        topic,
        {"value": {"json": {"id": "r", "of": {"cents": "7"}}, "schema": refund}},
        {"value": {"text": '{"age": 42 }', "schema": {"subject": f"{topic}-json"}}},
    )
    assert answer.status_code == 201, answer.text
    first, second = sent_values(api, topic)
    pool = DescriptorPool()
    for each in compile_protobuf({"main.proto": PROTO}, "main.proto"):
        pool.AddSerializedFile(each)
    type_ = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Refund"))
    context = SerializationContext(topic, MessageField.VALUE)
    read = ProtobufDeserializer(type_, {"use.deprecated.format": False})(first, context)
    assert (read.id, read.of.cents) == ("r", 7)
    assert JSONDeserializer(PERSON)(second, context) == {"age": 42}
    assert second.endswith(b'{"age": 42 }')  # as it was written
    shown = api.get(f"/topics/{topic}/messages", params={"decode": "true"}).json()["items"]
    assert shown[0]["value"]["decoded"]["message"] == "shop.Refund"
    assert "message" not in shown[1]["value"]["decoded"]


@pytest.mark.parametrize(
    ("value", "status", "detail"),
    [
        (
            {"text": '{"id": 1}'},
            422,
            "of messages[0] the value: it does not fit the latest version of",
        ),
        ({"text": "{"}, 422, "it is no JSON"),
        ({"text": "NaN"}, 422, "it is no JSON"),
        ({"text": "[" * 100_000}, 422, "nested too deeply"),
        ({"json": {"id": "x"}, "schema": {"version": 2}}, 404, "there is no version 2"),
        ({"json": {}, "schema": {"subject": "none"}}, 404, "there is no subject 'none'"),
        ({"base64": "AAAA"}, 400, "which takes a key or a value of text or json"),
        ({"text": "{}", "json": {}}, 400, "exactly one of"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_sent(
    api: httpx.Client, registry: httpx.Client, topic: str, value: Any, status: int, detail: str
) -> None:
    create(api, topic, partitions=1)
    register(registry, f"{topic}-value", record("Order", id="string"))
    schema = {"subject": f"{topic}-value"} | value.get("schema", {})
    good = {"value": {"json": {"id": "x"}, "schema": {"subject": f"{topic}-value"}}}
    answer = post(api, topic, {"value": value | {"schema": schema}}, good)
    assert detail in str(problem(answer, status)["detail"])
    assert api.get(f"/topics/{topic}/messages").json()["items"] == []


def test_a_header_takes_no_schema(api: httpx.Client, topic: str) -> None:
    create(api, topic, partitions=1)
    header = {"name": "h", "value": {"text": "{}", "schema": {"subject": "s"}}}
    answer = post(api, topic, {"value": "v", "headers": [header]})
    assert "the header 'h' has a schema" in str(problem(answer, 400)["detail"])
