"""Clients that authenticate with SASL, one frame at a time, and tokens with the keys that sign them."""

import base64
import contextlib
import hashlib
import hmac
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.metadata import MetadataRequest
from zhumq.protocol.messages.sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    ScramCredentialUpsertion,
)
from zhumq.security.credential import ScramMechanism
from zhumq.testing.broker import RunningBroker, broker
from zhumq.testing.raw_client import RawClient

LISTEN = "SASL_PLAINTEXT://127.0.0.1:0"
USER, PASSWORD = "alice", "alice's secret"
ALL = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SALT = b"a salt of some bytes"
SECONDS_MAX = 30.0
AUDIENCE = "zhumq"
ISSUER = "https://issuer.example"


@contextlib.contextmanager
def sasl_broker(
    *, mechanisms: str = ALL, data_dir: Path | None = None, **settings: str
) -> Iterator[RunningBroker]:
    """A broker whose only listener needs SASL. Dots in the names of settings are written as `__`."""
    given = {name.replace("__", "."): value for name, value in settings.items()}
    given["sasl.enabled.mechanisms"] = mechanisms
    with broker(
        data_dir=data_dir, listen=LISTEN, settings=given, admin=(USER, PASSWORD)
    ) as running:
        yield running


class SaslClient(RawClient):
    """Sends one step after the other, in the right order or not."""

    def handshake(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        answer: SaslHandshakeResponse = self.ask(
            ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism), version
        )
        return answer

    def send_token(self, data: bytes, version: int = 2) -> SaslAuthenticateResponse:
        answer: SaslAuthenticateResponse = self.ask(
            ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=data), version
        )
        return answer

    def log_in(
        self, mechanism: str = "SCRAM-SHA-512", user: str = USER, password: str = PASSWORD
    ) -> SaslAuthenticateResponse:
        """The answer to the last message of the exchange."""
        assert self.handshake(mechanism).error_code == 0
        if mechanism == "PLAIN":
            return self.send_token(f"\0{user}\0{password}".encode())
        scram = ScramLogin(mechanism, user, password)
        challenge = self.send_token(scram.first)
        if challenge.error_code:
            return challenge
        return self.send_token(scram.final(bytes(challenge.auth_bytes)))

    def use(self) -> None:
        """Raises ConnectionError unless the broker serves this connection."""
        self.ask(ApiKey.METADATA, MetadataRequest(topics=[]), 9)

    def create_user(self, name: str, password: str) -> None:
        """Create a user, or replace its password, as an authenticated client may."""
        for mechanism in ScramMechanism:
            self.alter_user(mechanism, name, password)

    def alter_user(
        self,
        mechanism: int,
        name: str,
        password: str,
        *,
        salt: bytes = SALT,
        iterations: int = 4_096,
    ) -> AlterUserScramCredentialsResult:
        known = mechanism in tuple(ScramMechanism)
        hash_name = ScramMechanism(mechanism).name.replace("_", "").lower() if known else "sha256"
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, max(iterations, 1))
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism,
            iterations=iterations,
            salt=salt,
            salted_password=salted if password else b"",
        )
        answer: AlterUserScramCredentialsResponse = self.ask(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            AlterUserScramCredentialsRequest(upsertions=[upsertion]),
            0,
        )
        (result,) = answer.results
        return result

    def wait(self, seconds: float) -> None:
        """Return when the broker closes the connection. Raises TimeoutError if it does not."""
        self._socket.settimeout(max(seconds, 0.001))
        try:
            assert not self._socket.recv(1)
        finally:
            self._socket.settimeout(SECONDS_MAX)

    def is_closed(self) -> bool:
        """Whether the broker closes the connection instead of answering, within the time of the client."""
        try:
            self.receive_frame()
        except ConnectionError:
            return True
        return False


@dataclass
class ScramLogin:
    """The client's side of SCRAM, written from the RFC."""

    mechanism: str
    user: str
    password: str
    nonce: str = "fyko-d2lbbFgONRv9qkxdawL"

    @property
    def hash(self) -> str:
        return self.mechanism.removeprefix("SCRAM-").replace("-", "").lower()

    @property
    def first_bare(self) -> str:
        return f"n={self.user.replace('=', '=3D').replace(',', '=2C')},r={self.nonce}"

    @property
    def first(self) -> bytes:
        return f"n,,{self.first_bare}".encode()

    def final(self, challenge: bytes, *, nonce: str | None = None) -> bytes:
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac(
            self.hash, self.password.encode(), base64.b64decode(fields["s"]), int(fields["i"])
        )
        bare = f"c=biws,r={nonce or fields['r']}"
        signed = f"{self.first_bare},{challenge.decode()},{bare}".encode()
        client_key = hmac.digest(salted, b"Client Key", self.hash)
        stored_key = hashlib.new(self.hash, client_key).digest()
        signature = hmac.digest(stored_key, signed, self.hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()


@dataclass
class Issuer:
    """Signs tokens; its public key is in a JWKS file."""

    folder: Path
    key_id: str = "first"
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    @property
    def jwks_path(self) -> Path:
        return self.folder / "jwks.json"

    @property
    def public_pem(self) -> bytes:
        return self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def write_jwks(self) -> None:
        jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        content = {"keys": [{**jwk, "kid": self.key_id, "use": "sig"}]}
        whole = self.jwks_path.with_suffix(".new")
        whole.write_text(json.dumps(content))
        whole.replace(self.jwks_path)

    def claims(self, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        claims = {"sub": USER, "aud": AUDIENCE, "iss": ISSUER, "iat": now, "exp": now + 3_600}
        return {name: value for name, value in (claims | changes).items() if value is not None}

    def token(
        self,
        *,
        key: Any = None,
        algorithm: str = "RS256",
        key_id: str | None = None,
        **changes: Any,
    ) -> str:
        headers = {"kid": self.key_id if key_id is None else key_id}
        return jwt.encode(
            self.claims(**changes), key or self.key, algorithm=algorithm, headers=headers
        )

    @property
    def settings(self) -> Mapping[str, str]:
        return {
            "sasl__oauthbearer__jwks__endpoint__url": self.jwks_path.as_uri(),
            "sasl__oauthbearer__expected__audience": AUDIENCE,
            "sasl__oauthbearer__expected__issuer": ISSUER,
            "sasl__oauthbearer__clock__skew__seconds": "2",
        }


def bearer(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()
