"""One row of the route table: a method and a path, and a function whose signature is the rest. Pure."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from http import HTTPStatus
from operator import or_
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import msgspec

from zhumq.web.problems import invalid

PREFIX: Final = "/api/v1"
_QUERY: Final = "query"
_BODY: Final = "body"
# The first parameter of a handler: the brokers as its caller sees them, or the visit of one who may not be known yet.
_BROKERS: Final = "brokers"
_VISIT: Final = "visit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A request that the API serves. The handler blocks, so it runs in a thread."""

    method: str
    path: str  # below PREFIX
    tag: str
    status: HTTPStatus
    handler: Callable[..., Any]
    is_open: bool  # to callers who are not authenticated
    names: Mapping[str, Any]  # the types of the names in the path
    query: Any  # None, as is the next: the request has none
    body: Any
    answer: Any  # NoneType: no content

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[0]

    @property
    def description(self) -> str:
        """The docstring after its first line."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[2].strip()


def endpoint(
    method: str, path: str, handler: Callable[..., Any], status: HTTPStatus = HTTPStatus.OK
) -> Endpoint:
    """The row of a handler: `def describe(brokers: Brokers, topic: TopicName) -> Topic`.

    Parameters `query` and `body` are read from the request, all others from the path.
    """
    hints = get_type_hints(handler, include_extras=True)
    answer = hints.pop("return")
    first = next(iter(inspect.signature(handler).parameters))
    assert first in (_BROKERS, _VISIT), f"{handler.__name__} begins with brokers or visit"
    del hints[first]
    query, body = hints.pop(_QUERY, None), hints.pop(_BODY, None)
    in_path = {part[1:-1] for part in path.split("/") if part.startswith("{")}
    assert hints.keys() == in_path, f"{handler.__name__} takes {set(hints)}, {path} has {in_path}"
    if answer is NoneType:
        status = HTTPStatus.NO_CONTENT
    return Endpoint(
        method=method,
        path=path,
        tag=path.split("/")[1],
        status=status,
        handler=handler,
        is_open=first == _VISIT,
        names=hints,
        query=query,
        body=body,
        answer=answer,
    )


def read_arguments(
    row: Endpoint,
    in_path: Mapping[str, str],
    pairs: Sequence[tuple[str, str]],
    body: bytes,
) -> dict[str, Any]:
    """The arguments of the handler, checked against their types. Raises RequestRefused."""
    arguments = {
        name: _convert(_unquoted(in_path[name]), type_, f"the {name} of the path")
        for name, type_ in row.names.items()
    }
    if row.query is not None:
        arguments[_QUERY] = read_query(row.query, pairs)
    elif pairs:
        raise invalid(f"this request has no parameter {pairs[0][0]!r}")
    if row.body is not None:
        arguments[_BODY] = _read_body(row.body, body)
    elif body:
        raise invalid("this request has no body")
    return arguments


def read_query(type_: Any, pairs: Sequence[tuple[str, str]]) -> Any:
    """The parameters of a query as a Struct, all of whose fields have defaults. One that is repeated is a list."""
    fields = {each.encode_name: each for each in msgspec.structs.fields(type_)}
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name not in fields:
            raise invalid(f"there is no parameter {name!r}")
        if get_origin(fields[name].type) is list:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise invalid(f"the parameter {name!r} is there twice")
        else:
            values[name] = value
    return type_(
        **{
            fields[name].name: _convert(value, _given(fields[name].type), f"the parameter {name!r}")
            for name, value in values.items()
        }
    )


def _given(type_: Any) -> Any:
    """The type of a parameter that is there: the text `null` is not None."""
    if get_origin(type_) not in (Union, UnionType):
        return type_
    return reduce(or_, (each for each in get_args(type_) if each is not NoneType))


def _read_body(type_: Any, body: bytes) -> Any:
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"the body is invalid: {error}") from None


def _convert(value: Any, type_: Any, what: str) -> Any:
    try:
        return msgspec.convert(value, type_, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(f"{what} is invalid: {error}") from None


def _unquoted(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise invalid("the path is not UTF-8") from None
