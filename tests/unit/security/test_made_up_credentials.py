"""Credentials of users that do not exist: stable, and of the same kinds as the real ones."""

from hypothesis import given
from hypothesis import strategies as st

from zhumq.security.credential import ScramCredential, ScramMechanism
from zhumq.security.made_up_credentials import MadeUpCredentials

SECRET = b"the secret of the cluster"
NAMES = [f"user-{number}" for number in range(2_000)]


def real(salt: bytes, iterations: int = 8_192) -> tuple[ScramMechanism, ScramCredential]:
    credential = ScramCredential(
        salt=salt, iterations=iterations, stored_key=b"s" * 32, server_key=b"v" * 32
    )
    return ScramMechanism.SHA_256, credential


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_name_always_has_the_same_credential(name: str) -> None:
    one, other = MadeUpCredentials(SECRET, []), MadeUpCredentials(SECRET, [])
    assert one.of(name) == other.of(name)


def test_names_and_secrets_lead_to_different_salts() -> None:
    made_up = MadeUpCredentials(SECRET, [])
    assert len({made_up.of(name)[1].salt for name in NAMES}) == len(NAMES)
    other = MadeUpCredentials(b"another secret", [])
    assert made_up.of("alice")[1].salt != other.of("alice")[1].salt


def test_each_kind_of_salt_is_as_frequent_as_among_the_real_ones() -> None:
    # As Kafka's tools make them, mixed with ours.
    text_salts = [real(b"1f3x5nqz0m8c2kd7v4b9t6hjs", 4_096) for _ in range(30)]
    made_up = MadeUpCredentials(SECRET, [*text_salts, *(real(bytes(range(32))) for _ in range(70))])
    found = [made_up.of(name)[1] for name in NAMES]
    of_text = [each for each in found if each.iterations == 4_096]
    assert all(len(each.salt) == 25 and each.salt.isalnum() for each in of_text)
    assert all(len(each.salt) == 32 for each in found if each.iterations == 8_192)
    assert 0.25 < len(of_text) / len(found) < 0.35


def test_one_more_user_changes_the_credentials_of_few_names() -> None:
    users = [*(real(b"text", 4_096) for _ in range(50)), *(real(bytes(32)) for _ in range(50))]
    before = MadeUpCredentials(SECRET, users)
    after = MadeUpCredentials(SECRET, [*users, real(bytes(32))])
    changed = sum(before.of(name) != after.of(name) for name in NAMES)
    assert changed < len(NAMES) * 0.03
