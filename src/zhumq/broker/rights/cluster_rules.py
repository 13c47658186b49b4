"""Rules of the requests about the cluster, its settings, its ACLs and its quotas."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

from zhumq.broker.handlers.configs import ResourceType as ConfigResourceType
from zhumq.broker.handlers.group_configs import GROUP_RESOURCE
from zhumq.broker.rights.rule import (
    Need,
    Permitted,
    Rule,
    Subject,
    failure,
    on_cluster,
    refuse,
    require,
    split,
)
from zhumq.broker.rights.topic_rules import cluster_operations
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from zhumq.protocol.messages.audit_log import AuditLogRequest
from zhumq.protocol.messages.configs import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsResponse,
)
from zhumq.protocol.messages.history import HistoryRequest
from zhumq.protocol.messages.metadata import DescribeClusterRequest, DescribeClusterResponse
from zhumq.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuota,
)
from zhumq.protocol.messages.reassignments import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from zhumq.protocol.messages.sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from zhumq.protocol.schema import Message
from zhumq.security.acl import CLUSTER_NAME, Operation, Permission, ResourceType

_CLUSTER: Final = ResourceType.CLUSTER
_REFUSED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_WHY: Final = "Cluster authorization failed."
# Every other type of settings belongs to the cluster: brokers, loggers, client metrics.
_TYPES: Final = {
    ConfigResourceType.TOPIC.value: ResourceType.TOPIC,
    GROUP_RESOURCE: ResourceType.GROUP,
}


def _on_configs(operation: Operation, *, into: str, response: Any, result: Any) -> Rule:
    def refusal(subject: Subject, resource: Any) -> Any:
        type_ = _TYPES.get(resource.resource_type, _CLUSTER)
        name = CLUSTER_NAME if type_ is _CLUSTER else resource.resource_name
        if subject.may(operation, type_, name):
            return None
        reason = failure(type_)
        return result(
            error_code=reason.code,
            error_message=str(reason),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    def check(subject: Subject, request: Any) -> Permitted | Message:
        return split(
            request, "resources", into, response, lambda resource: refusal(subject, resource)
        )

    types = (ResourceType.TOPIC, ResourceType.GROUP, _CLUSTER)
    return Rule(needs=tuple(refuse(operation, each) for each in types), check=check)


def _check_describe_cluster(subject: Subject, request: DescribeClusterRequest) -> Permitted:
    if not request.include_cluster_authorized_operations:
        return Permitted(request)

    def tell_operations(response: DescribeClusterResponse) -> None:
        response.cluster_authorized_operations = cluster_operations(subject)

    return Permitted(request, tell_operations)


# Their responses have no error for the request as a whole, or not in every version.


def _check_create_acls(subject: Subject, request: CreateAclsRequest) -> Permitted | Message:
    acls = (
        _acl_text(each, each.resource_type, each.resource_name, each.principal, each.host)
        for each in request.creations
    )
    if subject.may_alter(Operation.ALTER, acls):
        return Permitted(request)
    refused = AclCreationResult(error_code=_REFUSED, error_message=_WHY)
    return CreateAclsResponse(results=[refused] * len(request.creations))


def _check_delete_acls(subject: Subject, request: DeleteAclsRequest) -> Permitted | Message:
    acls = (
        _acl_text(
            each,
            each.resource_type_filter,
            each.resource_name_filter,
            each.principal_filter,
            each.host_filter,
        )
        for each in request.filters
    )
    if subject.may_alter(Operation.ALTER, acls):
        return Permitted(request)
    refused = DeleteAclsFilterResult(error_code=_REFUSED, error_message=_WHY)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


def _acl_text(
    acl: AclCreation | DeleteAclsFilter,
    type_: int,
    name: str | None,
    principal: str | None,
    host: str | None,
) -> str:
    """An ACL, or a filter in which None stands for any."""
    permission = _name(Permission, acl.permission_type)
    resource = f"{_name(ResourceType, type_).lower()}:{name or 'any'}"
    return (
        f"acl:{permission} {principal or 'any'} {_name(Operation, acl.operation)} {resource}"
        f" from {host or 'any'}"
    )


def _name(kind: type[IntEnum], code: int) -> str:
    try:
        return kind(code).name
    except ValueError:
        return str(code)


def _check_alter_quotas(subject: Subject, request: AlterClientQuotasRequest) -> Permitted | Message:
    quotas = (
        "quota:" + ",".join(f"{part.entity_type}={part.entity_name}" for part in each.entity)
        for each in request.entries
    )
    if subject.may_alter(Operation.ALTER_CONFIGS, quotas):
        return Permitted(request)
    return AlterClientQuotasResponse(
        entries=[
            AlteredQuota(error_code=_REFUSED, error_message=_WHY, entity=each.entity)
            for each in request.entries
        ]
    )


def _check_elect_leaders(subject: Subject, request: ElectLeadersRequest) -> Permitted | Message:
    if subject.may(Operation.ALTER, _CLUSTER, CLUSTER_NAME):
        return Permitted(request)
    return ElectLeadersResponse(
        error_code=_REFUSED,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=_REFUSED, error_message=_WHY)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _check_alter_users(
    subject: Subject, request: AlterUserScramCredentialsRequest
) -> Permitted | Message:
    users = [each.name for each in request.deletions]
    users += [each.name for each in request.upsertions]
    if subject.may_alter(Operation.ALTER, (f"user:{user}" for user in users)):
        return Permitted(request)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=_REFUSED, error_message=_WHY)
            for user in dict.fromkeys(users)
        ]
    )


def _check_history(subject: Subject, request: HistoryRequest) -> Permitted:
    type_ = _HISTORY_TYPES.get(request.subject, _CLUSTER)
    name = CLUSTER_NAME if type_ is _CLUSTER else request.name
    require(subject, Operation.DESCRIBE, type_, name)
    return Permitted(request)


def _check_audit_log(subject: Subject, request: AuditLogRequest) -> Permitted:
    # Reading is no change: a page that follows the log must not write a line into it each time.
    if not subject.sees(Operation.ALTER, _CLUSTER, CLUSTER_NAME):
        require(subject, Operation.ALTER, _CLUSTER, CLUSTER_NAME)
    return Permitted(request)


# By the numbers of subjects in a request.
_HISTORY_TYPES: Final = {0: _CLUSTER, 1: ResourceType.TOPIC, 2: ResourceType.GROUP}
_ALTER: Final = (refuse(Operation.ALTER, _CLUSTER),)

CLUSTER_RULES: Final[Mapping[ApiKey, Rule]] = {
    ApiKey.HISTORY: Rule(
        needs=(
            Need(
                Operation.DESCRIBE,
                _CLUSTER,
                f"{_REFUSED.name} for the history of a broker, and of subjects that there are not",
            ),
            refuse(Operation.DESCRIBE, ResourceType.TOPIC),
            refuse(Operation.DESCRIBE, ResourceType.GROUP),
        ),
        check=_check_history,
    ),
    ApiKey.AUDIT_LOG: Rule(needs=_ALTER, check=_check_audit_log),
    **dict.fromkeys(
        (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
        Rule(needs=(), check=lambda _, request: Permitted(request)),
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: on_cluster(Operation.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Rule(needs=_ALTER, check=_check_alter_users),
    ApiKey.DESCRIBE_CLUSTER: Rule(
        needs=(Need(Operation.DESCRIBE, _CLUSTER, "authorized operations are left out"),),
        check=_check_describe_cluster,
    ),
    ApiKey.DESCRIBE_LOG_DIRS: on_cluster(Operation.DESCRIBE),
    ApiKey.ELECT_LEADERS: Rule(needs=_ALTER, check=_check_elect_leaders),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: on_cluster(Operation.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: on_cluster(Operation.DESCRIBE),
    ApiKey.DESCRIBE_ACLS: on_cluster(Operation.DESCRIBE),
    ApiKey.CREATE_ACLS: Rule(needs=_ALTER, check=_check_create_acls),
    ApiKey.DELETE_ACLS: Rule(needs=_ALTER, check=_check_delete_acls),
    ApiKey.DESCRIBE_CONFIGS: _on_configs(
        Operation.DESCRIBE_CONFIGS,
        into="results",
        response=DescribeConfigsResponse,
        result=DescribeConfigsResult,
    ),
    ApiKey.ALTER_CONFIGS: _on_configs(
        Operation.ALTER_CONFIGS,
        into="responses",
        response=AlterConfigsResponse,
        result=AlterConfigsResourceResponse,
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _on_configs(
        Operation.ALTER_CONFIGS,
        into="responses",
        response=IncrementalAlterConfigsResponse,
        result=AlterConfigsResourceResponse,
    ),
    ApiKey.LIST_CONFIG_RESOURCES: on_cluster(Operation.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: on_cluster(Operation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: Rule(
        needs=(refuse(Operation.ALTER_CONFIGS, _CLUSTER),), check=_check_alter_quotas
    ),
}
