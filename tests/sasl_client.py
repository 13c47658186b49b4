"""A client that authenticates with SASL one step at a time, for tests of what brokers answer."""

import base64
import hashlib
import hmac
from dataclasses import dataclass

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
from zhumq.testing.raw_client import RawClient

USER, PASSWORD = "alice", "alice's secret"
SALT = b"a salt of some bytes"
SECONDS_MAX = 30.0


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
