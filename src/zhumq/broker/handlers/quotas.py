"""DescribeClientQuotas and AlterClientQuotas."""

from collections.abc import Sequence

from zhumq.broker.dispatch import Handler, RequestContext
from zhumq.cluster.metadata_client import MetadataClient
from zhumq.cluster.store import MetadataStore
from zhumq.metadata.client_quotas import (
    FilterComponent,
    check_entity,
    describe_quotas,
    plan_quotas,
)
from zhumq.metadata.security import SecurityChange, SecurityImage
from zhumq.model.errors import BrokerError, InvalidRequest
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuota,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuota,
    QuotaAlteration,
    QuotaEntityData,
    QuotaValue,
)
from zhumq.security.credential import QuotaEntity


class QuotasHandler:
    """Describes and changes the client quotas of the cluster."""

    def __init__(self, store: MetadataStore, metadata_client: MetadataClient) -> None:
        self._store = store
        self._metadata_client = metadata_client

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_CLIENT_QUOTAS: self.describe,
            ApiKey.ALTER_CLIENT_QUOTAS: self.alter,
        }

    def describe(
        self, _context: RequestContext, request: DescribeClientQuotasRequest
    ) -> DescribeClientQuotasResponse:
        components = [
            FilterComponent(entity_type=each.entity_type, match=each.match_type, name=each.match)
            for each in request.components
        ]
        try:
            found = describe_quotas(self._store.image.security, components, strict=request.strict)
        except BrokerError as reason:
            return DescribeClientQuotasResponse(
                error_code=reason.code, error_message=str(reason), entries=None
            )
        entries = [
            DescribedQuota(
                entity=_entity_data(entity),
                values=[QuotaValue(key=key, value=value) for key, value in quotas.items()],
            )
            for entity, quotas in found
        ]
        return DescribeClientQuotasResponse(error_message=None, entries=entries)

    async def alter(
        self, _context: RequestContext, request: AlterClientQuotasRequest
    ) -> AlterClientQuotasResponse:
        response = AlterClientQuotasResponse()
        altered: set[QuotaEntity] = set()
        for entry in request.entries:
            result = AlteredQuota(entity=entry.entity, error_message=None)
            response.entries.append(result)
            try:
                await self._alter(entry, altered, validate_only=request.validate_only)
            except BrokerError as reason:
                result.error_code = reason.code
                result.error_message = str(reason)
        return response

    async def _alter(
        self, entry: QuotaAlteration, altered: set[QuotaEntity], *, validate_only: bool
    ) -> None:
        entity = check_entity((each.entity_type, each.entity_name) for each in entry.entity)
        if entity in altered:
            raise InvalidRequest("an entity is twice in the request")
        altered.add(entity)
        changes = {each.key: None if each.remove else each.value for each in entry.ops}
        if len(changes) != len(entry.ops):
            raise InvalidRequest("a quota is twice in the request")

        def plan(image: SecurityImage) -> Sequence[SecurityChange]:
            change = plan_quotas(image, entity, changes)
            return [] if change is None else [change]

        if validate_only:
            plan(self._store.image.security)
        else:
            await self._metadata_client.change_security(plan)


def _entity_data(entity: QuotaEntity) -> list[QuotaEntityData]:
    return [QuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity]
