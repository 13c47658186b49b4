"""Why a request failed, as problem details (RFC 9457): the status and the text of every error. Pure."""

from http import HTTPStatus
from typing import Final

import msgspec

from zhumq.admin.errors import AdminError, AlreadyExists, InUse, NotFound, Refused, Unavailable
from zhumq.client.errors import (
    AuthenticationFailed,
    ClientError,
    PushUnavailable,
    SecurityInvalid,
)
from zhumq.filters.invalid import FilterInvalid
from zhumq.model.errors import ZhumqError
from zhumq.schemas.errors import InvalidSchema, NotEncoded, SubjectNotFound, VersionNotFound

MEDIA_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 2  # what a client is advised to wait
_TYPE: Final = "urn:zhumq:problem:"
_AUTHORIZATION: Final = "AUTHORIZATION_FAILED"  # how the brokers' names of these errors end
_NOT_AUTHORIZED: Final = "NOT_AUTHORIZED"  # the same of the push listener


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request failed."""

    type: str
    title: str
    status: int
    detail: str
    # The brokers' name of the error, such as TOPIC_AUTHORIZATION_FAILED; null if they were not asked.
    code: str | None = None
    advice: str | None = None


class RequestRefused(ZhumqError):
    """The API refuses a request before a broker is asked."""

    def __init__(
        self,
        status: HTTPStatus,
        title: str,
        detail: str,
        *,
        advice: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.advice = advice
        self.headers = headers or {}


def invalid(detail: str, advice: str | None = None) -> RequestRefused:
    """The request is not as the API's description has it."""
    return RequestRefused(HTTPStatus.BAD_REQUEST, "Invalid request", detail, advice=advice)


def too_busy(detail: str) -> RequestRefused:
    return RequestRefused(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "Too busy",
        detail,
        headers={"Retry-After": str(RETRY_SECONDS)},
    )


def problem_of(error: Exception) -> Problem:
    """The problem that an error is answered with. One that is unknown here says nothing of its cause."""
    match error:
        case RequestRefused():
            return _problem(error.status, error.title, error.detail, advice=error.advice)
        case Refused() | NotFound() if _is_forbidden(error.code):
            return _of_admin(HTTPStatus.FORBIDDEN, "Not permitted", error)
        case NotFound():
            return _of_admin(HTTPStatus.NOT_FOUND, "Not found", error)
        case AlreadyExists():
            return _of_admin(HTTPStatus.CONFLICT, "Already exists", error)
        case InUse():
            return _of_admin(HTTPStatus.CONFLICT, "In use", error)
        case Unavailable():
            return _of_admin(HTTPStatus.SERVICE_UNAVAILABLE, "Unavailable", error)
        case AdminError():
            return _of_admin(HTTPStatus.UNPROCESSABLE_ENTITY, "Refused", error)
        case SubjectNotFound() | VersionNotFound():
            return _problem(HTTPStatus.NOT_FOUND, "Not found", str(error))
        case NotEncoded() | InvalidSchema():
            return _problem(HTTPStatus.UNPROCESSABLE_ENTITY, "Refused", str(error))
        case AuthenticationFailed():
            return _problem(HTTPStatus.UNAUTHORIZED, "Not authenticated", str(error))
        case FilterInvalid():
            return _problem(HTTPStatus.BAD_REQUEST, "Invalid request", error.headline)
        case PushUnavailable() | SecurityInvalid():
            # The latter: push needs TLS for credentials, and the connection to the brokers is without.
            return _problem(HTTPStatus.CONFLICT, "Not possible here", str(error))
        case ClientError():
            return _problem(HTTPStatus.SERVICE_UNAVAILABLE, "Unavailable", str(error))
        case _:
            detail = "the server failed: its log has the reason"
            return _problem(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error", detail)


def headers_of(error: Exception, problem: Problem) -> dict[str, str]:
    """The headers that go with a problem."""
    if isinstance(error, RequestRefused):
        return error.headers
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return {"Retry-After": str(RETRY_SECONDS)}
    return {}


def _is_forbidden(code: str) -> bool:
    return code.endswith(_AUTHORIZATION) or code == _NOT_AUTHORIZED


def _of_admin(status: HTTPStatus, title: str, error: AdminError) -> Problem:
    return _problem(
        status, title, error.failure, code=error.code or None, advice=error.advice or None
    )


def _problem(
    status: HTTPStatus,
    title: str,
    detail: str,
    *,
    code: str | None = None,
    advice: str | None = None,
) -> Problem:
    return Problem(
        type=_TYPE + title.lower().replace(" ", "-"),
        title=title,
        status=status.value,
        detail=detail,
        code=code,
        advice=advice,
    )
