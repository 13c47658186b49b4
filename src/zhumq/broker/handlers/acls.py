"""DescribeAcls, CreateAcls, DeleteAcls: the ACLs of the metadata image, if there is an authorizer."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, Final, TypeVar

from zhumq.broker.dispatch import EncodedAnswer, Handler, RequestContext
from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.metadata.acls import count_acls, plan_creation, plan_deletion
from zhumq.metadata.security import Acls
from zhumq.model.errors import BrokerError, ErrorCode, PolicyViolation
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from zhumq.security.acl import (
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from zhumq.security.acl_filter import AclFilter, AclInvalid, check_acl

ACLS_PER_REQUEST_MAX: Final = 10_000  # as in Kafka
# More ACLs are searched and encoded in a thread: 100,000 would block all clients for too long.
_SEARCHED_AT_ONCE_MAX: Final = 1_000
_DISABLED: Final = ErrorCode.SECURITY_DISABLED
_WHY_DISABLED: Final = "this broker has no authorizer (authorizer.class.name): everyone who can connect may do everything"
_Code = TypeVar("_Code", bound=IntEnum)


class AclsHandler:
    """Describes and changes ACLs. Without an authorizer every request is refused with SECURITY_DISABLED."""

    def __init__(
        self, store: MetadataStore, metadata_client: MetadataClient, *, has_authorizer: bool
    ) -> None:
        self._store = store
        self._metadata_client = metadata_client
        self._has_authorizer = has_authorizer

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_ACLS: self.describe,
            ApiKey.CREATE_ACLS: self.create,
            ApiKey.DELETE_ACLS: self.delete,
        }

    def describe(
        self, context: RequestContext, request: DescribeAclsRequest
    ) -> DescribeAclsResponse | EncodedAnswer:
        if not self._has_authorizer:
            return DescribeAclsResponse(error_code=_DISABLED, error_message=_WHY_DISABLED)
        try:
            acl_filter = _filter_of(request)
        except AclInvalid as reason:
            return DescribeAclsResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message=str(reason)
            )
        acls = self._store.image.security.acls
        if count_acls(acls) <= _SEARCHED_AT_ONCE_MAX:
            return _described(acl_filter, acls)
        loop = asyncio.get_running_loop()
        return EncodedAnswer(
            loop.run_in_executor(None, lambda: context.encode(_described(acl_filter, acls)))
        )

    async def create(
        self, _context: RequestContext, request: CreateAclsRequest
    ) -> CreateAclsResponse:
        if not self._has_authorizer:
            refused = AclCreationResult(error_code=_DISABLED, error_message=_WHY_DISABLED)
            return CreateAclsResponse(results=[refused] * len(request.creations))
        results: list[AclCreationResult] = []
        valid: list[AclCreationResult] = []
        creations: dict[ResourcePattern, set[AclEntry]] = {}
        for creation in request.creations:
            result = AclCreationResult(error_message=None)
            results.append(result)
            try:
                resource, entry = _acl_of(creation)
            except AclInvalid as reason:
                _fail(result, ErrorCode.INVALID_REQUEST, reason)
            else:
                creations.setdefault(resource, set()).add(entry)
                valid.append(result)
        try:
            _check_number(len(request.creations))
            await self._metadata_client.change_security(partial(plan_creation, acls=creations))
        except BrokerError as reason:
            for result in valid:
                _fail(result, reason.code, reason)
        return CreateAclsResponse(results=results)

    async def delete(
        self, _context: RequestContext, request: DeleteAclsRequest
    ) -> DeleteAclsResponse:
        if not self._has_authorizer:
            refused = DeleteAclsFilterResult(error_code=_DISABLED, error_message=_WHY_DISABLED)
            return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
        search = partial(_search, request.filters, self._store.image.security.acls)
        results, found = await asyncio.get_running_loop().run_in_executor(None, search)
        try:
            _check_number(sum(map(len, found.values())))
            await self._metadata_client.change_security(partial(plan_deletion, acls=found))
        except BrokerError as reason:
            for result in results:
                if not result.error_code:
                    _fail(result, reason.code, reason)
                    result.matching_acls = []
        return DeleteAclsResponse(filter_results=results)


def _described(acl_filter: AclFilter, acls: Acls) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_message=None,
        resources=[
            DescribeAclsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                pattern_type=resource.pattern,
                acls=[
                    AclDescription(
                        principal=entry.principal,
                        host=entry.host,
                        operation=entry.operation,
                        permission_type=entry.permission,
                    )
                    for entry in entries
                ],
            )
            for resource, entries in acl_filter.select(acls)
        ],
    )


def _search(
    filters: Sequence[DeleteAclsFilter], acls: Acls
) -> tuple[list[DeleteAclsFilterResult], dict[ResourcePattern, set[AclEntry]]]:
    """The result of each filter, and all ACLs that they match."""
    found: dict[ResourcePattern, set[AclEntry]] = {}
    results: list[DeleteAclsFilterResult] = []
    for each in filters:
        result = DeleteAclsFilterResult(error_message=None)
        results.append(result)
        try:
            acl_filter = _filter_of(each)
        except AclInvalid as reason:
            _fail(result, ErrorCode.INVALID_REQUEST, reason)
            continue
        for resource, entries in acl_filter.select(acls):
            found.setdefault(resource, set()).update(entries)
            result.matching_acls += _matching(resource, entries)
    return results, found


def _matching(
    resource: ResourcePattern, entries: Iterable[AclEntry]
) -> list[DeleteAclsMatchingAcl]:
    return [
        DeleteAclsMatchingAcl(
            error_message=None,
            resource_type=resource.type,
            resource_name=resource.name,
            pattern_type=resource.pattern,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for entry in entries
    ]


def _filter_of(request: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    acl_filter = AclFilter(
        type=_known(ResourceType, request.resource_type_filter),
        name=request.resource_name_filter,
        pattern=_known(PatternType, request.pattern_type_filter),
        principal=request.principal_filter,
        host=request.host_filter,
        operation=_known(Operation, request.operation),
        permission=_known(Permission, request.permission_type),
    )
    acl_filter.check()
    return acl_filter


def _acl_of(creation: AclCreation) -> tuple[ResourcePattern, AclEntry]:
    resource = ResourcePattern(
        _known(ResourceType, creation.resource_type),
        creation.resource_name,
        _known(PatternType, creation.resource_pattern_type),
    )
    entry = AclEntry(
        creation.principal,
        creation.host,
        _known(Operation, creation.operation),
        _known(Permission, creation.permission_type),
    )
    check_acl(resource, entry)
    return resource, entry


def _known(codes: Callable[[Any], _Code], code: int) -> _Code:
    """The code, or UNKNOWN for one that a later release may have."""
    try:
        return codes(code)
    except ValueError:
        return codes(0)


def _check_number(count: int) -> None:
    if count > ACLS_PER_REQUEST_MAX:
        raise PolicyViolation(
            f"{count} ACLs are too many for one request: {ACLS_PER_REQUEST_MAX} are the most"
        )


def _fail(
    result: AclCreationResult | DeleteAclsFilterResult, code: ErrorCode, reason: Exception
) -> None:
    result.error_code, result.error_message = code, str(reason)
