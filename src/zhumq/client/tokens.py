"""Tokens of OAUTHBEARER: given, from a file, from an endpoint with client credentials, or unsecured ones for tests."""

import base64
import binascii
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from zhumq.client.errors import SecurityFailed
from zhumq.client.security import TokenSource
from zhumq.model.password import Password

ENDPOINT_SECONDS_MAX: Final = 10.0
ANSWER_BYTES_MAX: Final = 256 * 1024
LIFETIME_SECONDS_DEFAULT: Final = 300.0  # of a token that does not say when it expires


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token, and when it expires, in seconds since 1970."""

    text: Password
    expires_at: float
    subject: str


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the client's secret goes to the configured endpoint only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def get_token(source: TokenSource) -> Token:
    """A token that is valid now. Blocks while an endpoint answers. Raises SecurityFailed."""
    if source.text:
        return _token_of(source.text.reveal(), "the token")
    if source.file:
        return _token_of(_from_file(source.file), source.file)
    if source.endpoint:
        return _token_of(_from_endpoint(source), source.endpoint)
    now = int(time.time())
    claims = {"sub": source.unsecured_subject, "iat": now, "exp": now + source.unsecured_seconds}
    parts = ({"alg": "none"}, claims)
    text = ".".join(_encoded(part) for part in parts) + "."
    return _token_of(text, "the unsecured token")


def _from_file(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(ANSWER_BYTES_MAX).decode().strip()
    except OSError as error:
        raise SecurityFailed(f"cannot read the token in {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SecurityFailed(f"{path} holds no token: it is not text") from None


def _from_endpoint(source: TokenSource) -> str:
    credentials = f"{_quoted(source.client_id)}:{_quoted(source.client_secret.reveal())}"
    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    request = urllib.request.Request(  # noqa: S310 - the settings allow http and https only
        source.endpoint,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        },
    )
    failed = f"the token endpoint {source.endpoint}"
    try:
        context = ssl.create_default_context(cafile=source.ca_location or None)
        opener = urllib.request.build_opener(
            _NoRedirect, urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(request, timeout=ENDPOINT_SECONDS_MAX) as answer:
            content = json.loads(answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        error.close()
        raise SecurityFailed(
            f"{failed} answered {error.code}: check the client's id and secret"
        ) from None
    except urllib.error.URLError as error:
        raise SecurityFailed(f"{failed} cannot be reached: {error.reason}") from None
    except OSError as error:
        raise SecurityFailed(f"{failed} cannot be reached: {error}") from None
    except ValueError:
        raise SecurityFailed(f"{failed} did not answer with JSON") from None
    text = content.get("access_token") if isinstance(content, dict) else None
    if not isinstance(text, str):
        raise SecurityFailed(f"{failed} answered without access_token")
    return text


def _token_of(text: str, origin: str) -> Token:
    """The token with what it says of itself. Only the broker checks it."""
    if not text or any(each.isspace() or not each.isprintable() for each in text):
        raise SecurityFailed(f"{origin} holds no token")
    claims = _claims(text)
    expiry, subject = claims.get("exp"), claims.get("sub")
    if not isinstance(expiry, int | float) or isinstance(expiry, bool):
        expiry = time.time() + LIFETIME_SECONDS_DEFAULT
    return Token(
        text=Password(text),
        expires_at=float(expiry),
        subject=subject if isinstance(subject, str) else "",
    )


def _claims(text: str) -> dict[str, Any]:
    parts = text.split(".")
    if len(parts) != 3:
        return {}  # an opaque token, which the broker may know
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}


def _encoded(part: dict[str, Any]) -> str:
    text = json.dumps(part, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def _quoted(text: str) -> str:
    """RFC 6749, 2.3.1: the id and the secret are form-encoded before Basic encodes them."""
    return urllib.parse.quote_plus(text)
