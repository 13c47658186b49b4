"""The check of passwords beside the event loop: what is remembered, what is bounded."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from zhumq.broker import password_check
from zhumq.broker.password_check import PasswordChecker, TooManyChecks
from zhumq.broker.user_credentials import UserCredentials
from zhumq.metadata.security import Credentials
from zhumq.security.credential import ScramMechanism
from zhumq.security.scram import hash_name, salted_password
from zhumq.security.scram_server import credential_of

HOST = "10.0.0.1"


def credentials_of(password: str, *mechanisms: ScramMechanism) -> Credentials:
    return {
        mechanism: credential_of(
            mechanism,
            salted_password(hash_name(mechanism.sasl_name), password, b"salt", 4_096),
            b"salt",
            4_096,
        )
        for mechanism in mechanisms or (ScramMechanism.SHA_256,)
    }


def run(
    users: dict[str, Credentials], scenario: Callable[[PasswordChecker], Awaitable[None]]
) -> None:
    async def whole() -> None:
        checker = PasswordChecker(UserCredentials(lambda: users, b"secret"))
        try:
            await scenario(checker)
        finally:
            checker.close()

    asyncio.run(whole())


@pytest.mark.parametrize(
    "mechanisms", [(ScramMechanism.SHA_256,), (ScramMechanism.SHA_512,), tuple(ScramMechanism)]
)
def test_a_password_is_checked_with_whatever_credential_its_user_has(
    mechanisms: tuple[ScramMechanism, ...],
) -> None:
    async def scenario(checker: PasswordChecker) -> None:
        for _ in range(2):  # then it is remembered
            assert await checker.matches("alice", "right", HOST)
            assert not await checker.matches("alice", "wrong", HOST)
            assert not await checker.matches("unknown", "right", HOST)

    run({"alice": credentials_of("right", *mechanisms)}, scenario)


def test_a_remembered_password_is_checked_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(checker: PasswordChecker) -> None:
        assert await checker.matches("alice", "right", HOST)
        monkeypatch.setattr(password_check, "WAITING_MAX", 0)
        assert await checker.matches("alice", "right", HOST)
        with pytest.raises(TooManyChecks):
            await checker.matches("alice", "wrong", HOST)

    run({"alice": credentials_of("right")}, scenario)


def test_a_remembered_password_is_forgotten_with_its_credential() -> None:
    users = {"alice": credentials_of("old")}

    async def scenario(checker: PasswordChecker) -> None:
        assert await checker.matches("alice", "old", HOST)
        users["alice"] = credentials_of("new")
        assert not await checker.matches("alice", "old", HOST)
        assert await checker.matches("alice", "new", HOST)
        del users["alice"]
        assert not await checker.matches("alice", "new", HOST)

    run(users, scenario)


def test_one_address_does_not_keep_out_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_check, "WAITING_PER_ADDRESS_MAX", 3)

    async def scenario(checker: PasswordChecker) -> None:
        guesses = [checker.matches("alice", f"guess-{each}", "10.6.6.6") for each in range(10)]
        honest = checker.matches("alice", "right", HOST)
        *guessed, is_right = await asyncio.gather(*guesses, honest, return_exceptions=True)
        assert [each for each in guessed if each is False] == [False] * 3
        assert sum(isinstance(each, TooManyChecks) for each in guessed) == 7
        assert is_right is True
        # When they are done, the address may try again.
        assert not await checker.matches("alice", "guess", "10.6.6.6")

    run({"alice": credentials_of("right")}, scenario)


def test_no_more_passwords_are_remembered_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_check, "REMEMBERED_MAX", 1)

    async def scenario(checker: PasswordChecker) -> None:
        assert await checker.matches("alice", "right", HOST)
        assert await checker.matches("bob", "right", HOST)
        monkeypatch.setattr(password_check, "WAITING_MAX", 0)
        assert await checker.matches("bob", "right", HOST)
        with pytest.raises(TooManyChecks):
            await checker.matches("alice", "right", HOST)

    run({"alice": credentials_of("right"), "bob": credentials_of("right")}, scenario)
