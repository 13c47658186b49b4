"""Kafka's model of ACLs: resources, operations, and entries that allow or deny."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"  # every name, every host
ANY_USER: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"  # the one resource of type CLUSTER


class ResourceType(IntEnum):
    """What an ACL is about, with Kafka's codes."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a resource pattern is compared, with Kafka's codes."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What a principal does with a resource, with Kafka's codes."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """What an entry does, with Kafka's codes."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """The resources that ACL entries are attached to."""

    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL


class AclEntry(NamedTuple):
    """One rule of a resource pattern: this principal, from this host, may or may not do this."""

    principal: str  # User:NAME, or User:* for everyone
    host: str  # an address, or * for every host
    operation: Operation
    permission: Permission


# The operations that exist for each type of resource.
OPERATIONS_OF: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


def operation_bits(type_: ResourceType) -> int:
    """All operations of a type of resource, as bits of their codes."""
    return sum(1 << each for each in OPERATIONS_OF[type_])
