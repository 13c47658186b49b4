"""`--throttle`: limits the rate at which moving partitions are copied."""

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from zhumq.cli.options import CommandFailed
from zhumq.cli.output import print_note
from zhumq.cli.requests import BrokerConnection
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.configs import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

OFF: Final = "off"
_RATE_SETTING: Final = "leader.replication.throttled.rate"
_RATE = re.compile(r"([1-9][0-9]{0,14})([KMG]?)B?", re.IGNORECASE)
_FACTORS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}
# The protocol's codes.
_BROKER: Final = 4
_ALL_BROKERS: Final = ""
_SET: Final = 0
_DELETE: Final = 1


def parse_rate(text: str) -> int | None:
    """Bytes a second; None for `off`."""
    if text.lower() == OFF:
        return None
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise CommandFailed(f"--throttle takes bytes a second, such as 50M, or {OFF}; not {text!r}")
    return int(found[1]) * _FACTORS[found[2].upper()]


@contextlib.contextmanager
def throttled(broker: BrokerConnection, bytes_per_second: int | None) -> Iterator[None]:
    """Limit the copy rate for the length of the block; None: no change."""
    if bytes_per_second is None:
        yield
        return
    set_rate(broker, bytes_per_second)
    try:
        yield
    except BaseException:
        # The moves that were begun continue, and stay throttled after an interrupted command.
        print_note(f"copies stay throttled until `zhumq cluster rebalance --throttle {OFF}`")
        raise
    set_rate(broker, None)


def set_rate(broker: BrokerConnection, bytes_per_second: int | None) -> None:
    """Set the rate of all brokers; None removes it. Raises CommandFailed."""
    config = IncrementalAlterConfigsAlterableConfig(
        name=_RATE_SETTING,
        config_operation=_DELETE if bytes_per_second is None else _SET,
        value=None if bytes_per_second is None else str(bytes_per_second),
    )
    resource = IncrementalAlterConfigsResource(
        resource_type=_BROKER, resource_name=_ALL_BROKERS, configs=[config]
    )
    answer = broker.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[resource])
    )
    for response in answer.responses:
        if response.error_code != ErrorCode.NONE:
            why = response.error_message or ErrorCode(response.error_code).name
            raise CommandFailed(f"cannot set {_RATE_SETTING}: {why}")
