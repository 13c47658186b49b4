"""Serves the registry: its routes, the media types of its clients, and its errors in their JSON."""

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from zhumq.client.security import ClientSecurity
from zhumq.schemas.errors import SchemaError
from zhumq.web.answers import JSON
from zhumq.web.bodies import Bodies
from zhumq.web.brokers import BrokerPool
from zhumq.web.credentials import CHALLENGE
from zhumq.web.problems import headers_of, problem_of
from zhumq.web.registry import handlers
from zhumq.web.registry.calls import Call
from zhumq.web.workers import Workers

logger = logging.getLogger(__name__)

# Its paths would be those of pages at the root: /config, /mode.
REGISTRY_PREFIX: Final = "/registry"
MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
BODY_TYPES: Final = frozenset({MEDIA_TYPE, "application/vnd.schemaregistry+json", JSON})
STORE_FAILED: Final = 50001  # the code that clients know for a log that cannot be read or written

Handler = Callable[[Call], Any]

_SUBJECT: Final = "/subjects/{subject}"
_VERSION: Final = f"{_SUBJECT}/versions/{{version}}"
REGISTRY_ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", "/subjects", handlers.list_subjects),
    ("POST", _SUBJECT, handlers.look_up),
    ("DELETE", _SUBJECT, handlers.delete_subject),
    ("GET", f"{_SUBJECT}/versions", handlers.list_versions),
    ("POST", f"{_SUBJECT}/versions", handlers.register),
    ("GET", _VERSION, handlers.show_version),
    ("DELETE", _VERSION, handlers.delete_version),
    ("GET", f"{_VERSION}/schema", handlers.show_schema_of_version),
    ("GET", f"{_VERSION}/referencedby", handlers.list_referrers),
    ("GET", "/schemas", handlers.list_schemas),
    ("GET", "/schemas/types", handlers.list_types),
    ("GET", "/schemas/ids/{id}", handlers.show_schema),
    ("GET", "/schemas/ids/{id}/schema", handlers.show_raw_schema),
    ("GET", "/schemas/ids/{id}/subjects", handlers.list_subjects_of_schema),
    ("GET", "/schemas/ids/{id}/versions", handlers.list_versions_of_schema),
    ("GET", "/schemas/guids/{guid}", handlers.show_schema_by_guid),
    ("POST", f"/compatibility{_SUBJECT}/versions", handlers.check_with_all),
    ("POST", f"/compatibility{_VERSION}", handlers.check_with_version),
    ("GET", "/config", handlers.show_config),
    ("PUT", "/config", handlers.set_config),
    ("DELETE", "/config", handlers.delete_config),
    ("GET", "/config/{subject}", handlers.show_subject_config),
    ("PUT", "/config/{subject}", handlers.set_config),
    ("DELETE", "/config/{subject}", handlers.delete_config),
    ("GET", "/mode", handlers.show_mode),
    ("PUT", "/mode", handlers.set_mode),
    ("DELETE", "/mode", handlers.delete_mode),
    ("GET", "/mode/{subject}", handlers.show_subject_mode),
    ("PUT", "/mode/{subject}", handlers.set_mode),
    ("DELETE", "/mode/{subject}", handlers.delete_mode),
    ("GET", "/contexts", handlers.list_contexts),
)


class RegistryApi:
    """The registry of this process. A request has the rights of its caller: they read and write `_schemas`."""

    def __init__(
        self,
        pool: BrokerPool,
        workers: Workers,
        bodies: Bodies,
        caller: Callable[[Request], ClientSecurity],
    ) -> None:
        self._pool = pool
        self._workers = workers
        self._bodies = bodies
        self._caller = caller

    def routes(self) -> list[Route]:
        by_path: dict[str, dict[str, Handler]] = {}
        for method, path, handler in REGISTRY_ROUTES:
            by_path.setdefault(REGISTRY_PREFIX + path, {})[method] = handler
        made = [
            Route(path, self._serve(rows), methods=sorted(rows)) for path, rows in by_path.items()
        ]
        # Clients ask for the root to see whether the registry is there.
        root = self._serve({"GET": lambda _: {}})
        return [
            *made,
            *(Route(REGISTRY_PREFIX + end, root, methods=["GET"]) for end in ("", "/")),
        ]

    def _serve(self, rows: Mapping[str, Handler]) -> Any:
        async def serve(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            try:
                return await self._answer(rows[method], request)
            except ClientDisconnect:
                raise
            except Exception as error:
                response = error_response(error)
                if response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
                    logger.exception("%s %s failed", request.method, request.url.path[:200])
                return response

        return serve

    async def _answer(self, handler: Handler, request: Request) -> Response:
        security = self._caller(request)
        query = dict(request.query_params)
        async with self._bodies.read(request, types=BODY_TYPES) as body:

            def call() -> bytes:
                with self._pool.lend(security) as brokers:
                    made = Call(
                        store=brokers.schemas,
                        link=brokers.schema_link,
                        names=request.path_params,
                        query=query,
                        body=body,
                    )
                    return msgspec.json.encode(handler(made))

            content = await self._workers.run(call)
        return Response(content, media_type=MEDIA_TYPE)


def error_response(error: Exception) -> Response:
    """An error as clients of Confluent's registry expect it."""
    headers = {}
    if isinstance(error, SchemaError):
        code, message = error.error_code, str(error)
        status = int(str(code)[:3])
    else:
        problem = problem_of(error)
        status, headers = problem.status, dict(headers_of(error, problem))
        is_store = status == HTTPStatus.SERVICE_UNAVAILABLE
        code = STORE_FAILED if is_store else status
        message = f"{problem.detail}: {problem.advice}" if problem.advice else problem.detail
    if status == HTTPStatus.UNAUTHORIZED:
        headers.setdefault("WWW-Authenticate", CHALLENGE)
    content = msgspec.json.encode({"error_code": code, "message": message})
    return Response(content, status_code=status, media_type=MEDIA_TYPE, headers=headers)
