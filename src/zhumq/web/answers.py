"""Answers: content with an ETag, and problem details."""

import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from zhumq.web.credentials import CHALLENGE
from zhumq.web.problems import MEDIA_TYPE, headers_of, problem_of

JSON: Final = "application/json"
_ETAG_BYTES: Final = 16


def json_response(content: bytes, *, if_none_match: str | None) -> Response:
    """The answer to a GET: 304 without content if the client has just this content."""
    return tagged_response(content, media_type=JSON, if_none_match=if_none_match)


def tagged_response(
    content: bytes,
    *,
    media_type: str,
    if_none_match: str | None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Any content with its ETag; or 304 without it."""
    tag = f'"{hashlib.blake2b(content, digest_size=_ETAG_BYTES).hexdigest()}"'
    tagged = {**(headers or {}), "ETag": tag}
    if if_none_match is not None and _has_tag(if_none_match, tag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=tagged)
    return Response(content, media_type=media_type, headers=tagged)


def problem_response(error: Exception) -> Response:
    """The answer to a request that failed."""
    problem = problem_of(error)
    headers = dict(headers_of(error, problem))
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers.setdefault("WWW-Authenticate", CHALLENGE)
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers=headers,
    )


def _has_tag(if_none_match: str, tag: str) -> bool:
    """RFC 9110: any of these tags, compared weakly; or *, which every content has."""
    tags = [each.strip().removeprefix("W/") for each in if_none_match.split(",")]
    return tag in tags or tags == ["*"]
