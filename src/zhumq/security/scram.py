"""The keys that SCRAM (RFC 5802) makes of a password. Pure."""

import hashlib
import hmac
from typing import Final

NONCE_BYTES: Final = 24  # of randomness on each side


def hash_name(mechanism: str) -> str:
    """The hash function of `SCRAM-SHA-256` or `SCRAM-SHA-512`, by hashlib's name."""
    return {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]


def salted_password(hash_function: str, password: str, salt: bytes, iterations: int) -> bytes:
    # As in Kafka and librdkafka, the password is UTF-8 without SASLprep: their credentials would not match.
    return hashlib.pbkdf2_hmac(hash_function, password.encode(), salt, iterations)


def client_key(hash_function: str, salted: bytes) -> bytes:
    return keyed_hash(hash_function, salted, b"Client Key")


def stored_key(hash_function: str, key: bytes) -> bytes:
    return hashlib.new(hash_function, key).digest()


def server_key(hash_function: str, salted: bytes) -> bytes:
    return keyed_hash(hash_function, salted, b"Server Key")


def keyed_hash(hash_function: str, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, hash_function)


def xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
