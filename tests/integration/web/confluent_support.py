"""Requests to the schema registry that several tests make."""

import json
from typing import Any

import httpx

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


def record(name: str, /, **fields: Any) -> str:
    """The text of an Avro record: each field is a type, or a type and a default."""
    made: list[dict[str, Any]] = []
    for field, type_ in fields.items():
        pair = type_ if isinstance(type_, tuple) else (type_,)
        made.append(dict(zip(("name", "type", "default"), (field, *pair), strict=False)))
    return json.dumps({"type": "record", "name": name, "fields": made})


def register(registry: httpx.Client, subject: str, schema: str, **fields: Any) -> int:
    answer = registry.post(f"/subjects/{subject}/versions", json={"schema": schema, **fields})
    assert answer.status_code == 200, answer.text
    found: int = answer.json()["id"]
    return found


def error(answer: httpx.Response, code: int) -> str:
    """The message of a request that was answered with this error code."""
    found = answer.json()
    assert found["error_code"] == code, answer.text
    if code != 50001:
        assert answer.status_code == int(str(code)[:3])
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert "\n" not in found["message"]
    message: str = found["message"]
    return message
