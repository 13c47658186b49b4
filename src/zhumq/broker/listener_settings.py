"""Settings of listeners, under Kafka's names where Kafka has them."""

from typing import Final

from zhumq.model.security_protocol import SecurityProtocol
from zhumq.model.settings import Setting, SettingType

DEFAULT_PROTOCOL_MAP: Final = ",".join(f"{each}:{each}" for each in SecurityProtocol)


def _text(
    name: str, documentation: str, *, default: str = "", allowed: tuple[str, ...] = ()
) -> Setting:
    return Setting(
        name=name,
        type=SettingType.STRING,
        default=default,
        documentation=documentation,
        allowed=allowed,
    )


LISTENER_SETTINGS: Final = (
    _text(
        "listeners",
        "Where Kafka clients connect: NAME://HOST:PORT,... with names of listener.security.protocol.map,"
        " or HOST:PORT for a single PLAINTEXT listener; --listen overrides it.",
    ),
    _text(
        "advertised.listeners",
        "NAME://HOST:PORT,... that are advertised to clients, or HOST:PORT for a single listener; empty:"
        " where the broker listens, or this machine's name where a listener has no host.",
    ),
    _text(
        "listener.security.protocol.map",
        "NAME:PROTOCOL,...: what each listener speaks, of PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL.",
        default=DEFAULT_PROTOCOL_MAP,
    ),
    _text(
        "inter.broker.listener.name",
        "The listener of `listeners` that is for the other brokers alone; empty: inter.broker.listener.",
    ),
    _text(
        "inter.broker.listener",
        "HOST:PORT where the other brokers connect, if inter.broker.listener.name is empty; empty: the"
        " host of the first listener, and any free port. With TLS if the first listener has TLS.",
    ),
    _text(
        "inter.broker.advertised",
        "HOST:PORT that is advertised to the other brokers; empty: inter.broker.listener;"
        " if that is every interface, the host of advertised.listeners.",
    ),
    _text(
        "http.security.protocol",
        "What --http speaks. With SASL, /metrics needs a user (Basic) or a token (Bearer), and /healthz and /readyz nothing."
        " Its own settings of TLS and SASL begin with listener.name.http.",
        default=SecurityProtocol.PLAINTEXT,
        allowed=tuple(SecurityProtocol),
    ),
    _text(
        "push.security.protocol",
        "What --push speaks; empty: as the first listener. With SASL a call needs a user or a token in its"
        " metadata. Its own settings of TLS and SASL begin with listener.name.push.",
        allowed=("", *SecurityProtocol),
    ),
)
