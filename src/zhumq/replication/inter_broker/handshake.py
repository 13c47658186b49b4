"""The handshake of two brokers: each proves that it knows the cluster's secret."""

import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass, field
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
# One side's proof must never be valid as the other side's.
_CONNECTS: Final = b"connects"
_ACCEPTS: Final = b"accepts"


class PeerNotTrusted(BrokerError):
    """The other side does not know the cluster's secret, or is not the broker that it claims to be."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """An authenticated broker."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """This broker's id, its cluster, and the cluster's secret."""

    cluster_id: str
    broker_id: int
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) < SECRET_BYTES_MIN:
            raise ValueError(
                f"a cluster secret of {len(self.secret)} bytes can be guessed:"
                f" use at least {SECRET_BYTES_MIN}"
            )


class Acceptance:
    """The accepting side of one handshake, between its two requests."""

    def __init__(self, identity: Identity, hello: HelloRequest) -> None:
        self._identity = identity
        self._hello = hello
        self._nonce = secrets.token_bytes(NONCE_BYTES)

    def answer(self) -> HelloResponse:
        """Answer the hello. Raises PeerNotTrusted if it is meant for another broker or cluster."""
        hello = self._hello
        if hello.version != PEER_PROTOCOL_VERSION:
            raise PeerNotTrusted(
                f"broker {hello.broker_id} speaks version {hello.version} of the brokers' protocol,"
                f" this one {PEER_PROTOCOL_VERSION}"
            )
        if hello.cluster_id != self._identity.cluster_id:
            raise PeerNotTrusted(f"broker {hello.broker_id} belongs to another cluster")
        if hello.to_broker_id != self._identity.broker_id:
            raise PeerNotTrusted(
                f"broker {hello.broker_id} connects to broker {hello.to_broker_id},"
                f" this is broker {self._identity.broker_id}"
            )
        if len(hello.nonce) != NONCE_BYTES or hello.broker_id == self._identity.broker_id:
            raise PeerNotTrusted(f"broker {hello.broker_id} sent an invalid hello request")
        proof = _proof(self._identity.secret, _ACCEPTS, hello, self._nonce)
        return HelloResponse(nonce=self._nonce, proof=proof)

    def check(self, request: ProofRequest) -> Peer:
        """The authenticated peer. Raises PeerNotTrusted if the proof is wrong."""
        hello = self._hello
        expected = _proof(self._identity.secret, _CONNECTS, hello, self._nonce)
        if not hmac.compare_digest(expected, request.proof):
            raise PeerNotTrusted(
                f"a client that claims to be broker {hello.broker_id} does not know the cluster's secret"
            )
        return Peer(broker_id=hello.broker_id, broker_epoch=hello.broker_epoch)


async def greet(
    exchange: Exchange, identity: Identity, *, broker_epoch: int, to_broker_id: int
) -> None:
    """The connecting side of a handshake. Raises PeerNotTrusted if the other side's proof is wrong."""
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
    """An HMAC over everything that both sides sent, each part prefixed by its length."""
    facts = _FACTS.pack(hello.version, hello.broker_id, hello.broker_epoch, hello.to_broker_id)
    cluster = hello.cluster_id.encode()
    parts = (side, facts, hello.nonce, nonce, cluster)
    content = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(secret, content, hashlib.sha256)
