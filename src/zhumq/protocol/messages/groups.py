"""The classic group protocol: find the coordinator, join, sync, heartbeat, leave; describe, list, delete."""

from zhumq.protocol.schema import Message, field, int8, int16, int32

OPERATIONS_NOT_ASKED_FOR = -0x8000_0000  # the client did not request authorized operations


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    key: str = field(versions="0-3")
    key_type: int8 = field(versions="1+", default=0)
    coordinator_keys: list[str] = field(versions="4+")


class Coordinator(Message):
    key: str = ""
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = field(versions="0-3", default=0)
    error_message: str | None = field(versions="1-3", default="")
    node_id: int32 = field(versions="0-3", default=0)
    host: str = field(versions="0-3")
    port: int32 = field(versions="0-3", default=0)
    coordinators: list[Coordinator] = field(versions="4+")


class JoinGroupRequestProtocol(Message):
    name: str = ""
    metadata: bytes = b""


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    group_id: str = ""
    session_timeout_ms: int32 = 0
    # Version 0 has no rebalance timeout; -1 tells the coordinator to use the session timeout.
    rebalance_timeout_ms: int32 = field(versions="1+", default=-1)
    member_id: str = ""
    group_instance_id: str | None = field(versions="5+", default=None)
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = field()
    reason: str | None = field(versions="8+", default=None)


class JoinGroupResponseMember(Message):
    member_id: str = ""
    group_instance_id: str | None = field(versions="5+", default=None)
    metadata: bytes = b""


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int32 = field(versions="2+", default=0)
    error_code: int16 = 0
    generation_id: int32 = -1
    protocol_type: str | None = field(versions="7+", default=None)
    protocol_name: str | None = field(nullable="7+", default="")
    leader: str = ""
    skip_assignment: bool = field(versions="9+", default=False)
    member_id: str = ""
    members: list[JoinGroupResponseMember] = field()


class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(versions="3+", default=None)


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0


class MemberIdentity(Message):
    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = field(versions="5+", default=None)


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    group_id: str = ""
    member_id: str = field(versions="0-2")
    members: list[MemberIdentity] = field(versions="3+")


class MemberResponse(Message):
    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: int16 = 0


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0
    members: list[MemberResponse] = field(versions="3+")


class SyncGroupRequestAssignment(Message):
    member_id: str = ""
    assignment: bytes = b""


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: str | None = field(versions="3+", default=None)
    protocol_type: str | None = field(versions="5+", default=None)
    protocol_name: str | None = field(versions="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = field()


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0
    protocol_type: str | None = field(versions="5+", default=None)
    protocol_name: str | None = field(versions="5+", default=None)
    assignment: bytes = b""


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    groups: list[str] = field()
    include_authorized_operations: bool = field(versions="3+", default=False)


class DescribedGroupMember(Message):
    member_id: str = ""
    group_instance_id: str | None = field(versions="4+", default=None)
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


class DescribedGroup(Message):
    error_code: int16 = 0
    error_message: str | None = field(versions="6+", default=None)
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = field()
    authorized_operations: int32 = field(versions="3+", default=OPERATIONS_NOT_ASKED_FOR)


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int32 = field(versions="1+", default=0)
    groups: list[DescribedGroup] = field()


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = field(versions="4+")
    types_filter: list[str] = field(versions="5+")


class ListedGroup(Message):
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = field(versions="4+")
    group_type: str = field(versions="5+")


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = field(versions="1+", default=0)
    error_code: int16 = 0
    groups: list[ListedGroup] = field()


class DeleteGroupsRequest(Message, api_key=42, versions="0-2", flexible="2+"):
    groups_names: list[str] = field()


class DeletableGroupResult(Message):
    group_id: str = ""
    error_code: int16 = 0


class DeleteGroupsResponse(Message, api_key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    results: list[DeletableGroupResult] = field()
