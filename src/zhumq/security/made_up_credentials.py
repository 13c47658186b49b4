"""Credentials made up for unknown users, which look like those of the users that exist."""

import hashlib
import hmac
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from zhumq.security.credential import ScramCredential, ScramMechanism
from zhumq.security.scram import hash_name
from zhumq.security.scram_server import ITERATIONS_DEFAULT, SALT_BYTES

_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
_WEIGHT_BYTES: Final = 8


class _Shape(NamedTuple):
    """What a client sees of a credential beside the salt itself."""

    mechanism: ScramMechanism
    iterations: int
    salt_bytes: int
    has_text_salt: bool  # Kafka's tools write salts in base 36


_DEFAULT: Final = _Shape(ScramMechanism.SHA_512, ITERATIONS_DEFAULT, SALT_BYTES, False)


class MadeUpCredentials:
    """Gives every name a credential, always the same one.

    A client that asks for the salt of a name learns nothing: each name has one, on every broker
    and after a restart as before, and as many of them are of each kind as among the real ones.
    """

    def __init__(
        self,
        secret: bytes,
        real: Iterable[tuple[ScramMechanism, ScramCredential]],
        default_mechanism: ScramMechanism = ScramMechanism.SHA_512,
    ) -> None:
        self._secret = secret
        counted = Counter(_shape_of(mechanism, each) for mechanism, each in real)
        self._shapes = sorted(counted.items()) or [
            (_DEFAULT._replace(mechanism=default_mechanism), 1)
        ]
        self._total = sum(counted.values()) or 1

    def of(self, user: str) -> tuple[ScramMechanism, ScramCredential]:
        seed = hmac.digest(self._secret, user.encode(), "sha256")
        shape = self._shape(seed)
        size = hashlib.new(hash_name(shape.mechanism.sasl_name)).digest_size
        stream = hashlib.shake_256(seed).digest(shape.salt_bytes + 2 * size + _WEIGHT_BYTES)
        salt, keys = stream[: shape.salt_bytes], stream[shape.salt_bytes :]
        if shape.has_text_salt:
            salt = bytes(_DIGITS[each % len(_DIGITS)] for each in salt)
        return shape.mechanism, ScramCredential(
            salt=salt,
            iterations=shape.iterations,
            stored_key=keys[:size],
            server_key=keys[size : 2 * size],
        )

    def _shape(self, seed: bytes) -> _Shape:
        """One of the shapes, each as often as it is real. One more user changes it for few names."""
        at = int.from_bytes(seed[:_WEIGHT_BYTES], "big") * self._total >> 8 * _WEIGHT_BYTES
        shapes = iter(self._shapes)
        shape, count = next(shapes)
        while at >= count:
            at -= count
            shape, count = next(shapes)
        return shape


def _shape_of(mechanism: ScramMechanism, credential: ScramCredential) -> _Shape:
    salt = credential.salt
    return _Shape(
        mechanism, credential.iterations, len(salt), all(each in _DIGITS for each in salt)
    )
