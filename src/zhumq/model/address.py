"""The parser of HOST:PORT addresses, with or without Kafka's `PLAINTEXT://` prefix."""

import ipaddress
from dataclasses import dataclass, replace
from typing import Final, Self

PORT_MAX: Final = 65_535
PLAINTEXT: Final = "PLAINTEXT"
EVERY_INTERFACE: Final = "0.0.0.0"  # noqa: S104 (a constant; the config decides who may listen on it)
_NOT_IN_A_HOST: Final = frozenset("/@,[]\\\"'")


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port; a listener with port 0 gets a free port."""

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
        """Whether this means every interface of a machine: valid to listen on, not to connect to."""
        if self.host in ("", "0"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    def to_bind(self) -> Self:
        """The address to listen on. As in Kafka, an empty host means every interface."""
        return self if self.host else replace(self, host=EVERY_INTERFACE)

    def or_port(self, port: int) -> Self:
        """This address, with the bound port in place of port 0."""
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
    """The address of a listener. In contrast to an address to connect to, the host may be empty or
    every interface, and the port may be 0. Raises ValueError."""
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
