"""DescribeAcls, CreateAcls, DeleteAcls: answered as by a Kafka broker without an authorizer."""

from typing import Final

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

_CODE: Final = ErrorCode.SECURITY_DISABLED
_WHY: Final = "this broker has no authorizer: everyone who can connect may do everything"


class AclsHandler:
    """Refuses requests about ACLs with SECURITY_DISABLED."""

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_ACLS: self.describe,
            ApiKey.CREATE_ACLS: self.create,
            ApiKey.DELETE_ACLS: self.delete,
        }

    def describe(
        self, _context: RequestContext, _request: DescribeAclsRequest
    ) -> DescribeAclsResponse:
        return DescribeAclsResponse(error_code=_CODE, error_message=_WHY)

    def create(self, _context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
        result = AclCreationResult(error_code=_CODE, error_message=_WHY)
        return CreateAclsResponse(results=[result] * len(request.creations))

    def delete(self, _context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
        result = DeleteAclsFilterResult(error_code=_CODE, error_message=_WHY)
        return DeleteAclsResponse(filter_results=[result] * len(request.filters))
