"""How much the members of a shard's groups may make it keep. Pure: sizes in, yes or no out."""

from collections.abc import Iterable, Mapping
from typing import Final

from zhumq.groups.group import Group
from zhumq.groups.requests import GroupMessage
from zhumq.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from zhumq.protocol.messages.groups import JoinGroupRequest
from zhumq.protocol.messages.share import ShareGroupHeartbeatRequest

MEMBER_BYTES: Final = 500  # what a member costs beside what it sent
NAME_BYTES: Final = 100  # what the name of a topic costs beside its letters


def names_bytes(names: Iterable[str]) -> int:
    """What a member that subscribes to these topics makes the shard keep."""
    return MEMBER_BYTES + sum(len(name) + NAME_BYTES for name in names)


def bytes_to_keep(message: GroupMessage) -> int:
    """What a request may make the shard keep of its sender. 0: nothing new."""
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
    """Bounds what members of all groups of one shard have sent and the shard has to keep.

    Members that leave are not subtracted: the groups are counted again once the bound seems reached.
    So no way of losing a member can be forgotten here.
    """

    def __init__(self, groups: Mapping[str, Group], bytes_max: int) -> None:
        self._groups = groups
        self._bytes_max = bytes_max
        self._bytes = 0  # at least what the groups hold

    def take(self, size: int) -> bool:
        """Whether a member may make the shard keep this much more."""
        if self._bytes + size > self._bytes_max:
            self._bytes = sum(group.member_bytes for group in self._groups.values())
        if self._bytes + size > self._bytes_max:
            return False
        self._bytes += size
        return True
