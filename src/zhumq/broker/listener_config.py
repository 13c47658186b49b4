"""The listeners of a broker as configured: Kafka's syntax, TLS, and which of them need --insecure."""

import ipaddress
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from zhumq.broker.tls_settings import has_key_store, tls_config
from zhumq.model.address import Address, parse_address, parse_listener
from zhumq.model.errors import SettingInvalid
from zhumq.model.security_protocol import SecurityProtocol
from zhumq.model.settings import LISTENER_PREFIX, Settings
from zhumq.net.tls_config import ClientAuth, TlsConfig

DEFAULT_LISTEN: Final = "127.0.0.1:9092"
INTER_BROKER_NAME: Final = "REPLICATION"
HTTP_NAME: Final = "HTTP"
PUSH_NAME: Final = "PUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """One listener."""

    name: str
    protocol: SecurityProtocol
    # Where it is configured, for messages.
    setting: str
    bind: Address
    # Port 0: the bound port.
    advertised: Address
    # Invariant: None unless the protocol uses TLS.
    tls: TlsConfig | None = None
    # The other brokers connect here. They authenticate each other by the cluster's secret.
    is_for_brokers: bool = False

    def to_bind(self) -> Self:
        """The listener with the address to listen on in place of an empty host."""
        return replace(self, bind=self.bind.to_bind())


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaListeners:
    """The listeners of `listeners`."""

    clients: tuple[ListenerConfig, ...]
    inter_broker: ListenerConfig


def read_kafka_listeners(flag: str | None, settings: Settings, *, insecure: bool) -> KafkaListeners:
    """The listeners for clients and for the other brokers. Raises SettingInvalid."""
    text = settings.text("listeners")
    setting = "listeners"
    if flag is not None or not text:
        setting, text = "--listen", DEFAULT_LISTEN if flag is None else flag
    protocols = _protocol_map(settings.text("listener.security.protocol.map"))
    bound = _parse_listeners(text, setting)
    for name in bound:
        if name not in protocols:
            raise SettingInvalid(
                f"{setting} {text!r}: listener.security.protocol.map has no protocol for {name}"
            )
    _check_ports(bound, setting, text)
    peers = _peer_name(settings, bound)
    listeners = [
        ListenerConfig(
            name=name,
            protocol=protocols[name],
            setting=setting,
            bind=address,
            advertised=address,
            tls=tls_config(settings, name) if protocols[name].uses_tls else None,
            is_for_brokers=name == peers,
        )
        for name, address in bound.items()
    ]
    # First, since it matters more than where clients are sent.
    check_exposure((each for each in listeners if not each.is_for_brokers), insecure=insecure)
    advertised = _advertised_listeners(settings, bound, setting)
    listeners = [replace(each, advertised=advertised[each.name]) for each in listeners]
    clients = tuple(each for each in listeners if not each.is_for_brokers)
    if not clients:
        raise SettingInvalid(
            f"{setting} {text!r} has no listener for clients beside inter.broker.listener.name"
        )
    for listener in listeners:
        if listener.is_for_brokers:
            return KafkaListeners(clients=clients, inter_broker=listener)
    return KafkaListeners(clients=clients, inter_broker=_inter_broker(settings, clients[0]))


def other_listener(
    settings: Settings,
    *,
    name: str,
    setting: str,
    bind: Address,
    advertised: Address,
    has_tls: bool,
    has_sasl: bool = False,
) -> ListenerConfig:
    """A listener that is not one of `listeners`."""
    protocol = SecurityProtocol.SSL if has_tls else SecurityProtocol.PLAINTEXT
    return ListenerConfig(
        name=name,
        protocol=SecurityProtocol(f"SASL_{protocol}") if has_sasl else protocol,
        setting=setting,
        bind=bind,
        advertised=advertised,
        tls=tls_config(settings, name) if has_tls else None,
    )


def check_exposure(listeners: Iterable[ListenerConfig], *, insecure: bool) -> list[str]:
    """Which listeners other machines can reach without TLS and authentication, for the log.

    Raises SettingInvalid if there is one and that is not allowed.
    """
    exposed: list[str] = []
    for listener in listeners:
        weakness = _weakness(listener)
        if weakness is None or listener.bind.is_loopback:
            continue
        what = f"{listener.setting} {listener.bind} can be reached from other machines, {weakness}"
        if not insecure:
            raise SettingInvalid(f"{what}: add --insecure to allow that")
        exposed.append(f"listener {listener.name}: {what}")
    return exposed


def check_overrides(settings: Settings, listeners: Iterable[ListenerConfig]) -> None:
    """Refuse settings of a listener that does not exist. Raises SettingInvalid."""
    names = {each.name.lower() for each in listeners}
    for key in settings.given:
        if key.startswith(LISTENER_PREFIX):
            name = key.removeprefix(LISTENER_PREFIX).partition(".")[0]
            if name not in names:
                raise SettingInvalid(
                    f"{key}: there is no listener {name!r}, but {', '.join(sorted(names))}"
                )


def parse_one_listener(text: str, setting: str) -> Address:
    """The address of a listener that is not one of `listeners`. Raises SettingInvalid."""
    return _parsed(parse_listener, text, setting)


def advertised_address(
    settings: Settings, setting: str, bound: Address, beside: Address
) -> Address:
    """The setting's address; else the bound one, with the host of `beside` in place of every interface."""
    if text := settings.text(setting):
        return _to_advertise(_parsed(parse_address, text, setting), text, setting)
    return Address(beside.host, bound.port) if bound.is_unspecified else bound


