"""Checks of a JoinGroup that do not depend on the group, and that its texts fit into a record."""

from zhumq.groups.persisted import fits
from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.groups import JoinGroupRequest

INSTANCE_ID_LENGTH_MAX = 249  # KIP-345: as long as a topic's name at most


def check_join(message: JoinGroupRequest, settings: GroupSettings) -> ErrorCode:
    """NONE, or the first error."""
    timeout_ms = message.session_timeout_ms
    instance_id = message.group_instance_id
    if not message.group_id or not fits(message.group_id):
        return ErrorCode.INVALID_GROUP_ID
    if not settings.session_timeout_ms_min <= timeout_ms <= settings.session_timeout_ms_max:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if instance_id is not None and not 0 < len(instance_id) <= INSTANCE_ID_LENGTH_MAX:
        return ErrorCode.INVALID_REQUEST
    if not fits(message.protocol_type) or not all(fits(each.name) for each in message.protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE
