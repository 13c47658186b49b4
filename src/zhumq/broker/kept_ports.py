"""Ports that the system chose for a broker, kept in its data folder and used again after a restart."""

import logging
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from zhumq.broker.config import BrokerConfig
from zhumq.broker.listener_config import ListenerConfig
from zhumq.host.disk import Disk
from zhumq.model.errors import ZhumqError

logger = logging.getLogger(__name__)

# One line for each listener whose configured port is 0: `push=40123`.
PORTS_FILE: Final = "chosen-ports"


def with_kept_ports(config: BrokerConfig, disk: Disk) -> BrokerConfig:
    """The config with the ports of the last run in place of 0, where they are still free.

    Clients remember addresses: those that do not look up a broker again cannot find it on another port.
    """
    kept = _read(disk, _path(config.data_dir))

    def again(name: str, listener: ListenerConfig) -> ListenerConfig:
        port = kept.get(name, 0)
        bind = listener.bind
        if bind.port or not port or not _is_free(bind.host, port):
            return listener
        return replace(listener, bind=replace(bind, port=port))

    return replace(
        config,
        listeners=tuple(
            again(port_name(config, listener), listener) for listener in config.listeners
        ),
        http=again("http", config.http),
        inter_broker=again("inter-broker", config.inter_broker),
        push=None if config.push is None else again("push", config.push),
    )


def port_name(config: BrokerConfig, listener: ListenerConfig) -> str:
    """The name of a client listener's port in the file."""
    return "kafka" if listener is config.listeners[0] else f"kafka-{listener.name}"


def keep_ports(config: BrokerConfig, disk: Disk, ports: Mapping[str, int]) -> None:
    """Write the bound ports to the data folder. A failure, such as a full disk, is only logged."""
    path = _path(config.data_dir)
    if _read(disk, path) == ports:
        return
    lines = "".join(f"{name}={port}\n" for name, port in sorted(ports.items()))
    try:
        disk.write_file(path, lines.encode(), sync=False)
    except ZhumqError as reason:
        logger.warning("the bound ports are not saved: %s", reason)


def _path(data_dir: Path) -> str:
    return str(data_dir / PORTS_FILE)


def _read(disk: Disk, path: str) -> dict[str, int]:
    """The ports in the file; none if it is missing or malformed."""
    try:
        text = (disk.read_file(path) or b"").decode()
        pairs = [line.partition("=") for line in text.splitlines()]
        ports = {name: int(port) for name, _, port in pairs}
    except (ValueError, ZhumqError):
        return {}
    return {name: port for name, port in ports.items() if 0 < port < 65_536}


def _is_free(host: str, port: int) -> bool:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # As listeners do: connections in TIME_WAIT do not hold the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError:
        return False
    return True
