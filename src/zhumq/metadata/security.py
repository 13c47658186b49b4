"""The part of the metadata image about security, and all changes of it with their JSON form."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeVar, assert_never

from zhumq.security.acl import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from zhumq.security.credential import QuotaEntity, ScramCredential, ScramMechanism

Acls = Mapping[ResourcePattern, frozenset[AclEntry]]
Credentials = Mapping[ScramMechanism, ScramCredential]
Quotas = Mapping[str, float]
Key = TypeVar("Key")
Held = TypeVar("Held")

# A store that keeps one node for each bucket rewrites little for a change, and has few nodes.
BUCKETS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityImage:
    """ACLs, users and client quotas of the cluster. No value of these mappings is empty."""

    acls: Acls = field(default_factory=lambda: MappingProxyType({}))
    # By user name, without `User:`.
    users: Mapping[str, Credentials] = field(default_factory=lambda: MappingProxyType({}))
    # By entity; quota names are Kafka's, such as producer_byte_rate.
    quotas: Mapping[QuotaEntity, Quotas] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class AclsChanged:
    """These entries replace all ACL entries of a resource pattern."""

    resource: ResourcePattern
    entries: frozenset[AclEntry]

    @property
    def bucket(self) -> str:
        return _bucket(
            "acls", self.resource.type.name, self.resource.pattern.name, self.resource.name
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialsChanged:
    """These credentials replace all credentials of a user."""

    user: str
    credentials: Credentials

    @property
    def bucket(self) -> str:
        return _bucket("users", self.user)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasChanged:
    """These quotas replace all quotas of an entity."""

    entity: QuotaEntity
    quotas: Quotas

    @property
    def bucket(self) -> str:
        return _bucket("quotas", repr(self.entity))


SecurityChange = AclsChanged | CredentialsChanged | QuotasChanged


def apply_security_changes(
    image: SecurityImage, changes: Sequence[SecurityChange]
) -> SecurityImage:
    """The next image. Only what changes is copied; without changes it is the same image."""
    if not changes:
        return image
    acls = [(each.resource, each.entries) for each in changes if isinstance(each, AclsChanged)]
    users = [
        (each.user, each.credentials) for each in changes if isinstance(each, CredentialsChanged)
    ]
    quotas = [(each.entity, each.quotas) for each in changes if isinstance(each, QuotasChanged)]
    return SecurityImage(
        acls=_with(image.acls, acls),
        users=_with(image.users, users),
        quotas=_with(image.quotas, quotas),
    )


def security_changes_of(image: SecurityImage) -> Iterator[SecurityChange]:
    """The changes that lead from an empty image to this one."""
    for resource, entries in image.acls.items():
        yield AclsChanged(resource=resource, entries=entries)
    for user, credentials in image.users.items():
        yield CredentialsChanged(user=user, credentials=credentials)
    for entity, quotas in image.quotas.items():
        yield QuotasChanged(entity=entity, quotas=quotas)


def security_change_to_json(change: SecurityChange) -> dict[str, Any]:
    match change:
        case AclsChanged():
            return {
                "change": "acls_changed",
                "resource": list(change.resource),
                "entries": sorted(list(entry) for entry in change.entries),
            }
        case CredentialsChanged():
            return {
                "change": "credentials_changed",
                "user": change.user,
                "credentials": {
                    mechanism.sasl_name: {
                        "salt": credential.salt.hex(),
                        "iterations": credential.iterations,
                        "stored_key": credential.stored_key.hex(),
                        "server_key": credential.server_key.hex(),
                    }
                    for mechanism, credential in sorted(change.credentials.items())
                },
            }
        case QuotasChanged():
            return {
                "change": "quotas_changed",
                "entity": [list(pair) for pair in change.entity],
                "quotas": dict(change.quotas),
            }
        case _:
            assert_never(change)


def security_change_from_json(data: Mapping[str, Any]) -> SecurityChange:
    """The change of a JSON form. Raises KeyError or ValueError on invalid data."""
    match data["change"]:
        case "acls_changed":
            kind, name, pattern = data["resource"]
            return AclsChanged(
                resource=ResourcePattern(ResourceType(kind), str(name), PatternType(pattern)),
                entries=frozenset(
                    AclEntry(
                        str(principal), str(host), Operation(operation), Permission(permission)
                    )
                    for principal, host, operation, permission in data["entries"]
                ),
            )
        case "credentials_changed":
            named = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
            return CredentialsChanged(
                user=str(data["user"]),
                credentials={
                    named[name]: ScramCredential(
                        salt=bytes.fromhex(each["salt"]),
                        iterations=int(each["iterations"]),
                        stored_key=bytes.fromhex(each["stored_key"]),
                        server_key=bytes.fromhex(each["server_key"]),
                    )
                    for name, each in data["credentials"].items()
                },
            )
        case "quotas_changed":
            return QuotasChanged(
                entity=tuple(
                    (str(kind), None if name is None else str(name))
                    for kind, name in data["entity"]
                ),
                quotas={str(name): float(value) for name, value in data["quotas"].items()},
            )
        case other:
            raise ValueError(f"unknown change {other!r}")


def _with(held: Mapping[Key, Held], changes: Iterable[tuple[Key, Held]]) -> Mapping[Key, Held]:
    changes = list(changes)
    if not changes:
        return held
    copied = dict(held)
    for key, value in changes:
        copied.pop(key, None)
        if value:
            copied[key] = value
    return copied


def _bucket(kind: str, *key: str) -> str:
    return f"{kind}-{zlib.crc32(chr(0).join(key).encode()) % BUCKETS:02x}"
