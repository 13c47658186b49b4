"""Whose credentials a request has: HTTP's Basic and Bearer, as the security settings of a client of the brokers."""

import base64
import binascii
from dataclasses import dataclass, replace
from http import HTTPStatus
from os import PathLike
from typing import Final

from zhumq.client.errors import SecurityInvalid
from zhumq.client.security import (
    MECHANISMS,
    OAUTHBEARER,
    PLAINTEXT,
    ClientSecurity,
    TokenSource,
    read_properties,
)
from zhumq.model.password import Password
from zhumq.model.security_protocol import SecurityProtocol
from zhumq.web.problems import RequestRefused

CREDENTIALS_CHARACTERS_MAX: Final = 8 * 1024
_MECHANISM: Final = "sasl.mechanism"
CHALLENGE: Final = 'Basic realm="zhumq", charset="UTF-8", Bearer realm="zhumq"'
# Browsers ask for a password by themselves where Basic is offered, and a page that asks in the background has its own form.
_CHALLENGE_OF_A_PAGE: Final = 'Bearer realm="zhumq"'


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSecurity:
    """How this process reaches the brokers. It has no credentials of its own: each caller brings theirs."""

    connection: ClientSecurity = PLAINTEXT  # the protocol without SASL, and whom to trust
    mechanism: str = ""  # of users with a password; empty: the listener is without SASL

    @staticmethod
    def read(path: str | PathLike[str]) -> "BrokerSecurity":
        """The settings of a properties file. Raises SecurityInvalid, also if the file has credentials."""
        settings = read_properties(path)
        name = settings.pop("security.protocol", SecurityProtocol.PLAINTEXT).strip().upper()
        try:
            protocol = SecurityProtocol(name)
        except ValueError:
            raise SecurityInvalid(
                f"{path}: security.protocol is one of {', '.join(SecurityProtocol)}, not {name!r}"
            ) from None
        mechanism = settings.pop(_MECHANISM, settings.pop("sasl.mechanisms", "")).strip().upper()
        own = sorted(each for each in settings if each.startswith("sasl."))
        if own:
            raise SecurityInvalid(
                f"{path}: {own[0]} would give its rights to every caller: leave it out, callers bring"
                " their own credentials"
            )
        if protocol.uses_sasl and mechanism not in MECHANISMS:
            raise SecurityInvalid(f"{path}: {_MECHANISM} is one of {', '.join(MECHANISMS)}")
        settings["security.protocol"] = "SSL" if protocol.uses_tls else "PLAINTEXT"
        connection = ClientSecurity.of(settings, origin=str(path))
        if connection.key_store and not protocol.uses_sasl:
            raise SecurityInvalid(
                f"{path}: the client certificate would give its rights to every caller: connect to a"
                " listener with SASL"
            )
        return BrokerSecurity(
            connection=connection, mechanism=mechanism if protocol.uses_sasl else ""
        )

    @property
    def needs_login(self) -> bool:
        return bool(self.mechanism)

    def of_user(self, name: str, password: str) -> ClientSecurity:
        """The settings of a client with this user. Raises RequestRefused."""
        if self.mechanism == OAUTHBEARER:
            raise refused("the brokers take tokens only: send `Authorization: Bearer TOKEN`")
        if not name or not password or "\0" in name + password:
            raise refused("a user and a password are needed")
        return replace(
            self.connection,
            protocol=self._protocol(),
            mechanism=self.mechanism,
            username=name,
            password=Password(password),
        )

    def of_token(self, token: str) -> ClientSecurity:
        """The settings of a client with this token, which its broker checks."""
        return replace(
            self.connection,
            protocol=self._protocol(),
            mechanism=OAUTHBEARER,
            tokens=TokenSource(text=Password(token)),
        )

    def of_header(self, header: str) -> ClientSecurity:
        """The settings of the caller with this `Authorization` header. Raises RequestRefused."""
        scheme, _, rest = header.strip().partition(" ")
        rest = rest.strip()
        if len(rest) > CREDENTIALS_CHARACTERS_MAX:
            raise refused("the Authorization header is too long")
        match scheme.lower():
            case "basic":
                name, colon, password = _decoded(rest).partition(":")
                if not colon:
                    raise refused("the Authorization header is no base64 of USER:PASSWORD")
                return self.of_user(name, password)
            case "bearer" if rest:
                return self.of_token(rest)
            case _:
                raise refused("the Authorization header is neither Basic nor Bearer")

    def _protocol(self) -> SecurityProtocol:
        uses_tls = self.connection.protocol.uses_tls
        return SecurityProtocol.SASL_SSL if uses_tls else SecurityProtocol.SASL_PLAINTEXT


WITHOUT_SASL: Final = BrokerSecurity()


def refused(detail: str, *, is_page: bool = False) -> RequestRefused:
    """The answer to a caller who is not authenticated."""
    challenge = _CHALLENGE_OF_A_PAGE if is_page else CHALLENGE
    return RequestRefused(
        HTTPStatus.UNAUTHORIZED,
        "Not authenticated",
        detail,
        headers={"WWW-Authenticate": challenge},
    )


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):  # UnicodeDecodeError is one
        raise refused("the Authorization header is no base64 of USER:PASSWORD in UTF-8") from None
