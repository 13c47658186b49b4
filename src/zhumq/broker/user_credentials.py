"""The SCRAM credentials of users as authentication looks them up, also for users that do not exist."""

from collections.abc import Callable, Mapping
from typing import Final

from zhumq.metadata.security import Credentials
from zhumq.security.credential import ScramCredential, ScramMechanism
from zhumq.security.made_up_credentials import MadeUpCredentials
from zhumq.security.scram_server import FoundCredential

Users = Mapping[str, Credentials]

# A password is checked with the first of these that its user has.
_PREFERRED: Final = (ScramMechanism.SHA_512, ScramMechanism.SHA_256)


class UserCredentials:
    """Finds a credential for every name. Each lookup does the same work, whether the user exists or not."""

    def __init__(self, users: Callable[[], Users], secret: bytes) -> None:
        self._users = users
        self._secret = secret
        self._known: Users = {}
        self._learn({})

    def of_mechanism(self, mechanism: ScramMechanism, user: str) -> FoundCredential:
        """For an exchange with SCRAM."""
        users = self._current()
        _, made_up = self._made_up[mechanism].of(user)
        real = users.get(user, {}).get(mechanism)
        return FoundCredential(credential=real or made_up, is_real=real is not None)

    def of_user(self, user: str) -> tuple[ScramMechanism, FoundCredential]:
        """For the check of a password."""
        users = self._current()
        made_up = self._made_up_for_passwords.of(user)
        real = _preferred(users.get(user, {}))
        mechanism, credential = real or made_up
        return mechanism, FoundCredential(credential=credential, is_real=real is not None)

    def _current(self) -> Users:
        users = self._users()
        if users is not self._known:
            self._learn(users)
        return users

    def _learn(self, users: Users) -> None:
        """The made-up credentials are to look like the real ones."""
        self._known = users
        self._made_up = {
            mechanism: MadeUpCredentials(
                self._secret,
                (
                    (mechanism, credentials[mechanism])
                    for credentials in users.values()
                    if mechanism in credentials
                ),
                mechanism,
            )
            for mechanism in ScramMechanism
        }
        preferred = (_preferred(credentials) for credentials in users.values())
        self._made_up_for_passwords = MadeUpCredentials(
            self._secret, (each for each in preferred if each is not None)
        )


def _preferred(credentials: Credentials) -> tuple[ScramMechanism, ScramCredential] | None:
    for mechanism in _PREFERRED:
        if mechanism in credentials:
            return mechanism, credentials[mechanism]
    return None
