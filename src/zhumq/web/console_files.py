"""The console's files: plain modules that a browser runs as they are, and the pages whose address they answer."""

import hashlib
import importlib.resources
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.resources.abc import Traversable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zhumq.web.answers import tagged_response

FILES_PREFIX: Final = "/console"
# The first part of the address of each page. What follows it is for the browser: a page of a name that does not exist
# says so itself.
PAGES: Final = (
    "cluster", "topics", "tail", "groups", "producers", "keys", "dead-letters", "sessions", "transactions", "half-messages",
    "pipelines", "schemas", "users", "acls", "quotas", "audit", "login",
)  # fmt: skip
_INDEX: Final = "index.html"
_END_OF_HEAD: Final = b"</head>"
_DIGEST_BYTES: Final = 8
_PATHS_OF_PROGRAMS: Final = ("/api/", "/registry/", f"{FILES_PREFIX}/")
_FOREVER: Final = "public, max-age=31536000, immutable"
_MEDIA_TYPES: Final = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
# No script or style but of these files, and none that a page would make of a text: `trusted-types 'none'` lets the
# browser refuse every assignment to innerHTML and its kind.
_POLICY: Final = (
    "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleFile:
    """A file as it is served."""

    content: bytes
    media_type: str


@cache
def read_files() -> dict[str, ConsoleFile]:
    """The files by their path below `files_path`, and the index. They are few and small, so they stay in memory."""
    root = importlib.resources.files("zhumq.web").joinpath("console")
    return {
        name: ConsoleFile(content=each.read_bytes(), media_type=_MEDIA_TYPES[suffix])
        for name, each in _walk(root, "")
        if (suffix := name[name.rfind(".") :]) in _MEDIA_TYPES
    }


@cache
def files_path() -> str:
    """Where the files are served. With other content the address is another, so a browser asks for a file once."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for name, each in sorted(read_files().items()):
        digest.update(f"{name} {len(each.content)} ".encode() + each.content)
    return f"{FILES_PREFIX}/{digest.hexdigest()}"


@cache
def index() -> ConsoleFile:
    """The index with the addresses of the files. It names the modules that pages share, which a browser would otherwise find
    one after the other."""
    path = files_path()
    shared = sorted(name for name in read_files() if name.endswith(".js") and "/" not in name)
    hints = "".join(f'<link rel="modulepreload" href="{path}/{name}">\n' for name in shared)
    written = read_files()[_INDEX]
    content = written.content.replace(f'"{FILES_PREFIX}/'.encode(), f'"{path}/'.encode())
    content = content.replace(_END_OF_HEAD, hints.encode() + _END_OF_HEAD)
    return ConsoleFile(content=content, media_type=written.media_type)


def console_routes() -> list[Route]:
    """The routes of the files, and of the pages: each page is the index, which shows what its address says."""
    page_route = _serve(index())
    # One route for each file: every other path below is answered as unknown paths are.
    return [
        Route("/", page_route, methods=["GET"]),
        *(Route(f"/{page}", page_route, methods=["GET"]) for page in PAGES),
        *(Route(f"/{page}/{{rest:path}}", page_route, methods=["GET"]) for page in PAGES),
        *(
            Route(
                f"{files_path()}/{name}",
                _serve(each, **{"Cache-Control": _FOREVER}),
                methods=["GET"],
            )
            for name, each in read_files().items()
            if name != _INDEX
        ),
    ]


def missing_page(request: Request) -> Response | None:
    """The index for a browser that went to an address without a page: it says so, with the way back. None for programs, and
    for what is not an address of the console."""
    is_of_programs = request.url.path.startswith(_PATHS_OF_PROGRAMS)
    if (
        request.method != "GET"
        or is_of_programs
        or "text/html" not in request.headers.get("accept", "")
    ):
        return None
    return Response(
        index().content,
        status_code=HTTPStatus.NOT_FOUND,
        media_type=_MEDIA_TYPES[".html"],
        headers={"Content-Security-Policy": _POLICY},
    )


def _walk(folder: Traversable, above: str) -> Iterator[tuple[str, Traversable]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _walk(each, f"{above}{each.name}/")
        else:
            yield above + each.name, each


def _serve(file: ConsoleFile, **headers: str) -> Any:
    async def serve(request: Request) -> Response:
        return tagged_response(
            file.content,
            media_type=file.media_type,
            if_none_match=request.headers.get("if-none-match"),
            headers={"Content-Security-Policy": _POLICY, **headers},
        )

    return serve
