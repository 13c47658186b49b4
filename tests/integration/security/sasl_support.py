"""Brokers whose clients have to authenticate, and tokens with the keys that sign them."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.sasl_client import PASSWORD, USER

from zhumq.testing.broker import RunningBroker, broker

LISTEN = "SASL_PLAINTEXT://127.0.0.1:0"
ALL = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
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
