"""The keys that sign tokens: a JWKS in a file, or fetched from an address beside the event loop."""

import asyncio
import json
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from zhumq.model.errors import SettingInvalid

logger = logging.getLogger(__name__)

JWKS_BYTES_MAX: Final = 1 << 20
FETCH_SECONDS_MAX: Final = 5.0
# After an unknown key id, or a failed fetch, keys are fetched again at most this often.
FETCH_INTERVAL_SECONDS: Final = 10.0
FILE_CHECK_SECONDS: Final = 1.0
RSA_BITS_MIN: Final = 2_048
SETTING: Final = "sasl.oauthbearer.jwks.endpoint.url"
# Only public keys: with a shared key, every broker that checks tokens could write them.
_ALGORITHMS: Final[Mapping[tuple[object, object], tuple[str, ...]]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A public key, and the algorithms that it may be used with."""

    key: Any
    algorithms: Sequence[str]


class KeySource(Protocol):
    """Where keys are."""

    async def find(self, key_id: str | None) -> SigningKey | None:
        """The key with this id; without an id, the only key. None: there is no such key."""


def parse_jwks(content: bytes) -> dict[str, SigningKey]:
    """The usable keys by id. Raises ValueError."""
    import jwt  # noqa: PLC0415 - an extra, which only listeners with OAUTHBEARER need

    keys: dict[str, SigningKey] = {}
    for each in _listed(json.loads(content)):
        algorithms = _algorithms_of(each)
        if not algorithms:
            continue
        try:
            key = jwt.PyJWK(each, algorithms[0]).key
        except (jwt.PyJWTError, ValueError) as reason:
            raise ValueError(f"a key cannot be read: {reason}") from None
        if getattr(key, "key_size", RSA_BITS_MIN) < RSA_BITS_MIN and each["kty"] == "RSA":
            raise ValueError(f"an RSA key has less than {RSA_BITS_MIN} bits")
        keys.setdefault(str(each.get("kid", "")), SigningKey(key=key, algorithms=algorithms))
    if not keys:
        raise ValueError("it has no public key for signatures")
    return keys


def _listed(jwks: Any) -> list[Any]:
    listed = jwks.get("keys") if isinstance(jwks, Mapping) else None
    return listed if isinstance(listed, list) else []


def _algorithms_of(jwk: Any) -> tuple[str, ...]:
    """The algorithms of a key; none if it is not a public key for signatures."""
    if not isinstance(jwk, Mapping) or jwk.get("use", "sig") != "sig":
        return ()
    possible = _ALGORITHMS.get((jwk.get("kty"), jwk.get("crv")), ())
    named = jwk.get("alg")
    return possible if named is None else tuple(each for each in possible if each == named)


def open_key_source(url: str, refresh_ms: int) -> KeySource:
    """The source at a file:, http: or https: address. Raises SettingInvalid."""
    parsed = urllib.parse.urlsplit(url)
    if parsed.scheme == "file":
        return FileKeys(Path(urllib.request.url2pathname(parsed.path)))
    if parsed.scheme in ("http", "https") and parsed.netloc:
        return FetchedKeys(url, refresh_ms / 1000)
    raise SettingInvalid(f"{SETTING}={url!r} is not a file:, http: or https: address")


class FileKeys:
    """Keys in a file, which is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checked_at = time.monotonic()
        try:
            self._version = self._read_version()
            self._keys = parse_jwks(path.read_bytes())
        except OSError as reason:
            raise SettingInvalid(f"{SETTING}: cannot read {path}: {reason.strerror}") from None
        except ValueError as reason:
            raise SettingInvalid(f"{SETTING}: {path} is not a JWKS: {reason}") from None

    async def find(self, key_id: str | None) -> SigningKey | None:
        if time.monotonic() - self._checked_at >= FILE_CHECK_SECONDS:
            self._checked_at = time.monotonic()
            self._read_again()
        return _find(self._keys, key_id)

    def _read_version(self) -> tuple[int, int, int]:
        facts = self._path.stat()
        return facts.st_mtime_ns, facts.st_size, facts.st_ino

    def _read_again(self) -> None:
        try:
            version = self._read_version()
            if version == self._version:
                return
            self._keys = parse_jwks(self._path.read_bytes())
        except (OSError, ValueError) as reason:
            logger.warning(
                "the keys in %s are used as they were read before: %s", self._path, reason
            )
            return
        self._version = version
        logger.info("read %d keys for tokens from %s", len(self._keys), self._path)


class FetchedKeys:
    """Keys from an address, fetched at first use, when they are old, and when a key is not among them."""

    def __init__(self, url: str, refresh_seconds: float) -> None:
        self._url = url
        self._refresh_seconds = refresh_seconds
        self._keys: dict[str, SigningKey] = {}
        self._tried_at = float("-inf")
        self._fetched_at = float("-inf")
        self._fetching = asyncio.Lock()

    async def find(self, key_id: str | None) -> SigningKey | None:
        if time.monotonic() - self._fetched_at >= self._refresh_seconds:
            await self._fetch()
        found = _find(self._keys, key_id)
        if found is None:
            await self._fetch()
            found = _find(self._keys, key_id)
        return found

    async def _fetch(self) -> None:
        async with self._fetching:
            if time.monotonic() - self._tried_at < FETCH_INTERVAL_SECONDS:
                return
            self._tried_at = time.monotonic()
            try:
                self._keys = await asyncio.to_thread(lambda: parse_jwks(_download(self._url)))
            except (OSError, ValueError) as reason:
                logger.warning("cannot fetch the keys for tokens from %s: %s", self._url, reason)
                return
            self._fetched_at = time.monotonic()
            logger.info("fetched %d keys for tokens from %s", len(self._keys), self._url)


def _download(url: str) -> bytes:
    # The operator's address, with a scheme that was checked.
    with urllib.request.urlopen(url, timeout=FETCH_SECONDS_MAX) as answer:  # noqa: S310
        content: bytes = answer.read(JWKS_BYTES_MAX + 1)
    if len(content) > JWKS_BYTES_MAX:
        raise ValueError(f"it is larger than {JWKS_BYTES_MAX} bytes")
    return content


def _find(keys: Mapping[str, SigningKey], key_id: str | None) -> SigningKey | None:
    if key_id is not None:
        return keys.get(key_id)
    return next(iter(keys.values())) if len(keys) == 1 else None
