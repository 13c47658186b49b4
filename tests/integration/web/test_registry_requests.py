"""The schema registry over HTTP: paths, codes and parameters of Confluent's, and hostile input."""

import json
from typing import Any

import httpx
import pytest
from confluent_support import MEDIA_TYPE, error, record, register

ONE, TWO = record("R", a="int"), record("R", a="int", b=("int", 0))


def test_a_version_has_the_fields_that_clients_expect(registry: httpx.Client, topic: str) -> None:
    id_ = register(registry, topic, ONE)
    found = registry.get(f"/subjects/{topic}/versions/latest")
    assert found.headers["content-type"] == MEDIA_TYPE
    assert found.json().keys() == {"subject", "version", "id", "guid", "schema"}
    assert registry.get(f"/subjects/{topic}/versions/1").json() == found.json()
    assert registry.get(f"/subjects/{topic}/versions/-1").json() == found.json()
    assert registry.get(f"/subjects/{topic}/versions/1/schema").json() == json.loads(ONE)
    assert registry.get(f"/schemas/ids/{id_}/schema").json() == json.loads(ONE)
    # Other tests of this registry may have the same schema in subjects of theirs.
    versions = registry.get(f"/schemas/ids/{id_}/versions").json()
    assert [each for each in versions if each["subject"] == topic] == [
        {"subject": topic, "version": 1}
    ]
    assert registry.get(f"/schemas/ids/{id_}?fetchMaxId=true").json()["maxId"] >= id_
    listed = registry.get("/schemas", params={"subjectPrefix": topic, "latestOnly": "true"}).json()
    assert [each["id"] for each in listed] == [id_]


def test_errors_have_the_codes_that_clients_know(registry: httpx.Client, topic: str) -> None:
    subject = f"/subjects/{topic}"
    error(registry.get(f"{subject}/versions"), 40401)
    error(registry.get(f"{subject}/versions/1"), 40401)
    error(registry.delete(subject), 40401)
    error(registry.post(subject, json={"schema": ONE}), 40401)
    register(registry, topic, ONE)
    error(registry.get(f"{subject}/versions/2"), 40402)
    error(registry.get("/schemas/ids/999999"), 40403)
    error(registry.post(subject, json={"schema": TWO}), 40403)
    error(registry.delete(f"{subject}?permanent=true"), 40405)
    error(registry.delete(f"{subject}/versions/1?permanent=true"), 40407)
    error(registry.get(f"/config/{topic}"), 40408)
    error(registry.get(f"/mode/{topic}"), 40409)
    body = {"schema": record("R", z="string")}
    assert "at /z" in error(registry.post(f"{subject}/versions", json=body), 40901)
    error(registry.post(f"{subject}/versions", json={"schema": "{"}), 42201)
    error(registry.post(f"{subject}/versions", json={"schema": ONE, "schemaType": "XML"}), 42201)
    error(registry.post(f"{subject}/versions", json={}), 42201)
    for version in ("0", "x", "-2", "99999999999999999999", "1.5"):
        error(registry.get(f"{subject}/versions/{version}"), 42202)
    error(registry.put(f"/config/{topic}", json={"compatibility": "SOME"}), 42203)
    error(registry.put(f"/mode/{topic}", json={"mode": "SOME"}), 42204)
    error(registry.put(f"/mode/{topic}", json={"mode": "IMPORT"}), 42205)
    error(registry.put(f"/config/{topic}", json={"alias": "other"}), 422)
    assert registry.delete(f"{subject}/versions/latest").json() == 1
    error(registry.delete(f"{subject}/versions/1"), 40406)
    error(registry.delete(subject), 40404)
    assert registry.get(f"{subject}/versions?deleted=true").json() == [1]
    assert registry.get(f"{subject}/versions/1?deleted=true").json()["deleted"] is True
    assert registry.delete(f"{subject}?permanent=true").json() == [1]


def test_a_check_says_why_a_schema_is_not_compatible(registry: httpx.Client, topic: str) -> None:
    path = f"/compatibility/subjects/{topic}/versions"
    assert registry.post(f"{path}/latest", json={"schema": ONE}).json() == {"is_compatible": True}
    error(registry.post(f"{path}/3", json={"schema": ONE}), 40402)
    register(registry, topic, ONE)
    body = {"schema": record("R", z="string")}
    found = registry.post(f"{path}/latest?verbose=true", json=body).json()
    assert found["is_compatible"] is False
    assert "at /z" in found["messages"][0]
    assert registry.post(path, json=body).json() == {"is_compatible": False}
    error(registry.post(path, json={"schema": "{"}), 42201)
    verbose = registry.post(f"{path}?verbose=true", json={"schema": "{"}).json()
    assert verbose["is_compatible"] is False


