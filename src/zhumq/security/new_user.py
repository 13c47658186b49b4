"""New passwords of users: whether all clients can use them, and the credentials that are made of them."""

from dataclasses import dataclass
from typing import Final

from zhumq.security.credential import ScramMechanism
from zhumq.security.scram import hash_name, salted_password
from zhumq.security.scram_server import ITERATIONS_DEFAULT, is_prepared

NAME_BYTES_MAX: Final = 255  # RFC 4616 lets a server refuse longer ones
PASSWORD_BYTES_MAX: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class SaltedPassword:
    """A password as AlterUserScramCredentials sends it."""

    mechanism: ScramMechanism
    iterations: int
    salt: bytes
    salted: bytes

    def __repr__(self) -> str:
        return f"SaltedPassword({self.mechanism.sasl_name})"  # it is enough to log in


def problem_with(name: str, password: str) -> str | None:
    """Why this cannot be the name and password of a user. None: it can."""
    if not name:
        return "a user needs a name"
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"the name of a user has at most {NAME_BYTES_MAX} bytes"
    if not password:
        return "the password is empty"
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        return f"a password has at most {PASSWORD_BYTES_MAX} bytes"
    for what, text in (("name", name), ("password", password)):
        if not is_prepared(text):
            return (
                f"the {what} has characters that some clients replace before they send them (RFC 4013):"
                " use plain characters, digits and punctuation"
            )
    return None


def salt_password(password: str, salts: dict[ScramMechanism, bytes]) -> list[SaltedPassword]:
    """The password for each mechanism that has a salt here."""
    return [
        SaltedPassword(
            mechanism=mechanism,
            iterations=ITERATIONS_DEFAULT,
            salt=salt,
            salted=salted_password(
                hash_name(mechanism.sasl_name), password, salt, ITERATIONS_DEFAULT
            ),
        )
        for mechanism, salt in salts.items()
    ]
