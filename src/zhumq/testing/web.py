"""The REST API in a thread of the test process, with its own event loop, on a free port."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from zhumq.model.address import Address
from zhumq.web.app import WebConfig
from zhumq.web.server import STOP_SECONDS_MAX, WebServer

_ANY_PORT: Final = Address("127.0.0.1", 0)


@contextlib.contextmanager
def rest_api(config: WebConfig) -> Iterator[str]:
    """Serve until the end of the block. Gives the URL, such as http://127.0.0.1:40123."""
    server = WebServer(config, _ANY_PORT)
    thread = threading.Thread(target=server.run_until_stopped, name="zhumq-web", daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.should_exit = True
        thread.join(STOP_SECONDS_MAX * 3)
