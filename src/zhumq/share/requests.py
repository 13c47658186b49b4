"""Requests and responses of a delivery-state shard."""

from typing import Final

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
RESPONSE_TYPES: Final = dict(REQUEST_KINDS)


def refusal(request: DeliveryRequest, code: ErrorCode, why: str | None = None) -> DeliveryResponse:
    """The error response for this kind of request."""
    return RESPONSE_TYPES[type(request)](error_code=code, error_message=why)
