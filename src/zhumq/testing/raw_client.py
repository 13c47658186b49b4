"""A client for tests that sends any request in any version on one connection, also malformed ones."""

from typing import Final

from zhumq.client.dial import dial
from zhumq.client.wire import Connection
from zhumq.model.address import parse_address

SECONDS_MAX: Final = 30.0


class RawClient(Connection):
    """Requests out, responses in, in order. Raises ConnectionError when the broker hangs up."""

    def __init__(
        self, bootstrap: str, *, client_id: str = "raw", seconds_max: float = SECONDS_MAX
    ) -> None:
        super().__init__(dial([parse_address(bootstrap)], seconds=seconds_max), client_id=client_id)