def _weakness(listener: ListenerConfig) -> str | None:
    if listener.is_for_brokers:
        return None if listener.tls is not None else "without encryption"
    if listener.tls is None:
        if listener.protocol.uses_sasl:
            return "without encryption"
        return "without encryption or passwords"
    if listener.protocol.uses_sasl or listener.tls.client_auth is ClientAuth.REQUIRED:
        return None
    return "and its clients need neither passwords nor certificates (ssl.client.auth=required)"


def _protocol_map(text: str) -> dict[str, SecurityProtocol]:
    protocols: dict[str, SecurityProtocol] = {}
    for entry in _elements(text):
        name, colon, protocol = (part.strip() for part in entry.rpartition(":"))
        if not colon or not name:
            raise SettingInvalid(f"listener.security.protocol.map {entry!r} is not NAME:PROTOCOL")
        if protocol.upper() not in tuple(SecurityProtocol):
            raise SettingInvalid(
                f"listener.security.protocol.map {entry!r}: the protocol is one of"
                f" {', '.join(SecurityProtocol)}"
            )
        if name.upper() in protocols:
            raise SettingInvalid(
                f"listener.security.protocol.map {text!r} has {name.upper()} twice"
            )
        protocols[name.upper()] = SecurityProtocol(protocol.upper())
    return protocols


def _parse_listeners(text: str, setting: str) -> dict[str, Address]:
    """Addresses by name. A single one may do without a name."""
    entries = _elements(text)
    if not entries:
        raise SettingInvalid(f"{setting} {text!r} is not HOST:PORT")
    found: dict[str, Address] = {}
    for entry in entries:
        name, separator, address = entry.rpartition("://")
        if not separator:
            if len(entries) > 1:
                raise SettingInvalid(
                    f"{setting} {entry!r} needs a name beside the others: NAME://HOST:PORT"
                )
            name = SecurityProtocol.PLAINTEXT
        name = name.strip().upper()
        if not name or not name.replace("_", "").replace("-", "").isalnum():
            raise SettingInvalid(f"{setting} {entry!r} has no name (A-Z, 0-9, _ and -)")
        if name in found:
            raise SettingInvalid(f"{setting} {text!r} has two listeners named {name}")
        found[name] = parse_one_listener(address, f"{setting} {entry!r}:" if separator else setting)
    return found


