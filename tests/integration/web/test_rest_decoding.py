"""Messages that a serializer has written, decoded by the REST API; and the subjects of the registry as it lists them."""

import base64
import json
import struct
import zlib

import httpx
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from confluent_support import record, register
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from rest_support import create, problem, send

import zhumq
from zhumq.admin.protoc import compile_protobuf
from zhumq.schemas.schema import Level
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.web import rest_api
from zhumq.web.app import WebConfig

SECONDS_MAX = 60.0
MANY = struct.pack(">10B", *b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01")  # 2^63 - 1 in Avro


def framed(id_: int, data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(struct.pack(">BI", 0, id_) + data).decode()}


def test_a_message_of_a_serializer_is_decoded_with_its_subject(
    api: httpx.Client, url: str, topic: str
) -> None:
    create(api, topic, partitions=1)
    schema = record("Order", id="string", cents="long", note=(["null", "string"], None))
    with SchemaRegistryClient({"url": f"{url}/registry"}) as client:
        serializer = AvroSerializer(client, schema)
        context = SerializationContext(topic, MessageField.VALUE)
        data = serializer({"id": "o-1", "cents": 2**60, "note": "é"}, context)
    assert data is not None
    send(api, topic, {"base64": base64.b64encode(data).decode()}, "text", None)
    plain = api.get(f"/topics/{topic}/messages").json()["items"]
    assert "decoded" not in plain[0]["value"]
    first, second, third = api.get(
        f"/topics/{topic}/messages", params={"decode": "true", "format": "base64"}
    ).json()["items"]
    decoded = first["value"]["decoded"]
    assert (decoded["subject"], decoded["version"], decoded["type"]) == (
        f"{topic}-value",
        1,
        "AVRO",
    )
    # As text: a browser would round the number.
    assert decoded["text"] == '{"id":"o-1","cents":1152921504606846976,"note":"é"}'
    assert base64.b64decode(first["value"]["base64"]) == data
    assert "decoded" not in second["value"]
    assert third["value"] is None


def test_what_cannot_be_decoded_keeps_its_bytes_and_says_why(
    api: httpx.Client, registry: httpx.Client, topic: str
) -> None:
    create(api, topic, partitions=1)
    id_ = register(registry, f"{topic}-value", record("R", a="int"))
    nulls = json.dumps({"type": "array", "items": "null"})
    bomb = register(registry, f"{topic}-nulls", nulls)
    proto = 'syntax = "proto3"; message M { int32 a = 1; }'
    message = register(registry, f"{topic}-proto", proto, schemaType="PROTOBUF")
    object_ = register(registry, f"{topic}-json", '{"type": "object"}', schemaType="JSON")
    send(
        api,
        topic,
        framed(id_, b""),
        framed(bomb, MANY + b"\x00"),
        framed(message, b"\x00\x08\x01"),
        framed(object_, b'{"a": 1}'),
        framed(object_, b"{"),
        framed(2**31, b"\x02"),
        {"base64": "AAAA"},
    )
    found = api.get(
        f"/topics/{topic}/messages", params={"decode": "true", "format": "base64"}
    ).json()["items"]
    values = [each["value"] for each in found]
    assert all("base64" in each for each in values)
    reasons = [each.get("decoded", {}).get("reason") for each in values]
    assert "ends too early" in str(reasons[0]) or "ends within" in str(reasons[0])
    assert "too large" in str(reasons[1])
    assert values[2]["decoded"]["text"] == '{"a":1}'
    assert values[2]["decoded"]["type"] == "PROTOBUF"
    assert values[3]["decoded"]["text"] == '{"a": 1}'
    assert "no JSON" in str(reasons[4])
    # No schema has this id: the bytes are just bytes.
    assert "decoded" not in values[5]
    assert "decoded" not in values[6]


def test_a_message_of_protobuf_is_decoded_by_its_index_with_what_the_schema_imports(
    api: httpx.Client, registry: httpx.Client, topic: str
) -> None:
    create(api, topic, partitions=1)
    money = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
    register(registry, f"{topic}-money", money, schemaType="PROTOBUF")
    order = """syntax = "proto3"; package shop;
    import "shop/money.proto"; import "google/protobuf/timestamp.proto";
    message Other { int32 a = 1; }
    message Order { message Line { Money price = 1; } map<string, Line> lines = 1; google.protobuf.Timestamp at = 2; }"""
    reference = {"name": "shop/money.proto", "subject": f"{topic}-money", "version": 1}
    id_ = register(registry, f"{topic}-value", order, schemaType="PROTOBUF", references=[reference])
    line = b"\x0a\x04\x0a\x02\x08\x05"  # a Line within its length
    send(
        api,
        topic,
        framed(id_, b"\x02\x02\x0a\x09\x0a\x01a\x12" + line[1:2] + line[2:] + b"\x12\x02\x08\x01"),
        framed(id_, b"\x04\x02\x00" + line[2:]),
        framed(id_, b"\x00\x08\x07"),
        framed(id_, b"\x02\x0e"),
        framed(id_, b"\x02\x02\xff\xff"),
        framed(id_, b""),
        framed(id_, b"\x02\x02" + b"\x0a\x00" * 150_000),
    )
    found = api.get(f"/topics/{topic}/messages", params={"decode": "true", "format": "base64"})
    assert found.status_code == 200
    decoded = [each["value"]["decoded"] for each in found.json()["items"]]
    assert [json.loads(each["text"]) for each in decoded[:3]] == [
        {"lines": {"a": {"price": {"cents": "5"}}}, "at": "1970-01-01T00:00:01Z"},
        {"price": {"cents": "5"}},
        {"a": 7},
    ]
    assert [each["reason"] for each in decoded[3:6]] == [
        "the schema has no message at [7]",
        "it is no shop.Order",
        "it ends before the indexes of its message do",
    ]
    assert decoded[6]["text"] == '{"lines":{"":{}}}'


def test_messages_of_confluents_serializer_are_decoded(
    api: httpx.Client, url: str, topic: str
) -> None:
    create(api, topic, partitions=1)
    pool = DescriptorPool()
    text = 'syntax = "proto3"; package x; message First {} message Second { message Third { string name = 1; } }'
    for each in compile_protobuf({f"{topic}.proto": text}, f"{topic}.proto"):
        pool.AddSerializedFile(each)
    type_ = message_factory.GetMessageClass(pool.FindMessageTypeByName("x.Second.Third"))
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": f"{url}/registry"}) as client:
        serializer = ProtobufSerializer(type_, client, {"use.deprecated.format": False})
        data = serializer(type_(name="Ada"), context)
    assert data is not None
    send(api, topic, {"base64": base64.b64encode(data).decode()})
    (found,) = api.get(f"/topics/{topic}/messages", params={"decode": "true"}).json()["items"]
    assert found["value"]["decoded"]["text"] == '{"name":"Ada"}'


def test_schemas_that_do_not_compile_are_tried_once_for_a_page(
    api: httpx.Client, registry: httpx.Client, running: RunningBroker, topic: str
) -> None:
    """A user with the right to write to the log of the registry can put anything there."""
    create(api, topic, partitions=1)
    register(registry, f"{topic}-key", record("R", a="int"))  # which makes the log
    id_ = 900_000 + zlib.crc32(topic.encode()) % 90_000
    key = {"keytype": "SCHEMA", "subject": f"{topic}-value", "version": 1, "magic": 1}
    value = {
        "subject": f"{topic}-value", "version": 1, "id": id_, "schemaType": "PROTOBUF",
        "schema": "message", "deleted": False,
    }  # fmt: skip
    with zhumq.Producer(running.bootstrap) as producer:
        producer.send("_schemas", json.dumps(value), key=json.dumps(key))
    send(api, topic, *[framed(id_, b"\x00")] * 50)
    found = api.get(f"/topics/{topic}/messages", params={"decode": "true"}).json()["items"]
    reasons = {each["value"]["decoded"]["reason"] for each in found}
    assert len(found) == 50
    assert len(reasons) == 1
    assert "the Protobuf schema is invalid" in reasons.pop()


def test_a_page_is_decoded_up_to_a_bound(
    api: httpx.Client, registry: httpx.Client, topic: str
) -> None:
    create(api, topic, partitions=1)
    id_ = register(registry, f"{topic}-value", json.dumps({"type": "array", "items": "null"}))
    # 200,000 items of no bytes each: 800,000 characters of JSON.
    many = framed(id_, b"\x80\xb5\x18\x00")
    send(api, topic, *[many] * 8)
    found = api.get(f"/topics/{topic}/messages", params={"decode": "true"}).json()["items"]
    decoded = [each["value"]["decoded"] for each in found]
    assert [each.get("is_cut") for each in decoded[:4]] == [True] * 4
    assert len(decoded[0]["text"]) == 65_536
    assert "open the message alone" in decoded[-1]["reason"]


def test_subjects_are_listed_with_their_versions_and_rules(
    api: httpx.Client, registry: httpx.Client, topic: str
) -> None:
    used, user, gone = f"{topic}-used", f"{topic}-user", f"{topic}-gone"
    register(registry, used, record("Money", cents="long"))
    reference = {"name": "Money", "subject": used, "version": 1}
    register(registry, user, record("Order", price="Money"), references=[reference])
    register(registry, gone, record("Gone", a="int"))
    registry.delete(f"/subjects/{gone}").raise_for_status()
    registry.put(f"/config/{user}", json={"compatibility": "FULL"}).raise_for_status()
    found = api.get("/schemas", params={"search": topic.upper()}).json()
    assert [each["subject"] for each in found["items"]] == [used, user]
    assert found["items"][1]["compatibility"] == Level.FULL
    assert (found["next"], found["missing"]) == (None, [])
    everything = api.get("/schemas", params={"search": topic, "deleted": "true"}).json()["items"]
    assert [each["subject"] for each in everything if each["is_deleted"]] == [gone]
    first = api.get("/schemas", params={"search": topic, "limit": 1}).json()
    assert first["next"] == used
    details = api.get(f"/schemas/{used}").json()
    assert details["versions"][0]["referenced_by"] == [{"subject": user, "version": 1}]
    assert details["has_own_compatibility"] is False
    of_user = api.get(f"/schemas/{user}").json()
    assert of_user["versions"][0]["references"] == [reference]
    assert of_user["has_own_compatibility"] is True
    problem(api.get("/schemas/no-such-subject"), 404)


def test_a_user_without_rights_to_the_registry_is_refused_its_list() -> None:
    settings = {"authorizer.class.name": "zhumq", "super.users": "User:admin"}
    with (
        broker(settings=settings) as secured,
        rest_api(WebConfig(bootstrap=secured.bootstrap)) as url,
        httpx.Client(base_url=f"{url}/api/v1", timeout=SECONDS_MAX) as api,
    ):
        problem(api.get("/schemas"), 403)
