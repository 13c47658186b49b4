"""Alterations of users' credentials: which are refused, and which changes of the image the others lead to."""

from hypothesis import given
from hypothesis import strategies as st

from zhumq.metadata.security import SecurityImage, apply_security_changes
from zhumq.metadata.users import (
    CredentialRefused,
    Deletion,
    Upsertion,
    check_alterations,
    plan_credentials,
)
from zhumq.model.errors import ErrorCode
from zhumq.security.credential import ScramCredential, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


def credential(number: int = 0) -> ScramCredential:
    return ScramCredential(
        salt=b"%d" % number, iterations=4_096, stored_key=b"stored", server_key=b"server"
    )


def upsertion(user: str, mechanism: int = SHA_256) -> Upsertion:
    return Upsertion(
        user=user, mechanism=mechanism, iterations=4_096, salt=b"salt", salted_password=b"salted"
    )


USERS = SecurityImage(users={"alice": {SHA_256: credential(), SHA_512: credential()}})


def test_what_is_refused_for_one_user_does_not_refuse_others() -> None:
    asked = [
        Deletion(user="alice", mechanism=SHA_256),
        Deletion(user="bob", mechanism=SHA_256),
        upsertion("carol"),
        upsertion("", SHA_256),
        upsertion("dave", 7),
    ]
    checked = check_alterations(USERS, asked)
    assert checked["alice"] == asked[0]
    assert checked["carol"] == asked[2]
    refused = {
        user: each.code for user, each in checked.items() if isinstance(each, CredentialRefused)
    }
    assert refused == {
        "bob": ErrorCode.RESOURCE_NOT_FOUND,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "dave": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    }


def test_the_first_refusal_of_a_user_stays() -> None:
    checked = check_alterations(USERS, [Deletion(user="bob", mechanism=SHA_256), upsertion("bob")])
    refused = checked["bob"]
    assert isinstance(refused, CredentialRefused)
    assert refused.code is ErrorCode.RESOURCE_NOT_FOUND


def test_a_salted_password_is_not_in_the_text_form_of_an_alteration() -> None:
    assert "salted" not in repr(upsertion("alice"))


def test_a_credential_of_one_mechanism_leaves_that_of_the_other() -> None:
    (change,) = plan_credentials(USERS, {("alice", SHA_256): credential(1)})
    assert change.credentials == {SHA_256: credential(1), SHA_512: credential()}


credentials = st.dictionaries(
    st.tuples(st.sampled_from(["alice", "bob", "carol"]), st.sampled_from(ScramMechanism)),
    st.none() | st.integers(0, 3).map(credential),
)


@given(credentials)
def test_the_planned_changes_lead_to_an_image_without_anything_left_to_change(
    asked: dict[tuple[str, ScramMechanism], ScramCredential | None],
) -> None:
    after = apply_security_changes(USERS, plan_credentials(USERS, asked))
    assert not plan_credentials(after, asked)
    for (user, mechanism), expected in asked.items():
        assert after.users.get(user, {}).get(mechanism) == expected
    assert all(after.users.values())
