"""The security settings of a client, with Kafka's names: read from properties, checked before any connection."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from zhumq.client.errors import SecurityInvalid
from zhumq.client.jaas import LoginModule, parse_jaas
from zhumq.host.references import SystemReferences
from zhumq.model.errors import SettingInvalid
from zhumq.model.password import Password
from zhumq.model.properties import parse_properties
from zhumq.model.secret_references import ReferenceSources, resolve_references
from zhumq.model.security_protocol import SecurityProtocol

logger = logging.getLogger("zhumq.client")

FILE_BYTES_MAX: Final = 1024 * 1024
PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER)
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")  # JKS is Kafka's default; the file's content decides
UNSECURED_SECONDS_DEFAULT: Final = 3600
EXTENSION_PREFIX: Final = "extension_"
_NO_PASSWORD: Final = Password("")
# Settings of other clients that change nothing here: TLS 1.2 and 1.3 are on, and tokens have one source.
_WITHOUT_EFFECT: Final = frozenset(
    {
        "sasl.login.callback.handler.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.method",
        "ssl.enabled.protocols",
        "ssl.protocol",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustStore:
    """The CAs that a client trusts: a file, or PEM text. Neither: those of the system."""

    location: str = ""
    certificates: str = ""
    password: Password = _NO_PASSWORD


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStore:
    """The certificate of a client and its key: in one file, in two, or as PEM text. None is given: no certificate."""

    location: str = ""  # PKCS#12, or PEM with the key and the chain, or PEM with the chain alone
    key_location: str = ""  # PEM
    chain: str = ""
    key: Password = _NO_PASSWORD
    password: Password = _NO_PASSWORD  # of the PKCS#12 file
    key_password: Password = _NO_PASSWORD

    def __bool__(self) -> bool:
        return bool(self.location or self.chain)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSource:
    """Where the tokens of OAUTHBEARER come from: one that the program has, a file, an endpoint, or unsecured ones for a
    test."""

    text: Password = _NO_PASSWORD  # the token itself, which lasts as long as it says
    file: str = ""
    endpoint: str = ""
    client_id: str = ""
    client_secret: Password = _NO_PASSWORD
    scope: str = ""
    ca_location: str = ""  # of the endpoint
    unsecured_subject: str = ""
    unsecured_seconds: int = UNSECURED_SECONDS_DEFAULT
    extensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """How a client secures its connections. `of` takes Kafka's settings, `read` a properties file.

    >>> from zhumq import ClientSecurity
    >>> ClientSecurity.of({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
    ...                    "sasl.username": "alice", "sasl.password": "wonderland"}).username
    'alice'
    """

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    mechanism: str = ""  # empty unless the protocol is a SASL one
    username: str = ""
    password: Password = _NO_PASSWORD
    tokens: TokenSource | None = None
    trust_store: TrustStore = field(default_factory=TrustStore)
    key_store: KeyStore = field(default_factory=KeyStore)
    checks_host: bool = True

    @staticmethod
    def of(
        settings: Mapping[str, str],
        *,
        origin: str = "security",
        sources: ReferenceSources | None = None,
    ) -> "ClientSecurity":
        """The security of these settings, with `${env:NAME}` and `${file:PATH}` replaced. Raises SecurityInvalid.

        Names that are no security settings have no effect; a warning names them. `origin` begins the errors.
        """
        try:
            resolved = resolve_references(settings, sources or SystemReferences())
        except SettingInvalid as error:
            raise SecurityInvalid(f"{origin}: {error}") from None
        for warning in resolved.warnings:
            logger.warning("%s: %s", origin, warning)
        given = _Given(resolved.texts, origin)
        protocol = given.protocol()
        security = ClientSecurity(protocol=protocol)
        if protocol.uses_sasl:
            security = _with_sasl(given, protocol)
        if protocol.uses_tls:
            security = _with_tls(security, given)
        given.warn_of_rest(protocol)
        return security

    @staticmethod
    def read(path: str | PathLike[str]) -> "ClientSecurity":
        """The security of a properties file, such as Kafka's client.properties. Raises SecurityInvalid."""
        return ClientSecurity.of(read_properties(path), origin=str(path))


PLAINTEXT: Final = ClientSecurity()
Security = ClientSecurity | Mapping[str, str] | None


