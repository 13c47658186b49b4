"""SCRAM credentials of users, and the entities that client quotas apply to."""

from dataclasses import dataclass
from enum import IntEnum


class ScramMechanism(IntEnum):
    """The SCRAM mechanisms, with the codes of AlterUserScramCredentials."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        return f"SCRAM-{self.name.replace('_', '-')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """What RFC 5802 stores of a password: enough to check a proof, not to log in."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"  # no keys in logs


# Pairs of a type (user, client-id, ip) and a name, ordered by type. Without a name: the default of the type.
QuotaEntity = tuple[tuple[str, str | None], ...]