def _check_ports(bound: Mapping[str, Address], setting: str, text: str) -> None:
    """As in Kafka: each listener has a port of its own, or one is on IPv4 and the other on IPv6."""
    seen: dict[tuple[int, int | None], str] = {}
    for name, address in bound.items():
        if not address.port:
            continue
        version = _ip_version(address)
        for other_version in (4, 6, None):
            other = seen.get((address.port, other_version))
            if other is not None and {version, other_version} != {4, 6}:
                raise SettingInvalid(
                    f"{setting} {text!r}: {other} and {name} are both on port {address.port}"
                )
        seen[address.port, version] = name


def _ip_version(address: Address) -> int | None:
    try:
        return ipaddress.ip_address(address.host).version
    except ValueError:
        return None


def _advertised_listeners(
    settings: Settings, bound: Mapping[str, Address], setting: str
) -> dict[str, Address]:
    """Kafka's rules: `advertised.listeners` where set; for a listener without a host the name of this
    machine; never an address that stands for every interface, which no client can connect to."""
    given = _parse_advertised(settings.text("advertised.listeners"), bound)
    advertised: dict[str, Address] = {}
    for name, address in bound.items():
        if name in given:
            advertised[name] = given[name]
        elif not address.host:
            advertised[name] = Address(socket.getfqdn(), address.port)
        elif address.is_unspecified:
            raise SettingInvalid(
                f"{setting} {address} is every interface of this machine, which clients cannot connect to:"
                " add --set advertised.listeners=HOST:PORT as they reach it, or leave the host out"
                f" ({setting} :{address.port}) to advertise this machine's name, {socket.getfqdn()}"
            )
        else:
            advertised[name] = address
    return advertised


def _parse_advertised(text: str, bound: Mapping[str, Address]) -> dict[str, Address]:
    setting = "advertised.listeners"
    found: dict[str, Address] = {}
    for entry in _elements(text):
        name, separator, address = entry.rpartition("://")
        if not separator:
            if len(bound) > 1:
                raise SettingInvalid(f"{setting} {entry!r} needs a name: NAME://HOST:PORT")
            name = next(iter(bound))
        name = name.strip().upper()
        if name not in bound:
            raise SettingInvalid(
                f"{setting} {entry!r}: there is no listener {name}, but {', '.join(bound)}"
            )
        if name in found:
            raise SettingInvalid(f"{setting} {text!r} has {name} twice")
        where = _parsed(parse_address, address, f"{setting} {entry!r}:" if separator else setting)
        found[name] = _to_advertise(where, entry, setting)
    return found


def _to_advertise(address: Address, text: str, setting: str) -> Address:
    if address.is_unspecified:
        raise SettingInvalid(
            f"{setting} {text!r} is every interface of a machine, which clients cannot connect to:"
            " name the HOST:PORT under which this broker is reached"
        )
    return address


def _peer_name(settings: Settings, bound: Mapping[str, Address]) -> str | None:
    """The listener that inter.broker.listener.name names."""
    text = settings.text("inter.broker.listener.name").strip().upper()
    if not text:
        return None
    if text not in bound:
        raise SettingInvalid(
            f"inter.broker.listener.name {text!r}: there is no such listener, but {', '.join(bound)}"
        )
    for other in ("inter.broker.listener", "inter.broker.advertised"):
        if settings.text(other):
            raise SettingInvalid(f"give inter.broker.listener.name or {other}, not both")
    return text


def _inter_broker(settings: Settings, first: ListenerConfig) -> ListenerConfig:
    """The listener on a port of its own."""
    bind = Address(first.bind.host, 0)
    if text := settings.text("inter.broker.listener"):
        bind = parse_one_listener(text, "inter.broker.listener")
    listener = other_listener(
        settings,
        name=INTER_BROKER_NAME,
        setting="inter.broker.listener",
        bind=bind,
        advertised=advertised_address(settings, "inter.broker.advertised", bind, first.advertised),
        has_tls=first.protocol.uses_tls and has_key_store(settings, INTER_BROKER_NAME),
    )
    return replace(listener, is_for_brokers=True)


def _parsed(parse: Callable[[str], Address], text: str, setting: str) -> Address:
    try:
        return parse(text)
    except ValueError as reason:
        raise SettingInvalid(f"{setting} {reason}") from None


def _elements(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
