"""Messages about ACLs: DescribeAcls, CreateAcls, DeleteAcls."""

from zhumq.protocol.schema import Message, field, int8, int16, int32

PATTERN_LITERAL = 3


class DescribeAclsRequest(Message, api_key=29, versions="1-3", flexible="2+"):
    resource_type_filter: int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int8 = PATTERN_LITERAL
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int8 = 0
    permission_type: int8 = 0


class AclDescription(Message):
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


class DescribeAclsResource(Message):
    resource_type: int8 = 0
    resource_name: str = ""
    pattern_type: int8 = PATTERN_LITERAL
    acls: list[AclDescription] = field()


class DescribeAclsResponse(Message, api_key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = field()


class AclCreation(Message):
    resource_type: int8 = 0
    resource_name: str = ""
    resource_pattern_type: int8 = PATTERN_LITERAL
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


class CreateAclsRequest(Message, api_key=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = field()


class AclCreationResult(Message):
    error_code: int16 = 0
    error_message: str | None = ""


class CreateAclsResponse(Message, api_key=30, versions="1-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    results: list[AclCreationResult] = field()


class DeleteAclsFilter(Message):
    resource_type_filter: int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int8 = PATTERN_LITERAL
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int8 = 0
    permission_type: int8 = 0


class DeleteAclsRequest(Message, api_key=31, versions="1-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = field()


class DeleteAclsMatchingAcl(Message):
    error_code: int16 = 0
    error_message: str | None = ""
    resource_type: int8 = 0
    resource_name: str = ""
    pattern_type: int8 = PATTERN_LITERAL
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


class DeleteAclsFilterResult(Message):
    error_code: int16 = 0
    error_message: str | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = field()


class DeleteAclsResponse(Message, api_key=31, versions="1-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    filter_results: list[DeleteAclsFilterResult] = field()
