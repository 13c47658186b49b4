"""The process of the REST API: listens, serves until it is stopped, and ends with the broker that started it."""

import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from zhumq.model.address import Address
from zhumq.model.errors import ZhumqError
from zhumq.web.app import WebConfig, make_app

CONNECTIONS_MAX: Final = 256
KEEP_ALIVE_SECONDS: Final = 30
HEAD_SECONDS_MAX: Final = 15.0  # from the connect until the head of the first request
HEAD_BYTES_MAX: Final = 128 * 1024
STOP_SECONDS_MAX: Final = 3  # for requests that are being served, and open streams
BACKLOG: Final = 256


class CannotServe(ZhumqError):
    """The server cannot listen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The certificate chain and the key of the server, as PEM files."""

    certificate: str
    key: str


class _Protocol(H11Protocol):
    """Uvicorn's, with a deadline for the first request: it would wait for ever."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.loop.call_later(HEAD_SECONDS_MAX, self._close_if_silent)

    def _close_if_silent(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
        if cycle is None:
            self.transport.close()


class WebServer(uvicorn.Server):
    """A server whose socket is open before it runs, so that its address is known."""

    def __init__(self, config: WebConfig, listen: Address, tls: Tls | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                make_app(config),
                http=_Protocol,
                ws="none",
                loop="uvloop",
                lifespan="on",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=STOP_SECONDS_MAX,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
                ssl_certfile=tls.certificate if tls is not None else None,
                ssl_keyfile=tls.key if tls is not None else None,
            )
        )
        self._socket = _listen(listen)
        host, port = self._socket.getsockname()[:2]
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{Address(host, port)}"

    def run_until_stopped(self) -> None:
        """Serve until SIGTERM, SIGINT, or `should_exit`."""
        self.run(sockets=[self._socket])


def serve(config: WebConfig, listen: Address, tls: Tls | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Prints its address when it listens. Returns the exit code."""
    server = WebServer(config, listen, tls)

    def stop(*_: object) -> None:
        server.should_exit = True

    # Uvicorn has handlers of its own while it runs, and raises the signal again afterwards.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
    sys.stdout.write(f"zhumq web ready url={server.url} bootstrap={config.bootstrap}\n")
    sys.stdout.write(f"The console is at {server.url}/\n")
    sys.stdout.flush()
    server.run_until_stopped()
    return 0


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise CannotServe(
            f"cannot listen on {address}: {error.strerror or error}: choose another with --listen"
        ) from None
    listening.setblocking(False)
    return listening
