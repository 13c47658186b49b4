"""The application of the REST API and the console: builds it, and serves each request of the route table."""

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from zhumq.client.errors import AuthenticationFailed
from zhumq.client.security import ClientSecurity
from zhumq.web.answers import JSON, json_response, problem_response
from zhumq.web.bodies import Bodies
from zhumq.web.brokers import BrokerPool
from zhumq.web.console_files import console_routes, missing_page
from zhumq.web.credentials import WITHOUT_SASL, BrokerSecurity, refused
from zhumq.web.endpoint import PREFIX, Endpoint, read_arguments
from zhumq.web.events import EVENTS_PATH
from zhumq.web.guard import SAFE_METHODS, Guard
from zhumq.web.login_sessions import LoginSession, LoginSessions
from zhumq.web.openapi import document
from zhumq.web.pipeline_metrics import MEDIA_TYPE, pipeline_metrics
from zhumq.web.problems import RequestRefused
from zhumq.web.readiness import Readiness
from zhumq.web.registry.serving import RegistryApi
from zhumq.web.resources.pipelines import last_runs
from zhumq.web.routes import ROUTES
from zhumq.web.visit import COOKIE, CSRF_HEADER, Visit
from zhumq.web.watching import Watching
from zhumq.web.workers import Workers

logger = logging.getLogger(__name__)

_TEXT: Final = "text/plain"
_HAS_NO_ANSWER: Final = frozenset({HTTPStatus.NO_CONTENT})


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """What the application needs to know."""

    bootstrap: str
    push: str | None = None
    security: BrokerSecurity = WITHOUT_SASL
    host_names: tuple[str, ...] = ()  # of this server, beside its addresses
    event_seconds: float = 2.0  # between two looks at what has changed


def make_app(config: WebConfig) -> Starlette:
    """The ASGI application. It connects to the brokers with the first request."""
    api = _Api(config)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await api.close()

    by_path: dict[str, dict[str, Endpoint]] = {}
    for row in ROUTES:
        by_path.setdefault(PREFIX + row.path, {})[row.method] = row
    routes = [
        Route(path, _serve(api, rows), methods=sorted(rows)) for path, rows in by_path.items()
    ]
    routes.append(Route(f"{PREFIX}/openapi.json", _serve_document(), methods=["GET"]))
    routes.append(Route(PREFIX + EVENTS_PATH, api.serve_events, methods=["GET"]))
    routes += api.registry.routes()
    routes.append(Route("/healthz", _healthz, methods=["GET"]))
    routes.append(Route("/metrics", api.serve_metrics, methods=["GET"]))
    routes.append(Route("/readyz", api.serve_readiness, methods=["GET"]))
    routes += console_routes()
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, host_names=config.host_names)],
        exception_handlers={
            HTTPException: _on_http_exception,
            ClientDisconnect: _on_disconnect,
            Exception: _on_failure,
        },
        lifespan=lifespan,
    )


