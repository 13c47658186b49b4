"""Limits the memory that the members of a shard's groups use. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from zhumq.groups.group import Group
from zhumq.groups.requests import GroupMessage
from zhumq.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from zhumq.protocol.messages.groups import JoinGroupRequest
from zhumq.protocol.messages.share import ShareGroupHeartbeatRequest

MEMBER_BYTES: Final = 500  # of a member in addition to what it sent
NAME_BYTES: Final = 100  # of a topic name in addition to its characters


def names_bytes(names: Iterable[str]) -> int:
    """Memory of a member that subscribes to these topics."""
    return MEMBER_BYTES + sum(len(name) + NAME_BYTES for name in names)


def bytes_to_keep(message: GroupMessage) -> int:
    """Memory that a request may add for its sender. 0: none."""
    match message:
        case JoinGroupRequest():
            offered = sum(len(each.name) + len(each.metadata) for each in message.protocols)
            return MEMBER_BYTES + offered
        case ConsumerGroupHeartbeatRequest() | ShareGroupHeartbeatRequest():
            names = message.subscribed_topic_names
            return 0 if names is None else names_bytes(names)
        case _:
            return 0


class MemberMemory:
    """Limits the memory for what the members of all groups of one shard have sent.

    Members that leave are not subtracted. The groups are counted again when the limit seems reached, so that no
    removal of a member can be overlooked.
    """

    def __init__(self, groups: Mapping[str, Group], bytes_max: int) -> None:
        self._groups = groups
        self._bytes_max = bytes_max
        self._bytes = 0  # an upper bound of the groups' memory

    def take(self, size: int) -> bool:
        """Reserve `size` bytes for a member; False if the limit is reached."""
        if self._bytes + size > self._bytes_max:
            self._bytes = sum(group.member_bytes for group in self._groups.values())
        if self._bytes + size > self._bytes_max:
            return False
        self._bytes += size
        return True
