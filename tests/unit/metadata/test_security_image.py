"""ACLs, credentials and quotas in the metadata image: changes replace their subject and survive a snapshot."""

from hypothesis import given
from hypothesis import strategies as st
from leadership_support import cluster, partition

from zhumq.metadata.changes import (
    Change,
    apply_changes,
    change_from_json,
    change_to_json,
    changes_of,
)
from zhumq.metadata.security import (
    AclsChanged,
    CredentialsChanged,
    QuotasChanged,
    SecurityChange,
    SecurityImage,
    apply_security_changes,
)
from zhumq.security.acl import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from zhumq.security.credential import ScramCredential, ScramMechanism

NAMES = st.text(min_size=1, max_size=8)
ENTRIES = st.builds(
    AclEntry,
    NAMES.map("User:{}".format),
    st.sampled_from(["*", "127.0.0.1"]),
    st.sampled_from([Operation.READ, Operation.ALL]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
RESOURCES = st.builds(
    ResourcePattern,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    NAMES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
CREDENTIAL = st.builds(
    ScramCredential,
    salt=st.binary(min_size=1, max_size=4),
    iterations=st.integers(4096, 9000),
    stored_key=st.binary(max_size=4),
    server_key=st.binary(max_size=4),
)
CHANGES: st.SearchStrategy[SecurityChange] = st.one_of(
    st.builds(AclsChanged, resource=RESOURCES, entries=st.frozensets(ENTRIES, max_size=3)),
    st.builds(
        CredentialsChanged,
        user=NAMES,
        credentials=st.dictionaries(st.sampled_from(ScramMechanism), CREDENTIAL, max_size=2),
    ),
    st.builds(
        QuotasChanged,
        entity=st.tuples(st.tuples(st.just("user"), st.none() | NAMES)),
        quotas=st.dictionaries(NAMES, st.floats(0, 1e9), max_size=2),
    ),
)


@given(st.lists(CHANGES, max_size=8))
def test_a_snapshot_in_json_leads_to_the_same_image(changes: list[Change]) -> None:
    empty = cluster(partition([1]))
    image = apply_changes(empty, changes)
    snapshot = [
        change_from_json(change_to_json(each))
        for each in changes_of(image)
        if isinstance(each, AclsChanged | CredentialsChanged | QuotasChanged)
    ]
    assert apply_changes(empty, snapshot).security == image.security


@given(st.lists(CHANGES, max_size=8))
def test_applying_changes_twice_is_applying_them_once(changes: list[SecurityChange]) -> None:
    once = apply_security_changes(SecurityImage(), changes)
    assert apply_security_changes(once, changes) == once


def test_what_a_change_is_not_about_is_not_copied() -> None:
    resource = ResourcePattern(ResourceType.TOPIC, "t")
    entry = AclEntry("User:a", "*", Operation.READ, Permission.ALLOW)
    image = apply_security_changes(
        SecurityImage(), [AclsChanged(resource=resource, entries=frozenset([entry]))]
    )
    quota = QuotasChanged(entity=(("user", None),), quotas={"producer_byte_rate": 1.0})
    changed = apply_security_changes(image, [quota])
    assert changed.acls is image.acls
    assert apply_security_changes(image, []) is image
    taken_away = apply_security_changes(
        changed, [AclsChanged(resource=resource, entries=frozenset())]
    )
    assert taken_away.acls == {}


def test_the_keys_of_a_credential_are_not_in_its_repr() -> None:
    credential = ScramCredential(
        salt=b"salty", iterations=4096, stored_key=b"stored", server_key=b"server"
    )
    assert "stored" not in repr(credential)
    assert "salty" not in repr(credential)
