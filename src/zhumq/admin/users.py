"""Users of PLAIN and SCRAM: list, create and delete them, and set their passwords."""

import secrets
from dataclasses import dataclass

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AlreadyExists, NotFound, Refused
from zhumq.model.errors import ErrorCode
from zhumq.model.password import Password


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user, and how it can authenticate beside PLAIN."""

    user: str
    mechanisms: tuple[str, ...]


def list_users(connection: ClusterConnection) -> list[User]:
    """All users by name."""
    # Imported here: most operations do not need the codecs, which take time to load.
    from zhumq.protocol.api import ApiKey  # noqa: PLC0415
    from zhumq.protocol.messages.sasl import DescribeUserScramCredentialsRequest  # noqa: PLC0415

    answer = connection.request(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest(users=None)
    )
    _check("list users", answer.error_code, answer.error_message)
    return sorted(
        (
            User(
                user=each.user,
                mechanisms=tuple(_mechanism_name(info.mechanism) for info in each.credential_infos),
            )
            for each in answer.results
        ),
        key=lambda user: user.user,
    )


def create_user(connection: ClusterConnection, name: str, password: Password) -> None:
    """Create a user that may authenticate with PLAIN and SCRAM."""
    if name in {each.user for each in list_users(connection)}:
        raise AlreadyExists(
            f"there is a user {name!r} already", "set its password with `zhumq user passwd`"
        )
    _set_password(connection, name, password)


def set_password(connection: ClusterConnection, name: str, password: Password) -> None:
    """Set the password of a user. Its open connections stay until they have to authenticate again."""
    _check_exists(connection, name)
    _set_password(connection, name, password)


def delete_user(connection: ClusterConnection, name: str) -> None:
    """Delete a user. Its open connections stay until they have to authenticate again."""
    from zhumq.protocol.api import ApiKey  # noqa: PLC0415
    from zhumq.protocol.messages.sasl import (  # noqa: PLC0415
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
    )
    from zhumq.security.credential import ScramMechanism  # noqa: PLC0415

    user = _check_exists(connection, name)
    # As in Kafka a request changes one credential of a user.
    for mechanism in ScramMechanism:
        if mechanism.sasl_name in user.mechanisms:
            deletion = ScramCredentialDeletion(name=name, mechanism=mechanism)
            answer = connection.request(
                ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
                AlterUserScramCredentialsRequest(deletions=[deletion]),
            )
            for each in answer.results:
                _check(f"delete user {name!r}", each.error_code, each.error_message)


def _set_password(connection: ClusterConnection, name: str, password: Password) -> None:
    from zhumq.protocol.api import ApiKey  # noqa: PLC0415
    from zhumq.protocol.messages.sasl import (  # noqa: PLC0415
        AlterUserScramCredentialsRequest,
        ScramCredentialUpsertion,
    )
    from zhumq.security.credential import ScramMechanism  # noqa: PLC0415
    from zhumq.security.new_user import problem_with, salt_password  # noqa: PLC0415
    from zhumq.security.scram_server import SALT_BYTES  # noqa: PLC0415

    if problem := problem_with(name, password.reveal()):
        raise Refused(f"cannot set the password of {name!r}: {problem}")
    salts = {mechanism: secrets.token_bytes(SALT_BYTES) for mechanism in ScramMechanism}
    for salted in salt_password(password.reveal(), salts):
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=salted.mechanism,
            iterations=salted.iterations,
            salt=salted.salt,
            salted_password=salted.salted,
        )
        answer = connection.request(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            AlterUserScramCredentialsRequest(upsertions=[upsertion]),
        )
        for each in answer.results:
            _check(f"set the password of {name!r}", each.error_code, each.error_message)


def _check_exists(connection: ClusterConnection, name: str) -> User:
    for each in list_users(connection):
        if each.user == name:
            return each
    raise NotFound(f"there is no user {name!r}", "see `zhumq user list`")


def _check(doing: str, error_code: int, message: str | None) -> None:
    if error_code != ErrorCode.NONE:
        name = ErrorCode(error_code).name
        raise Refused(f"cannot {doing}: {message or name}", code=name)


def _mechanism_name(code: int) -> str:
    from zhumq.security.credential import ScramMechanism  # noqa: PLC0415

    known = {int(each): each.sasl_name for each in ScramMechanism}
    return known.get(code, f"mechanism {code}")
