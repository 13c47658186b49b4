"""Plans changes of ACLs, within the bounds on their number."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from zhumq.metadata.security import Acls, AclsChanged, SecurityImage
from zhumq.model.errors import PolicyViolation
from zhumq.security.acl import AclEntry, ResourcePattern

ACLS_MAX: Final = 100_000  # in all
# A store keeps all entries of a resource together: they are some 200 kB.
ACLS_PER_RESOURCE_MAX: Final = 2_000

NamedAcls = Mapping[ResourcePattern, AbstractSet[AclEntry]]


def plan_creation(image: SecurityImage, acls: NamedAcls) -> list[AclsChanged]:
    """The changes that add what is missing. Raises PolicyViolation if that is too much."""
    changes: list[AclsChanged] = []
    added = 0
    for resource, entries in acls.items():
        before = image.acls.get(resource, frozenset())
        after = before | entries
        if len(after) > len(before):
            added += len(after) - len(before)
            if len(after) > ACLS_PER_RESOURCE_MAX:
                raise PolicyViolation(
                    f"{resource.type.name} {resource.name[:64]!r} would have {len(after)} ACLs,"
                    f" and {ACLS_PER_RESOURCE_MAX} are the most: grant rights to fewer principals,"
                    f" or by a prefix"
                )
            changes.append(AclsChanged(resource=resource, entries=after))
    if changes and count_acls(image.acls) + added > ACLS_MAX:
        raise PolicyViolation(f"the cluster would have more than {ACLS_MAX} ACLs: use prefixes")
    return changes


def plan_deletion(image: SecurityImage, acls: NamedAcls) -> list[AclsChanged]:
    """The changes that remove what is there of these ACLs."""
    changes: list[AclsChanged] = []
    for resource, entries in acls.items():
        before = image.acls.get(resource, frozenset())
        after = before - entries
        if len(after) < len(before):
            changes.append(AclsChanged(resource=resource, entries=after))
    return changes


def count_acls(acls: Acls) -> int:
    return sum(map(len, acls.values()))
