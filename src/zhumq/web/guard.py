"""What every request passes: the Host and Origin checks against other sites, and the headers of every answer."""

import ipaddress
from collections.abc import Collection, MutableMapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from zhumq.web.answers import problem_response
from zhumq.web.problems import RequestRefused, invalid

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES: Final = ("same-origin", "none")
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}
_HSTS: Final = "max-age=31536000"


def check_host(host: str, names: Collection[str]) -> None:
    """Raise RequestRefused unless the Host header is an address, localhost or one of the names.

    A page whose name an attacker has made to lead here (DNS rebinding) has neither.
    """
    name = _host_name(host)
    if name == "localhost" or name in names or _is_address(name):
        return
    raise RequestRefused(
        HTTPStatus.MISDIRECTED_REQUEST,
        "Unknown host",
        f"the Host header names {host[:100]!r}, which this server does not serve",
        advice="allow the name with `zhumq web --host-name NAME`",
    )


def check_origin(method: str, host: str, origin: str | None, site: str | None) -> None:
    """Raise RequestRefused for a change that a page of another site asks for in the user's browser.

    `site` is the header Sec-Fetch-Site. Programs send neither header.
    """
    if method in SAFE_METHODS:
        return
    if (site is None or site in _OWN_SITES) and (origin is None or _is_same(origin, host)):
        return
    raise RequestRefused(
        HTTPStatus.FORBIDDEN, "Other site", "a page of another site may not ask for changes here"
    )


class Guard:
    """ASGI: checks a request, and adds the headers to its answer."""

    def __init__(self, app: ASGIApp, *, host_names: Collection[str]) -> None:
        self._app = app
        self._host_names = frozenset(each.lower() for each in host_names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if scope["scheme"] == "https":
                    headers.setdefault("Strict-Transport-Security", _HSTS)
            await send(message)

        # A name in the path may have an encoded slash: routes are found by the path as it was sent.
        scope["path"] = scope["raw_path"].decode("ascii", errors="replace")
        refusal = self._refusal(scope)
        app = self._app if refusal is None else problem_response(refusal)
        await app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> RequestRefused | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        try:
            if len(hosts) != 1:
                raise invalid("a request has one Host header")
            check_host(hosts[0], self._host_names)
            check_origin(
                scope["method"], hosts[0], headers.get("origin"), headers.get("sec-fetch-site")
            )
        except RequestRefused as refusal:
            return refusal
        return None


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_same(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