def as_security(given: Security) -> ClientSecurity:
    """The value of a `security` argument: settings with Kafka's names, or a ClientSecurity; None is plain text."""
    if given is None:
        return PLAINTEXT
    return given if isinstance(given, ClientSecurity) else ClientSecurity.of(given)


def read_properties(path: str | PathLike[str]) -> dict[str, str]:
    """The settings of a properties file, with references as they are written. Raises SecurityInvalid."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SecurityInvalid(f"cannot read {path}: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise SecurityInvalid(f"{path} is no properties file: it has more than 1 MiB")
    try:
        return parse_properties(content.decode())
    except ValueError as error:  # UnicodeDecodeError is one; its text has bytes of the file
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
        raise SecurityInvalid(f"{path} is no properties file: {reason}") from None


class _Given:
    """The settings of a client. Remembers which were looked at: the others have no effect."""

    def __init__(self, values: Mapping[str, str], origin: str) -> None:
        self._values = values
        self._origin = origin
        self._used: set[str] = set()

    def wrong(self, message: str) -> SecurityInvalid:
        return SecurityInvalid(f"{self._origin}: {message}")

    def text(self, *names: str) -> str:
        """The value of the first of these names that is given; they mean the same. Empty: none is."""
        self._used.update(names)
        return next((value for name in names if (value := self._values.get(name, "").strip())), "")

    def text_or_none(self, name: str) -> str | None:
        """The value of a setting whose empty value differs from none."""
        self._used.add(name)
        value = self._values.get(name)
        return None if value is None else value.strip()

    def secret(self, *names: str) -> Password:
        """As `text`, for a value that is never shown, and of which no blanks are dropped."""
        self._used.update(names)
        return Password(next((self._values[name] for name in names if self._values.get(name)), ""))

    def protocol(self) -> SecurityProtocol:
        text = self.text("security.protocol") or SecurityProtocol.PLAINTEXT
        try:
            return SecurityProtocol(text.upper())
        except ValueError:
            known = ", ".join(SecurityProtocol)
            raise self.wrong(f"security.protocol is one of {known}, not {text!r}") from None

    def jaas(self) -> LoginModule | None:
        text = self.secret("sasl.jaas.config").reveal()
        if not text.strip():
            return None
        try:
            return parse_jaas(text)
        except ValueError as error:
            raise self.wrong(f"sasl.jaas.config: {error}") from None

    def warn_of_rest(self, protocol: SecurityProtocol) -> None:
        rest = sorted(self._values.keys() - self._used - _WITHOUT_EFFECT)
        if rest:
            logger.warning(
                "%s: without effect with security.protocol=%s: %s",
                self._origin,
                protocol,
                ", ".join(rest),
            )


def _with_sasl(given: _Given, protocol: SecurityProtocol) -> ClientSecurity:
    mechanism = given.text("sasl.mechanism", "sasl.mechanisms").upper()
    jaas = given.jaas()
    if mechanism not in MECHANISMS:
        asked = f"not {mechanism!r}" if mechanism else "and is not set"
        raise given.wrong(f"sasl.mechanism is one of {', '.join(MECHANISMS)}, {asked}")
    if jaas is not None:
        _check_module(given, mechanism, jaas)
    options = jaas.options if jaas is not None else {}
    if mechanism == OAUTHBEARER:
        return ClientSecurity(
            protocol=protocol, mechanism=mechanism, tokens=_token_source(given, options)
        )
    own_username, own_password = given.text("sasl.username"), given.secret("sasl.password")
    username = options.get("username") or own_username
    password = Password(options.get("password", "")) or own_password
    if not username or not password:
        raise given.wrong(
            f"{mechanism} needs a user and a password: set sasl.jaas.config, or sasl.username and"
            " sasl.password"
        )
    if mechanism == PLAIN and "\0" in f"{username}{password.reveal()}":
        raise given.wrong("PLAIN cannot send a zero byte in a user or a password")
    return ClientSecurity(
        protocol=protocol, mechanism=mechanism, username=username, password=password
    )


def _check_module(given: _Given, mechanism: str, jaas: LoginModule) -> None:
    family = mechanism.partition("-")[0]
    expected = {
        "PLAIN": "PlainLoginModule",
        "SCRAM": "ScramLoginModule",
        OAUTHBEARER: "OAuthBearerLoginModule",
    }[family]
    if jaas.name != expected:
        raise given.wrong(
            f"sasl.jaas.config names {jaas.name}, and sasl.mechanism={mechanism} needs {expected}"
        )


def _token_source(given: _Given, options: Mapping[str, str]) -> TokenSource:
    endpoint = given.text("sasl.oauthbearer.token.endpoint.url")
    extensions = {
        name.removeprefix(EXTENSION_PREFIX): value
        for name, value in options.items()
        if name.startswith(EXTENSION_PREFIX)
    }
    for pair in filter(None, given.text("sasl.oauthbearer.extensions").split(",")):
        name, equals, value = pair.strip().partition("=")
        if not equals:
            raise given.wrong("sasl.oauthbearer.extensions is NAME=VALUE,NAME=VALUE")
        extensions[name] = value
    shared = tuple(sorted(extensions.items()))
    address = urlsplit(endpoint)
    if address.scheme == "file":
        return TokenSource(file=address.path, extensions=shared)
    client_id = options.get("clientId", "") or given.text(
        "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id"
    )
    client_secret = Password(options.get("clientSecret", "")) or given.secret(
        "sasl.oauthbearer.client.credentials.client.secret", "sasl.oauthbearer.client.secret"
    )
    scope = options.get("scope", "") or given.text("sasl.oauthbearer.scope")
    if address.scheme in ("http", "https") and address.hostname:
        if not client_id or not client_secret:
            raise given.wrong(
                "sasl.oauthbearer.token.endpoint.url needs sasl.oauthbearer.client.credentials.client.id"
                " and sasl.oauthbearer.client.credentials.client.secret"
            )
        return TokenSource(
            endpoint=endpoint,
            client_id=client_id,
            client_secret=client_secret,
            scope=scope,
            ca_location=given.text("https.ca.location"),
            extensions=shared,
        )
    subject = options.get("unsecuredLoginStringClaim_sub", "")
    if not endpoint and subject:
        seconds = options.get("unsecuredLoginLifetimeSeconds", str(UNSECURED_SECONDS_DEFAULT))
        if not (seconds.isascii() and seconds.isdecimal() and int(seconds)):
            raise given.wrong("unsecuredLoginLifetimeSeconds is a whole number above 0")
        return TokenSource(
            unsecured_subject=subject, unsecured_seconds=int(seconds), extensions=shared
        )
    raise given.wrong(
        "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url: https://HOST/PATH, or file:///PATH of a"
        " file with a token"
    )


def _with_tls(security: ClientSecurity, given: _Given) -> ClientSecurity:
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        if (given.text(name).upper() or "PEM") not in STORE_TYPES:
            raise given.wrong(
                f"{name} is one of {', '.join(STORE_TYPES)}, not {given.text(name)!r}"
            )
    algorithm = given.text_or_none("ssl.endpoint.identification.algorithm")
    if algorithm is not None and algorithm.lower() not in ("", "none", "https"):
        raise given.wrong(
            "ssl.endpoint.identification.algorithm is https, or none to leave the host unchecked"
        )
    trust_store = TrustStore(
        location=given.text("ssl.truststore.location", "ssl.ca.location"),
        certificates=given.text("ssl.truststore.certificates", "ssl.ca.pem"),
        password=given.secret("ssl.truststore.password"),
    )
    key_store = KeyStore(
        location=given.text("ssl.keystore.location", "ssl.certificate.location"),
        key_location=given.text("ssl.key.location"),
        chain=given.text("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
        key=given.secret("ssl.keystore.key", "ssl.key.pem"),
        password=given.secret("ssl.keystore.password"),
        key_password=given.secret("ssl.key.password"),
    )
    if key_store.chain and not key_store.key:
        raise given.wrong("ssl.keystore.certificate.chain needs ssl.keystore.key")
    if key_store.key_location and not key_store.location:
        raise given.wrong("ssl.key.location needs ssl.certificate.location")
    return replace(
        security,
        trust_store=trust_store,
        key_store=key_store,
        # As in Kafka, an empty value turns the check off.
        checks_host=algorithm is None or algorithm.lower() == "https",
    )
