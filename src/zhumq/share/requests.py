"""Requests and responses of a delivery-state shard."""

from typing import assert_never

from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.delivery_state import (
    ClaimTopicRequest,
    ClaimTopicResponse,
    DeleteSharePartitionsRequest,
    DeleteSharePartitionsResponse,
    DescribeSharePartitionsRequest,
    DescribeSharePartitionsResponse,
    GroupSettingsRequest,
    GroupSettingsResponse,
    ListClaimsRequest,
    ListClaimsResponse,
    ListGroupSettingsRequest,
    ListGroupSettingsResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    ReadSharePartitionRequest,
    ReadSharePartitionResponse,
    SaveSessionRequest,
    SaveSessionResponse,
    WriteSharePartitionRequest,
    WriteSharePartitionResponse,
)

DeliveryRequest = (
    ReadSharePartitionRequest
    | WriteSharePartitionRequest
    | DescribeSharePartitionsRequest
    | DeleteSharePartitionsRequest
    | ClaimTopicRequest
    | SaveSessionRequest
    | ListSessionsRequest
    | GroupSettingsRequest
    | ListGroupSettingsRequest
    | ListClaimsRequest
)
DeliveryResponse = (
    ReadSharePartitionResponse
    | WriteSharePartitionResponse
    | DescribeSharePartitionsResponse
    | DeleteSharePartitionsResponse
    | ClaimTopicResponse
    | SaveSessionResponse
    | ListSessionsResponse
    | GroupSettingsResponse
    | ListGroupSettingsResponse
    | ListClaimsResponse
)

# Request kinds; the index is the request number between brokers.
REQUEST_KINDS: tuple[tuple[type[DeliveryRequest], type[DeliveryResponse]], ...] = (
    (ReadSharePartitionRequest, ReadSharePartitionResponse),
    (WriteSharePartitionRequest, WriteSharePartitionResponse),
    (DescribeSharePartitionsRequest, DescribeSharePartitionsResponse),
    (DeleteSharePartitionsRequest, DeleteSharePartitionsResponse),
    (ClaimTopicRequest, ClaimTopicResponse),
    (SaveSessionRequest, SaveSessionResponse),
    (ListSessionsRequest, ListSessionsResponse),
    (GroupSettingsRequest, GroupSettingsResponse),
    (ListGroupSettingsRequest, ListGroupSettingsResponse),
    (ListClaimsRequest, ListClaimsResponse),
)


def refusal(request: DeliveryRequest, code: ErrorCode, why: str | None = None) -> DeliveryResponse:
    """The error response for this kind of request."""
    match request:
        case ReadSharePartitionRequest():
            return ReadSharePartitionResponse(error_code=code, error_message=why)
        case WriteSharePartitionRequest():
            return WriteSharePartitionResponse(error_code=code, error_message=why)
        case DescribeSharePartitionsRequest():
            return DescribeSharePartitionsResponse(error_code=code, error_message=why)
        case DeleteSharePartitionsRequest():
            return DeleteSharePartitionsResponse(error_code=code, error_message=why)
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
