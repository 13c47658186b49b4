"""The OpenAPI 3.1 document of the REST API, made of the route table and the types of its handlers. Pure."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from zhumq.web.endpoint import PREFIX, Endpoint
from zhumq.web.events import EVENTS_PATH, Event
from zhumq.web.guard import SAFE_METHODS
from zhumq.web.problems import MEDIA_TYPE, Problem
from zhumq.web.visit import COOKIE, CSRF_HEADER

VERSION: Final = "1.0"  # of the API
_REFERENCE: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_DESCRIPTION: Final = (
    "Administration, reading and sending over HTTP. A request asks the brokers with the credentials of its caller: what"
    " they may do, they may do here. Lists come in pages: give `next` of one as `after` of the following. Answers to"
    " GET have an ETag."
)


def document(routes: Sequence[Endpoint]) -> dict[str, Any]:
    """The whole document, as values of JSON."""
    types = _types(routes)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    by_type = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for row in routes:
        paths.setdefault(PREFIX + row.path, {})[row.method.lower()] = _operation(row, by_type)
    paths[PREFIX + EVENTS_PATH] = {"get": _events(by_type)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "zhumq REST API", "version": VERSION, "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": COOKIE,
                    "description": f"Requests that change something need the header {CSRF_HEADER}, too.",
                },
            },
        },
        # The last: a broker whose listener is without SASL.
        "security": [{"basic": []}, {"bearer": []}, {"cookie": []}, {}],
    }


def _types(routes: Sequence[Endpoint]) -> list[Any]:
    found: list[Any] = [Problem, Event]
    for row in routes:
        found += row.names.values()
        found += [row.answer] if row.answer is not type(None) else []
        found += [row.body] if row.body is not None else []
        if row.query is not None:
            found += [each.type for each in msgspec.structs.fields(row.query)]
    return list({repr(each): each for each in found}.values())


def _operation(row: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{row.method.lower()}{_identifier(row.path)}",
        "summary": row.summary,
        "tags": [row.tag],
    }
    if row.description:
        operation["description"] = row.description
    parameters = [
        _parameter(name, "path", schemas[repr(type_)], is_required=True)
        for name, type_ in row.names.items()
    ]
    if row.query is not None:
        parameters += [
            _parameter(
                each.encode_name, "query", _with_default(schemas[repr(each.type)], each.default)
            )
            for each in msgspec.structs.fields(row.query)
        ]
    if parameters:
        operation["parameters"] = parameters
    if row.body is not None:
        content = {_JSON: {"schema": schemas[repr(row.body)]}}
        operation["requestBody"] = {"required": True, "content": content}
    operation["responses"] = _responses(row, schemas)
    if row.is_open:
        operation["security"] = [{}]
    return operation


def _responses(row: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": row.status.phrase}
    if row.status is not HTTPStatus.NO_CONTENT:
        good["content"] = {_JSON: {"schema": schemas[repr(row.answer)]}}
    responses = {str(row.status.value): good}
    if row.method in SAFE_METHODS:
        responses["304"] = {"description": "The ETag of If-None-Match is that of the answer"}
    problem = {MEDIA_TYPE: {"schema": schemas[repr(Problem)]}}
    responses["default"] = {"description": "Why the request failed", "content": problem}
    return responses


def _events(schemas: dict[str, Any]) -> dict[str, Any]:
    problem = {MEDIA_TYPE: {"schema": schemas[repr(Problem)]}}
    return {
        "operationId": "getEvents",
        "summary": "Server-sent events: what changes of topics, groups and brokers.",
        "description": "The `data` of each event is JSON of the schema Event.",
        "tags": ["events"],
        "responses": {
            "200": {
                "description": "OK",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
            "default": {"description": "Why the request failed", "content": problem},
        },
    }


def _parameter(name: str, place: str, schema: Any, *, is_required: bool = False) -> dict[str, Any]:
    parameter: dict[str, Any] = {"name": name, "in": place}
    if is_required:
        parameter["required"] = True
    if "description" in schema:
        parameter["description"] = schema["description"]
        schema = {key: value for key, value in schema.items() if key != "description"}
    return parameter | {"schema": schema}


def _with_default(schema: Any, default: Any) -> Any:
    if default is None or default is msgspec.NODEFAULT:
        # A parameter of a query cannot be null: it is left out.
        options = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
        return options[0] if len(options) == 1 else schema
    return {**schema, "default": default}


def _identifier(path: str) -> str:
    words = re.findall(r"[a-z]+", path)
    return "".join(word.capitalize() for word in words)