def test_subjects_have_any_name(registry: httpx.Client) -> None:
    for name in ("a/b%2Fc", "space and ü", "…", "a?b=c&d", "..", "<script>", "x" * 1000):
        path = httpx.QueryParams({"q": name})["q"]
        quoted = "".join(f"%{byte:02X}" for byte in path.encode())
        register(registry, quoted, ONE)
        assert registry.get(f"/subjects/{quoted}/versions/1").json()["subject"] == name
        assert name in registry.get("/subjects").json()
    error(registry.post(f"/subjects/{'x' * 1001}/versions", json={"schema": ONE}), 42208)
    error(registry.post("/subjects/%FF/versions", json={"schema": ONE}), 422)


def test_lists_come_in_pages_and_unknown_parameters_are_ignored(
    registry: httpx.Client, topic: str
) -> None:
    for number in range(5):
        register(registry, f"{topic}-{number}", ONE)
    query = {"subjectPrefix": topic, "offset": 1, "limit": 3, "whatever": "x"}
    assert registry.get("/subjects", params=query).json() == [f"{topic}-{each}" for each in (1, 2, 3)]  # fmt: skip
    assert len(registry.get("/subjects", params={"limit": "x", "offset": "-5"}).json()) >= 5


def test_fields_of_newer_clients_are_ignored_and_metadata_is_kept(
    registry: httpx.Client, topic: str
) -> None:
    metadata = {"properties": {"owner": "Ada"}}
    body = {"schema": ONE, "metadata": metadata, "ruleSet": None, "propagateSchemaTags": False, "x": [1]}  # fmt: skip
    assert registry.post(f"/subjects/{topic}/versions", json=body).status_code == 200
    assert registry.get(f"/subjects/{topic}/versions/1").json()["metadata"] == metadata


def test_normalization_makes_one_schema_of_two_texts(registry: httpx.Client, topic: str) -> None:
    one = {"type": "string", "b": 1, "a": 2}
    other = {"type": "string", "a": 2, "b": 1}
    registry.put(f"/config/{topic}", json={"compatibility": "NONE"})
    assert register(registry, topic, json.dumps(one)) != register(registry, topic, json.dumps(other))  # fmt: skip
    registry.put(f"/config/{topic}-n", json={"normalize": True})
    assert register(registry, f"{topic}-n", json.dumps(one)) == register(registry, f"{topic}-n", json.dumps(other))  # fmt: skip


HOSTILE: list[Any] = [
    "[" * 100_000,
    '{"type":"array","items":' * 5_000 + '"int"' + "}" * 5_000,
    "x" * 1_000_001,
    record("R", **{f"f{each}": "int" for each in range(2000)})[:-5],
    '"' + "\\u0000" * 1000 + '"',
    '{"type":"record","name":"R","fields":[{"name":"a","type":"R","default":{"a":1}}]}',
    '{"type":"fixed","name":"F","size":1e400}',
    "1" * 5000,
]


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
@pytest.mark.parametrize("schema", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_schemas_are_refused_in_one_line(
    registry: httpx.Client, topic: str, schema: str, kind: str
) -> None:
    body = {"schema": schema, "schemaType": kind}
    answer = registry.post(f"/subjects/{topic}/versions", json=body)
    assert answer.status_code in (200, 422), answer.text
    if kind == "AVRO":
        assert answer.status_code == 422
        assert "\n" not in answer.json()["message"]
    assert registry.get("/schemas/types").status_code == 200


def test_a_schema_of_almost_a_megabyte_is_kept(registry: httpx.Client, topic: str) -> None:
    fields = {f"field_with_a_rather_long_name_{each}": ("string", "") for each in range(10_000)}
    text = record("R", **fields)
    assert 800_000 < len(text) < 1_000_000
    id_ = register(registry, topic, text)
    assert json.loads(registry.get(f"/schemas/ids/{id_}").json()["schema"]) == json.loads(text)


def test_bodies_that_are_no_json_are_refused(registry: httpx.Client, topic: str) -> None:
    path = f"/subjects/{topic}/versions"
    answer = registry.post(path, content=b"schema=x", headers={"Content-Type": "text/plain"})
    assert error(answer, 415)
    for content in (
        b"{",
        b"[]",
        b'{"schema": 5}',
        b"\xff",
        b'{"references": [{}]}',
        b"[" * 100_000,
    ):
        answer = registry.post(path, content=content, headers={"Content-Type": MEDIA_TYPE})
        error(answer, 422)
    headers = {"Content-Type": MEDIA_TYPE, "Origin": "http://elsewhere.example"}
    assert registry.post(path, content=b"{}", headers=headers).status_code == 403
