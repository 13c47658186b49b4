"""HOST:PORT as people write it, with or without Kafka's `PLAINTEXT://` before it: the one parser."""

import ipaddress
from dataclasses import dataclass, replace
from typing import Final, Self

PORT_MAX: Final = 65_535
PLAINTEXT: Final = "PLAINTEXT"
EVERY_INTERFACE: Final = "0.0.0.0"  # noqa: S104 (a name for it; who may listen there is decided elsewhere)
_NOT_IN_A_HOST: Final = frozenset("/@,[]\\\"'")


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; where a server listens, port 0 picks a free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_unspecified(self) -> bool:
        """Whether this stands for every interface of a machine: to listen on, never to dial."""
        if self.host in ("", "0"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    def to_bind(self) -> Self:
        """The address to listen on: as in Kafka, no host is every interface."""
        return self if self.host else replace(self, host=EVERY_INTERFACE)

    def or_port(self, port: int) -> Self:
        """This address; where its port is 0, with the one that was bound."""
        return self if self.port else replace(self, port=port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, *, default_port: int | None = None) -> Address:
    """`HOST:PORT`, `[IPV6]:PORT` or `PLAINTEXT://HOST:PORT` to connect to. Raises ValueError."""
    address = parse_listener(text, default_port=default_port)
    if not address.host:
        raise ValueError(f"{text!r} is not HOST:PORT")
    if address.port == 0:
        raise ValueError(f"{text!r} has port 0, to which nothing can connect")
    return address


def parse_addresses(text: str, *, default_port: int | None = None) -> list[Address]:
    """The addresses of a `HOST:PORT,HOST:PORT` list. Raises ValueError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return [parse_address(part, default_port=default_port) for part in parts]


def parse_listener(text: str, *, default_port: int | None = None) -> Address:
    """Where to listen: as an address to connect to, but the host may be empty or stand for every
    interface, and the port may be 0. Raises ValueError."""
    protocol, separator, rest = text.strip().rpartition("://")
    if separator and protocol.upper() != PLAINTEXT:
        raise ValueError(
            f"{text!r} asks for {protocol!r}, and only {PLAINTEXT} is supported:"
            " PLAINTEXT://HOST:PORT or HOST:PORT"
        )
    host, colon, port = rest.rpartition(":")
    if not colon and default_port is not None:
        host, port = port, str(default_port)
    elif not colon:
        raise ValueError(f"{text!r} is not HOST:PORT")
    if not (port.isascii() and port.isdecimal()) or int(port) > PORT_MAX:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return Address(_host(host, text), int(port))


def _host(host: str, text: str) -> str:
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise ValueError(f"{text!r} is not [IPV6]:PORT") from None
    if ":" in host:
        raise ValueError(
            f"{text!r} is not HOST:PORT; an IPv6 address goes into brackets: [::1]:9092"
        )
    if _NOT_IN_A_HOST.intersection(host) or any(each.isspace() for each in host):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host
