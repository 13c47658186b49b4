"""Checks passwords beside the event loop: PBKDF2 takes milliseconds. Remembers those that were right."""

import asyncio
import hmac
import os
import secrets
from collections import Counter, OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from zhumq.broker.user_credentials import UserCredentials
from zhumq.security.credential import ScramCredential
from zhumq.security.scram_server import password_matches

WAITING_MAX: Final = 256  # checks in all
WAITING_PER_ADDRESS_MAX: Final = 128  # one address cannot keep out all others
REMEMBERED_MAX: Final = 10_000
_THREADS: Final = 2 if (os.cpu_count() or 1) > 2 else 1  # the event loop needs a core of its own


class TooManyChecks(Exception):
    """So many passwords wait for their check that this one is not checked."""


class PasswordChecker:
    """Checks passwords against the SCRAM credentials of their users."""

    def __init__(self, credentials: UserCredentials) -> None:
        self._credentials = credentials
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="passwords")
        self._waiting: Counter[str] = Counter()  # by address
        self._waiting_in_all = 0
        # Passwords that were right, as keyed digests, with the credential that they were right for.
        # The key is only in memory.
        self._key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, ScramCredential] = OrderedDict()

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def matches(self, user: str, password: str, address: str) -> bool:
        """Whether it is the password of the user. Raises TooManyChecks.

        It takes as long for an unknown user and for a wrong password. A right one that is remembered is
        checked at once, until the user gets another.
        """
        mechanism, found = self._credentials.of_user(user)
        digest = hmac.digest(self._key, f"{user}\0{password}".encode(), "sha256")
        if self._remembered.get(digest) == found.credential:
            self._remembered.move_to_end(digest)
            return True
        if self._waiting_in_all >= WAITING_MAX or self._waiting[address] >= WAITING_PER_ADDRESS_MAX:
            raise TooManyChecks
        self._waiting[address] += 1
        self._waiting_in_all += 1
        try:
            is_right = await asyncio.get_running_loop().run_in_executor(
                self._threads, password_matches, mechanism, found.credential, password
            )
        finally:
            self._waiting_in_all -= 1
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]
        if not (is_right and found.is_real):
            return False
        self._remembered[digest] = found.credential
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        return True