class _Api:
    """What requests share: connections, threads, logins, and who listens to events."""

    def __init__(self, config: WebConfig) -> None:
        self._security = config.security
        self._pool = BrokerPool(config.bootstrap, push=config.push)
        self._workers = Workers()
        self._bodies = Bodies()
        self._sessions = LoginSessions()
        self._readiness = Readiness(config.bootstrap, config.security.connection, self._workers)
        self._watching = Watching(self._pool, self._workers, seconds=config.event_seconds)
        self.registry = RegistryApi(self._pool, self._workers, self._bodies, self._caller)

    async def close(self) -> None:
        await self._watching.close()
        self._workers.close()
        self._pool.close()

    async def serve(self, row: Endpoint, request: Request) -> Response:
        try:
            return await self._answer(row, request)
        except AuthenticationFailed as error:
            # The user was deleted, or has another password by now.
            self._sessions.end(request.cookies.get(COOKIE, ""))
            return problem_response(refused(str(error), is_page=_is_of_a_page(request)))
        except ClientDisconnect:
            raise
        except Exception as error:
            response = problem_response(error)
            if response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
                logger.exception("%s %s failed", row.method, row.path)
            return response

    async def serve_events(self, request: Request) -> Response:
        try:
            return await self._watching.listen(request, self._caller(request))
        except Exception as error:
            return problem_response(error)

    async def serve_metrics(self, request: Request) -> Response:
        """The metrics of pipelines. Those of a broker are at its own HTTP port."""
        try:
            security = self._caller(request)

            def read() -> str:
                with self._pool.lend(security) as brokers:
                    found = pipeline_metrics(last_runs(brokers))
                return "".join(f"{each.render()}\n" for each in found)

            return Response(await self._workers.run(read), media_type=MEDIA_TYPE)
        except Exception as error:
            return problem_response(error)

    async def serve_readiness(self, _: Request) -> Response:
        obstacle = await self._readiness.obstacle()
        if obstacle is None:
            return Response("ready\n", media_type=_TEXT)
        status = HTTPStatus.SERVICE_UNAVAILABLE
        return Response(f"not ready\n{obstacle}\n", status_code=status, media_type=_TEXT)

    async def _answer(self, row: Endpoint, request: Request) -> Response:
        visit = self._visit(request) if row.is_open else None
        security = self._caller(request) if visit is None else None
        in_path: Mapping[str, str] = request.path_params
        pairs = request.query_params.multi_items()
        async with self._bodies.read(request) as body:
            arguments = read_arguments(row, in_path, pairs, body)

            def call() -> bytes:
                if visit is not None:
                    return msgspec.json.encode(row.handler(visit, **arguments))
                assert security is not None
                with self._pool.lend(security) as brokers:
                    return msgspec.json.encode(row.handler(brokers, **arguments))

            content = await self._workers.run(call)
        response = _response(row, content, request)
        if visit is not None and visit.set_cookie is not None:
            response.headers["Set-Cookie"] = visit.set_cookie
        if row.method not in SAFE_METHODS:
            self._watching.look_soon()
        return response

    def _caller(self, request: Request) -> ClientSecurity:
        """Whose rights a request has. Raises RequestRefused."""
        if not self._security.needs_login:
            return self._security.connection
        header = request.headers.get("authorization")
        if header is not None:
            return self._security.of_header(header)
        session = self._session(request)
        if session is None:
            is_page = _is_of_a_page(request)
            raise refused("log in, or send the Authorization header", is_page=is_page)
        self._check_csrf(request, session)
        return session.security

    def _visit(self, request: Request) -> Visit:
        session = self._session(request)
        # A login replaces the session before: only its end is asked for with the token.
        if session is not None and request.method == "DELETE":
            self._check_csrf(request, session)
        return Visit(
            pool=self._pool,
            security=self._security,
            sessions=self._sessions,
            is_encrypted=request.url.scheme == "https",
            session_id=request.cookies.get(COOKIE, ""),
            session=session,
        )

    def _session(self, request: Request) -> LoginSession | None:
        return self._sessions.find(request.cookies.get(COOKIE, ""), time.monotonic())

    @staticmethod
    def _check_csrf(request: Request, session: LoginSession) -> None:
        if request.method in SAFE_METHODS:
            return
        if not session.has_token(request.headers.get(CSRF_HEADER, "")):
            raise RequestRefused(
                HTTPStatus.FORBIDDEN,
                "No CSRF token",
                f"a change with a session cookie needs the header {CSRF_HEADER}",
                advice=f"GET {PREFIX}/session has the token",
            )


def _is_of_a_page(request: Request) -> bool:
    """A page that asks in the background has its own form for a password: the browser must not ask for one."""
    return request.headers.get("sec-fetch-mode", "navigate") != "navigate"


def _response(row: Endpoint, content: bytes, request: Request) -> Response:
    if row.status in _HAS_NO_ANSWER:
        return Response(status_code=row.status)
    if row.method in SAFE_METHODS:
        return json_response(content, if_none_match=request.headers.get("if-none-match"))
    return Response(content, status_code=row.status, media_type=JSON)


def _serve(api: _Api, rows: Mapping[str, Endpoint]) -> Any:
    async def serve(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await api.serve(rows[method], request)

    return serve


def _serve_document() -> Any:
    content = msgspec.json.encode(document(ROUTES))

    async def serve(request: Request) -> Response:
        return json_response(content, if_none_match=request.headers.get("if-none-match"))

    return serve


async def _healthz(_: Request) -> Response:
    return Response("ok\n", media_type=_TEXT)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    if status is HTTPStatus.NOT_FOUND and (page := missing_page(request)) is not None:
        return page
    detail = {
        HTTPStatus.NOT_FOUND: f"there is nothing here: {PREFIX}/openapi.json has what there is",
        HTTPStatus.METHOD_NOT_ALLOWED: "this method is not served here",
    }.get(status, status.description or status.phrase)
    return problem_response(
        RequestRefused(status, status.phrase, detail, headers=dict(error.headers or {}))
    )


async def _on_disconnect(_: Request, __: Exception) -> Response:
    return Response(status_code=HTTPStatus.BAD_REQUEST)


async def _on_failure(_: Request, error: Exception) -> Response:
    return problem_response(error)
