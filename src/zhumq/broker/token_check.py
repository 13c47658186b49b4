"""Checks JSON web tokens: signature, issuer, audience and times. Needs PyJWT."""

from typing import Any, Final

from zhumq.broker.sasl_settings import TokenRules
from zhumq.broker.signing_keys import KeySource, open_key_source
from zhumq.model.errors import SettingInvalid
from zhumq.security.exchange import Accepted

_UNSECURED: Final = "none"


class TokenRefused(Exception):
    """A token is not accepted; the message is for the log."""


class TokenChecker:
    """Checks tokens by the rules of one listener."""

    def __init__(self, rules: TokenRules) -> None:
        try:
            import jwt  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            raise SettingInvalid("OAUTHBEARER needs PyJWT: pip install 'zhumq[security]'") from None
        self._jwt = jwt
        self._rules = rules
        self._keys: KeySource | None = None
        if rules.jwks_url:
            self._keys = open_key_source(rules.jwks_url, rules.refresh_ms)

    async def check(self, token: str) -> Accepted:
        """The user that the token is about. Raises TokenRefused."""
        try:
            header = self._jwt.get_unverified_header(token)
            if header.get("alg") == _UNSECURED:
                claims = self._unsecured_claims(token)
            else:
                claims = await self._signed_claims(token, header.get("kid"))
        except self._jwt.PyJWTError as reason:
            raise TokenRefused(f"{type(reason).__name__}: {reason}") from None
        return self._user_of(claims)

    async def _signed_claims(self, token: str, key_id: Any) -> dict[str, Any]:
        if key_id is not None and not isinstance(key_id, str):
            raise TokenRefused("its key id is not a text")
        found = await self._keys.find(key_id) if self._keys is not None else None
        if found is None:
            raise TokenRefused(f"there is no key {key_id!r}")
        return self._claims(token, found.key, list(found.algorithms), is_signed=True)

    def _unsecured_claims(self, token: str) -> dict[str, Any]:
        if not self._rules.accepts_unsecured:
            raise TokenRefused("it is not signed")
        if not token.endswith("."):
            raise TokenRefused("it has a signature, and no algorithm")
        return self._claims(token, "", [_UNSECURED], is_signed=False)

    def _claims(
        self, token: str, key: Any, algorithms: list[str], *, is_signed: bool
    ) -> dict[str, Any]:
        rules = self._rules
        claims: dict[str, Any] = self._jwt.decode(
            token,
            key=key,
            algorithms=algorithms,
            audience=rules.audiences or None,
            issuer=rules.issuer or None,
            leeway=rules.clock_skew_seconds,
            options={
                "require": ["exp", rules.user_claim],
                "verify_signature": is_signed,
                "verify_exp": True,
                "verify_nbf": True,
                "verify_iat": True,
                "verify_aud": bool(rules.audiences),
                "verify_iss": bool(rules.issuer),
            },
        )
        return claims

    def _user_of(self, claims: dict[str, Any]) -> Accepted:
        user = claims[self._rules.user_claim]
        if not isinstance(user, str) or not user:
            raise TokenRefused("its user is not a text")
        scopes = claims.get(self._rules.scope_claim, "")
        if not isinstance(scopes, str) and not (
            isinstance(scopes, list) and all(isinstance(each, str) for each in scopes)
        ):
            raise TokenRefused("its scopes are neither a text nor a list of texts")
        return Accepted(user=user, expires_at_ms=int(claims["exp"]) * 1000)
