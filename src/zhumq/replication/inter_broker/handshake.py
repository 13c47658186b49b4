"""How two brokers make sure of each other: both prove that they know the cluster's secret."""

import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass
from typing import Final

from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.net.channel import Exchange
from zhumq.protocol.messages.replicas import (
    HelloRequest,
    HelloResponse,
    ProofRequest,
    ProofResponse,
)
from zhumq.protocol.peer_api import PEER_PROTOCOL_VERSION, PeerApi

HELLO: Final = PeerApi(HelloRequest, HelloResponse)
PROOF: Final = PeerApi(ProofRequest, ProofResponse)

NONCE_BYTES: Final = 16
SECRET_BYTES_MIN: Final = 16
_FACTS = struct.Struct(">hiqi")  # | version i16 | broker id i32 | broker epoch i64 | to id i32 |
# One side's proof must never serve as the other's.
_CONNECTS: Final = b"connects"
_ACCEPTS: Final = b"accepts"


class PeerNotTrusted(BrokerError):
    """The other side does not know the cluster's secret, or is not who it says."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A broker that has proved who it is."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this broker is, and what it shares with its peers."""

    cluster_id: str
    broker_id: int
    secret: bytes

    def __post_init__(self) -> None:
        if len(self.secret) < SECRET_BYTES_MIN:
            raise ValueError(f"a secret of {len(self.secret)} bytes can be guessed")


class Acceptance:
    """The accepting side of one handshake, between its two requests."""

    def __init__(self, identity: Identity, hello: HelloRequest) -> None:
        self._identity = identity
        self._hello = hello
        self._nonce = secrets.token_bytes(NONCE_BYTES)

    def answer(self) -> HelloResponse:
        """Raises PeerNotTrusted where the other side wants to be elsewhere."""
        hello = self._hello
        if hello.version != PEER_PROTOCOL_VERSION:
            raise PeerNotTrusted(
                f"broker {hello.broker_id} speaks version {hello.version} of the brokers' protocol,"
                f" this one {PEER_PROTOCOL_VERSION}"
            )
        if hello.cluster_id != self._identity.cluster_id:
            raise PeerNotTrusted(f"broker {hello.broker_id} is of another cluster")
        if hello.to_broker_id != self._identity.broker_id:
            raise PeerNotTrusted(
                f"broker {hello.broker_id} looks for broker {hello.to_broker_id},"
                f" this is {self._identity.broker_id}"
            )
        if len(hello.nonce) != NONCE_BYTES or hello.broker_id == self._identity.broker_id:
            raise PeerNotTrusted(f"a greeting of broker {hello.broker_id} that makes no sense")
        proof = _proof(self._identity.secret, _ACCEPTS, hello, self._nonce)
        return HelloResponse(nonce=self._nonce, proof=proof)

    def check(self, request: ProofRequest) -> Peer:
        """Who it is, or PeerNotTrusted."""
        hello = self._hello
        expected = _proof(self._identity.secret, _CONNECTS, hello, self._nonce)
        if not hmac.compare_digest(expected, request.proof):
            raise PeerNotTrusted(
                f"who says to be broker {hello.broker_id} does not know the cluster's secret"
            )
        return Peer(broker_id=hello.broker_id, broker_epoch=hello.broker_epoch)


async def greet(
    exchange: Exchange, identity: Identity, *, broker_epoch: int, to_broker_id: int
) -> None:
    """The connecting side. Raises PeerNotTrusted where the other one is not who it should be."""
    hello = HelloRequest(
        version=PEER_PROTOCOL_VERSION,
        cluster_id=identity.cluster_id,
        broker_id=identity.broker_id,
        broker_epoch=broker_epoch,
        to_broker_id=to_broker_id,
        nonce=secrets.token_bytes(NONCE_BYTES),
    )
    answer = await exchange(HELLO, hello)
    expected = _proof(identity.secret, _ACCEPTS, hello, answer.nonce)
    if not hmac.compare_digest(expected, answer.proof):
        raise PeerNotTrusted(f"broker {to_broker_id} does not know the cluster's secret")
    proof = _proof(identity.secret, _CONNECTS, hello, answer.nonce)
    await exchange(PROOF, ProofRequest(proof=proof))


def _proof(secret: bytes, side: bytes, hello: HelloRequest, nonce: bytes) -> bytes:
    """Covers everything both sides said, each part with a known length."""
    facts = _FACTS.pack(hello.version, hello.broker_id, hello.broker_epoch, hello.to_broker_id)
    cluster = hello.cluster_id.encode()
    parts = (side, facts, hello.nonce, nonce, cluster)
    said = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(secret, said, hashlib.sha256)
