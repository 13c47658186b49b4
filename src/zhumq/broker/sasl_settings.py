"""Settings of authentication with SASL: Kafka's names, and `sasl.oauthbearer.unsecured.allowed`."""

from dataclasses import dataclass
from typing import Final

from zhumq.model.errors import SettingInvalid
from zhumq.model.settings import Setting, Settings, SettingType
from zhumq.security import oauthbearer, plain
from zhumq.security.credential import ScramMechanism

SCRAM_MECHANISMS: Final = {each.sasl_name: each for each in ScramMechanism}
MECHANISMS: Final = (plain.MECHANISM, *SCRAM_MECHANISMS, oauthbearer.MECHANISM)
_HOUR_MS: Final = 3_600_000


def _text(name: str, default: str, documentation: str) -> Setting:
    return Setting(
        name=name,
        type=SettingType.STRING,
        default=default,
        documentation=documentation,
        is_per_listener=True,
    )


SASL_SETTINGS: Final = (
    Setting(
        name="sasl.enabled.mechanisms",
        type=SettingType.LIST,
        default=",".join(SCRAM_MECHANISMS),
        documentation="How clients may authenticate on listeners with SASL. PLAIN and SCRAM check the"
        " users of `zhumq user`, OAUTHBEARER checks signed tokens.",
        allowed=MECHANISMS,
        is_per_listener=True,
    ),
    Setting(
        name="sasl.server.max.receive.size",
        type=SettingType.INT,
        default=str(64 << 10),
        documentation="The largest request that is read from a client before it has authenticated.",
        minimum=1 << 10,
        maximum=1 << 20,
    ),
    Setting(
        name="sasl.authentication.timeout.ms",
        type=SettingType.INT,
        default="30000",
        documentation="A client that has not authenticated after this time is disconnected.",
        minimum=100,
    ),
    Setting(
        name="connections.max.reauth.ms",
        type=SettingType.LONG,
        default="0",
        documentation="How long an authentication lasts; then the client has to authenticate again on"
        " the same connection. 0: as long as the connection, or as the token.",
        minimum=0,
        is_per_listener=True,
    ),
    Setting(
        name="connection.failed.authentication.delay.ms",
        type=SettingType.INT,
        default="100",
        documentation="How long a client waits for the answer that its authentication failed.",
        minimum=0,
        maximum=60_000,
        is_per_listener=True,
    ),
    _text(
        "sasl.oauthbearer.jwks.endpoint.url",
        "",
        "Where the keys that sign tokens are: a file:, http: or https: address of a JWKS.",
    ),
    Setting(
        name="sasl.oauthbearer.jwks.endpoint.refresh.ms",
        type=SettingType.LONG,
        default=str(_HOUR_MS),
        documentation="How long fetched keys are used before they are fetched again.",
        minimum=1_000,
        is_per_listener=True,
    ),
    Setting(
        name="sasl.oauthbearer.expected.audience",
        type=SettingType.LIST,
        default="",
        documentation="Audiences, one of which a token has to be for. Empty: any.",
        is_per_listener=True,
    ),
    _text(
        "sasl.oauthbearer.expected.issuer",
        "",
        "The issuer that a token has to be of. Empty: any whose key is in the JWKS.",
    ),
    Setting(
        name="sasl.oauthbearer.clock.skew.seconds",
        type=SettingType.INT,
        default="30",
        documentation="How far the clock of the tokens' issuer may be off.",
        minimum=0,
        maximum=3_600,
        is_per_listener=True,
    ),
    _text(
        "sasl.oauthbearer.scope.claim.name",
        "scope",
        "The claim with the scopes of a token: a text or a list of texts, if it is there.",
    ),
    _text("sasl.oauthbearer.sub.claim.name", "sub", "The claim with the name of the user."),
    Setting(
        name="sasl.oauthbearer.unsecured.allowed",
        type=SettingType.BOOLEAN,
        default="false",
        documentation="Accept tokens without a signature, which anyone can write. Never in production.",
        is_per_listener=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """Which tokens a listener accepts."""

    jwks_url: str  # empty: none, so only unsecured tokens could be accepted
    refresh_ms: int
    audiences: tuple[str, ...]
    issuer: str
    clock_skew_seconds: int
    scope_claim: str
    user_claim: str
    accepts_unsecured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslConfig:
    """How clients authenticate on one listener."""

    mechanisms: tuple[str, ...]
    reauthentication_ms: int
    failure_delay_ms: int
    tokens: TokenRules | None  # None: without OAUTHBEARER


def sasl_config(settings: Settings) -> SaslConfig:
    """The configuration of a listener with these settings. Raises SettingInvalid."""
    mechanisms = tuple(dict.fromkeys(settings.elements("sasl.enabled.mechanisms")))
    if not mechanisms:
        raise SettingInvalid(
            f"sasl.enabled.mechanisms is empty: give some of {', '.join(MECHANISMS)}"
        )
    tokens = None
    if oauthbearer.MECHANISM in mechanisms:
        tokens = TokenRules(
            jwks_url=settings.text("sasl.oauthbearer.jwks.endpoint.url"),
            refresh_ms=settings.integer("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
            audiences=settings.elements("sasl.oauthbearer.expected.audience"),
            issuer=settings.text("sasl.oauthbearer.expected.issuer"),
            clock_skew_seconds=settings.integer("sasl.oauthbearer.clock.skew.seconds"),
            scope_claim=settings.text("sasl.oauthbearer.scope.claim.name"),
            user_claim=settings.text("sasl.oauthbearer.sub.claim.name"),
            accepts_unsecured=settings.boolean("sasl.oauthbearer.unsecured.allowed"),
        )
        if not tokens.jwks_url and not tokens.accepts_unsecured:
            raise SettingInvalid(
                "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url, where the keys that sign tokens are"
            )
    return SaslConfig(
        mechanisms=mechanisms,
        reauthentication_ms=settings.integer("connections.max.reauth.ms"),
        failure_delay_ms=settings.integer("connection.failed.authentication.delay.ms"),
        tokens=tokens,
    )
