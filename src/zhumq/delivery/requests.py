"""What a shard of delivery state is asked and what it answers, and how a refusal looks."""

from typing import assert_never

from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.delivery_state import (
    ClaimTopicRequest,
    ClaimTopicResponse,
    DeleteWindowsRequest,
    DeleteWindowsResponse,
    DescribeWindowsRequest,
    DescribeWindowsResponse,
    GroupSettingsRequest,
    GroupSettingsResponse,
    ListClaimsRequest,
    ListClaimsResponse,
    ListGroupSettingsRequest,
    ListGroupSettingsResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    ReadWindowRequest,
    ReadWindowResponse,
    SaveSessionRequest,
    SaveSessionResponse,
    WriteWindowRequest,
    WriteWindowResponse,
)

DeliveryRequest = (
    ReadWindowRequest
    | WriteWindowRequest
    | DescribeWindowsRequest
    | DeleteWindowsRequest
    | ClaimTopicRequest
    | SaveSessionRequest
    | ListSessionsRequest
    | GroupSettingsRequest
    | ListGroupSettingsRequest
    | ListClaimsRequest
)
DeliveryResponse = (
    ReadWindowResponse
    | WriteWindowResponse
    | DescribeWindowsResponse
    | DeleteWindowsResponse
    | ClaimTopicResponse
    | SaveSessionResponse
    | ListSessionsResponse
    | GroupSettingsResponse
    | ListGroupSettingsResponse
    | ListClaimsResponse
)

# The kinds of requests by the number that stands for each between brokers.
REQUEST_KINDS: tuple[tuple[type[DeliveryRequest], type[DeliveryResponse]], ...] = (
    (ReadWindowRequest, ReadWindowResponse),
    (WriteWindowRequest, WriteWindowResponse),
    (DescribeWindowsRequest, DescribeWindowsResponse),
    (DeleteWindowsRequest, DeleteWindowsResponse),
    (ClaimTopicRequest, ClaimTopicResponse),
    (SaveSessionRequest, SaveSessionResponse),
    (ListSessionsRequest, ListSessionsResponse),
    (GroupSettingsRequest, GroupSettingsResponse),
    (ListGroupSettingsRequest, ListGroupSettingsResponse),
    (ListClaimsRequest, ListClaimsResponse),
)


def refusal(request: DeliveryRequest, code: ErrorCode, why: str | None = None) -> DeliveryResponse:
    """The answer that says no to this kind of request."""
    match request:
        case ReadWindowRequest():
            return ReadWindowResponse(error_code=code, error_message=why)
        case WriteWindowRequest():
            return WriteWindowResponse(error_code=code, error_message=why)
        case DescribeWindowsRequest():
            return DescribeWindowsResponse(error_code=code, error_message=why)
        case DeleteWindowsRequest():
            return DeleteWindowsResponse(error_code=code, error_message=why)
        case ClaimTopicRequest():
            return ClaimTopicResponse(error_code=code, error_message=why)
        case SaveSessionRequest():
            return SaveSessionResponse(error_code=code, error_message=why)
        case ListSessionsRequest():
            return ListSessionsResponse(error_code=code, error_message=why)
        case GroupSettingsRequest():
            return GroupSettingsResponse(error_code=code, error_message=why)
        case ListGroupSettingsRequest():
            return ListGroupSettingsResponse(error_code=code, error_message=why)
        case ListClaimsRequest():
            return ListClaimsResponse(error_code=code, error_message=why)
        case _:
            assert_never(request)
