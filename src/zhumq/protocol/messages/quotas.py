"""Messages about client quotas: DescribeClientQuotas and AlterClientQuotas."""

from zhumq.protocol.schema import Message, field, float64, int8, int16, int32


class QuotaFilterComponent(Message):
    entity_type: str = ""
    match_type: int8 = 0
    match: str | None = ""


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    components: list[QuotaFilterComponent] = field()
    strict: bool = False


class QuotaEntityData(Message):
    entity_type: str = ""
    entity_name: str | None = ""


class QuotaValue(Message):
    key: str = ""
    value: float64 = 0.0


class DescribedQuota(Message):
    entity: list[QuotaEntityData] = field()
    values: list[QuotaValue] = field()


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    entries: list[DescribedQuota] | None = field()


class QuotaOperation(Message):
    key: str = ""
    value: float64 = 0.0
    remove: bool = False


class QuotaAlteration(Message):
    entity: list[QuotaEntityData] = field()
    ops: list[QuotaOperation] = field()


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    entries: list[QuotaAlteration] = field()
    validate_only: bool = False


class AlteredQuota(Message):
    error_code: int16 = 0
    error_message: str | None = ""
    entity: list[QuotaEntityData] = field()


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int32 = 0
    entries: list[AlteredQuota] = field()
