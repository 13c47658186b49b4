"""Client quotas: describe them, set them, delete them."""

from collections.abc import Mapping
from dataclasses import dataclass

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import Refused
from zhumq.model.errors import ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaAlteration,
    QuotaEntityData,
    QuotaOperation,
)

# The name of each type (user, client-id, ip) that the quota is about; None: the default of the type.
Entity = Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuota:
    """The quotas of an entity, by Kafka's names: producer_byte_rate and others."""

    entity: dict[str, str | None]
    quotas: dict[str, float]


def list_quotas(connection: ClusterConnection) -> list[ClientQuota]:
    """All client quotas of the cluster."""
    response = connection.request(ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest())
    _check("list quotas", response.error_code, response.error_message)
    return [
        ClientQuota(
            entity={each.entity_type: each.entity_name for each in entry.entity},
            quotas={each.key: each.value for each in entry.values},
        )
        for entry in response.entries or ()
    ]


def alter_quotas(
    connection: ClusterConnection, entity: Entity, changes: Mapping[str, float | None]
) -> None:
    """Set quotas of an entity; None deletes one."""
    alteration = QuotaAlteration(
        entity=[
            QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ],
        ops=[
            QuotaOperation(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ],
    )
    request = AlterClientQuotasRequest(entries=[alteration])
    for result in connection.request(ApiKey.ALTER_CLIENT_QUOTAS, request).entries:
        _check("change quotas", result.error_code, result.error_message)


def _check(doing: str, code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        name = ErrorCode(code).name
        raise Refused(f"cannot {doing}: {message or name}", code=name)
