"""Plans changes of users' SCRAM credentials, with the rules of Kafka's controller. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from zhumq.metadata.security import Credentials, CredentialsChanged, SecurityImage
from zhumq.model.errors import ErrorCode
from zhumq.security.credential import ScramCredential, ScramMechanism
from zhumq.security.new_user import NAME_BYTES_MAX
from zhumq.security.scram_server import ITERATIONS_MAX, ITERATIONS_MIN

SALT_BYTES_MAX: Final = 1_024
# A node of the metadata store has to hold a bucket of users.
USERS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsertion:
    """Create or replace the credential of a user for a mechanism."""

    user: str
    mechanism: int  # as the client gave it
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion(user={self.user!r})"  # a salted password is enough to log in


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """Delete the credential of a user for a mechanism."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialRefused:
    """Why an alteration is refused."""

    code: ErrorCode
    message: str


Alteration = Upsertion | Deletion
_MECHANISMS: Final = frozenset(map(int, ScramMechanism))
_TWICE: Final = CredentialRefused(
    code=ErrorCode.DUPLICATE_RESOURCE,
    message="A user credential cannot be altered twice in the same request",
)


def check_alterations(
    security: SecurityImage, alterations: Iterable[Alteration]
) -> dict[str, CredentialRefused | Alteration]:
    """For each user, in order: the alteration that may be carried out, or why not."""
    checked: dict[str, CredentialRefused | Alteration] = {}
    for each in alterations:
        if each.user not in checked:
            checked[each.user] = _refusal(security, each) or each
        elif not isinstance(checked[each.user], CredentialRefused):
            checked[each.user] = _TWICE
    return checked


def _refusal(security: SecurityImage, alteration: Alteration) -> CredentialRefused | None:
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    name = alteration.user
    if not name:
        return CredentialRefused(code=unacceptable, message="Username must not be empty")
    if alteration.mechanism not in _MECHANISMS:
        return CredentialRefused(
            code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, message="Unknown SCRAM mechanism"
        )
    if isinstance(alteration, Deletion):
        if ScramMechanism(alteration.mechanism) in security.users.get(name, {}):
            return None
        return CredentialRefused(
            code=ErrorCode.RESOURCE_NOT_FOUND,
            message="Attempt to delete a user credential that does not exist",
        )
    if problem := _upsertion_problem(security, alteration):
        return CredentialRefused(code=unacceptable, message=problem)
    return None


def _upsertion_problem(security: SecurityImage, upsertion: Upsertion) -> str:
    if upsertion.iterations < ITERATIONS_MIN:
        return "Too few iterations"
    if upsertion.iterations > ITERATIONS_MAX:
        return "Too many iterations"
    if not upsertion.salt or len(upsertion.salt) > SALT_BYTES_MAX:
        return f"The salt is empty or longer than {SALT_BYTES_MAX} bytes"
    if not upsertion.salted_password:
        return "The salted password is empty"
    if len(upsertion.user.encode()) > NAME_BYTES_MAX or "\0" in upsertion.user:
        return f"Username is longer than {NAME_BYTES_MAX} bytes or has a NUL in it"
    if len(security.users) >= USERS_MAX and upsertion.user not in security.users:
        return f"There are {USERS_MAX} users already"
    return ""


def plan_credentials(
    security: SecurityImage,
    credentials: Mapping[tuple[str, ScramMechanism], ScramCredential | None],
) -> Sequence[CredentialsChanged]:
    """The changes that are missing in the image. None deletes a credential."""
    planned: dict[str, dict[ScramMechanism, ScramCredential]] = {}
    for (user, mechanism), credential in credentials.items():
        held = planned.setdefault(user, dict(security.users.get(user, {})))
        if credential is None:
            held.pop(mechanism, None)
        else:
            held[mechanism] = credential
    return [
        CredentialsChanged(user=user, credentials=held)
        for user, held in planned.items()
        if held != _held(security, user)
    ]


def _held(security: SecurityImage, user: str) -> Credentials:
    return dict(security.users.get(user, {}))
