"""Requests against the signatures of their handlers, problems, and the OpenAPI document."""

from http import HTTPStatus
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from zhumq.admin.errors import AlreadyExists, InUse, NotFound, Refused, Unavailable
from zhumq.client.errors import (
    AuthenticationFailed,
    PushUnavailable,
    SecurityFailed,
    SecurityInvalid,
)
from zhumq.web.brokers import Brokers
from zhumq.web.endpoint import endpoint, read_arguments
from zhumq.web.events import NAMED_MAX, Snapshot, changes
from zhumq.web.openapi import document
from zhumq.web.problems import RequestRefused, problem_of
from zhumq.web.routes import ROUTES


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1)] = 10
    exact: bool = False
    tags: list[str] = []
    count: Annotated[int, Meta(ge=0)] | None = None
    text: str | None = None


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str


def change(brokers: Brokers, thing: str, query: Query, body: Body) -> Body:
    """Change a thing.

    At once.
    """
    del brokers, thing
    return Body(name=body.name if query.exact else f"{query.count} {query.text}")


ROW = endpoint("POST", "/things/{thing}", change, HTTPStatus.CREATED)


def test_arguments_are_read_from_path_query_and_body() -> None:
    pairs = [("limit", "3"), ("exact", "true"), ("tags", "a"), ("tags", "b"), ("text", "null")]
    found = read_arguments(ROW, {"thing": "a%2Fb%20c"}, pairs, b'{"name": "x"}')
    assert found == {
        "thing": "a/b c",
        "query": Query(limit=3, exact=True, tags=["a", "b"], text="null"),
        "body": Body(name="x"),
    }


@pytest.mark.parametrize(
    ("path", "pairs", "body"),
    [
        ("%ff", [], b'{"name": "x"}'),
        ("a", [("limit", "0")], b'{"name": "x"}'),
        ("a", [("limit", "x")], b'{"name": "x"}'),
        ("a", [("limit", "1"), ("limit", "2")], b'{"name": "x"}'),
        ("a", [("other", "1")], b'{"name": "x"}'),
        ("a", [("count", "null")], b'{"name": "x"}'),
        ("a", [("count", "-1")], b'{"name": "x"}'),
        ("a", [], b""),
        ("a", [], b"{}"),
        ("a", [], b'{"name": "x", "other": 1}'),
        ("a", [], b'{"name": "\xff"}'),
        ("a", [], b"[" * 1_000_000),
    ],
)  # fmt: skip
def test_other_requests_are_refused(path: str, pairs: list[tuple[str, str]], body: bytes) -> None:
    with pytest.raises(RequestRefused) as caught:
        read_arguments(ROW, {"thing": path}, pairs, body)
    assert caught.value.status is HTTPStatus.BAD_REQUEST


def test_a_request_that_has_neither_query_nor_body_is_refused_with_one() -> None:
    row = next(each for each in ROUTES if each.path == "/cluster")
    assert read_arguments(row, {}, [], b"") == {}
    with pytest.raises(RequestRefused, match="no parameter 'a'"):
        read_arguments(row, {}, [("a", "1")], b"")
    with pytest.raises(RequestRefused, match="no body"):
        read_arguments(row, {}, [], b"{}")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("x"), 404),
        (AlreadyExists("x"), 409),
        (InUse("x"), 409),
        (Refused("x"), 422),
        (Refused("x", code="TOPIC_AUTHORIZATION_FAILED"), 403),
        (Refused("x", code="NOT_AUTHORIZED"), 403),
        (Unavailable("x"), 503),
        (AuthenticationFailed("x"), 401),
        (SecurityFailed("x"), 503),
        (PushUnavailable("x"), 409),
        (SecurityInvalid("x"), 409),
        (ZeroDivisionError("secret"), 500),
    ],
)  # fmt: skip
def test_each_error_has_its_status(error: Exception, status: int) -> None:
    problem = problem_of(error)
    assert problem.status == status
    assert problem.type.startswith("urn:zhumq:problem:")
    assert "secret" not in problem.detail


def test_a_problem_has_the_brokers_name_of_the_error_and_the_advice() -> None:
    problem = problem_of(Refused("it is", "do that", code="INVALID_CONFIG"))
    assert (problem.detail, problem.advice, problem.code) == ("it is", "do that", "INVALID_CONFIG")


def test_the_document_describes_every_route_with_a_name_of_its_own() -> None:
    described = document([ROW, *ROUTES])
    operations = [each for path in described["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names) == len(ROUTES) + 2
    assert all(each["summary"].endswith(".") for each in operations)
    operation = described["paths"]["/api/v1/things/{thing}"]["post"]
    assert (operation["summary"], operation["description"]) == ("Change a thing.", "At once.")
    assert [each["name"] for each in operation["parameters"]] == [
        "thing",
        "limit",
        "exact",
        "tags",
        "count",
        "text",
    ]
    assert operation["responses"]["201"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/Body"
    }


def test_every_reference_of_the_document_leads_to_a_schema() -> None:
    described = document(ROUTES)
    known = described["components"]["schemas"]
    found: list[str] = []

    def look(value: object) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                found.append(value["$ref"].rpartition("/")[2])
            for each in value.values():
                look(each)
        elif isinstance(value, list | tuple):
            for each in value:
                look(each)

    look(described)
    assert set(found) <= set(known)
    assert set(known) - {"Event"} <= set(found)


def test_changes_are_what_was_created_changed_and_deleted() -> None:
    before = Snapshot(topics={"a": 1, "b": 1}, groups={}, brokers={"0": "x"})
    after = Snapshot(topics={"b": 2, "c": 1}, groups={}, brokers={"0": "x"})
    found = [(each.kind, each.change, each.name) for each in changes(before, after)]
    assert found == [
        ("topic", "deleted", "a"),
        ("topic", "created", "c"),
        ("topic", "changed", "b"),
    ]
    assert changes(after, after) == []


def test_very_many_changes_are_one_event() -> None:
    before = Snapshot(topics={}, groups={}, brokers={})
    topics = {str(each): 1 for each in range(NAMED_MAX + 1)}
    (event,) = changes(before, Snapshot(topics=topics, groups={}, brokers={}))
    assert (event.kind, event.change, event.name) == ("topic", "changed", None)
