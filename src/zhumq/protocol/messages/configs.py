"""Settings and folders: Describe, Alter and IncrementalAlterConfigs, ListConfigResources, DescribeLogDirs."""

from zhumq.protocol.schema import Message, field, int8, int16, int32, int64

CONFIG_RESOURCE_CLIENT_METRICS = 16  # all that version 0 of ListConfigResources could list


class DescribeConfigsResource(Message):
    resource_type: int8 = 0
    resource_name: str = ""
    # Null requests every setting.
    configuration_keys: list[str] | None = field()


class DescribeConfigsRequest(Message, api_key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = field()
    include_synonyms: bool = field(versions="1+", default=False)
    include_documentation: bool = field(versions="3+", default=False)


class DescribeConfigsSynonym(Message):
    name: str = ""
    value: str | None = ""
    source: int8 = 0


class DescribeConfigsResourceResult(Message):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int8 = field(versions="1+", default=-1)
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = field(versions="1+")
    config_type: int8 = field(versions="3+", default=0)
    documentation: str | None = field(versions="3+", default="")


class DescribeConfigsResult(Message):
    error_code: int16 = 0
    error_message: str | None = ""
    resource_type: int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = field()


class DescribeConfigsResponse(Message, api_key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int32 = 0
    results: list[DescribeConfigsResult] = field()


class AlterableConfig(Message):
    name: str = ""
    value: str | None = ""


class AlterConfigsResource(Message):
    resource_type: int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = field()


class AlterConfigsRequest(Message, api_key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = field()
    validate_only: bool = False


class AlterConfigsResourceResponse(Message):
    """Shared by AlterConfigs and IncrementalAlterConfigs."""

    error_code: int16 = 0
    error_message: str | None = ""
    resource_type: int8 = 0
    resource_name: str = ""


class AlterConfigsResponse(Message, api_key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = field()


class IncrementalAlterConfigsAlterableConfig(Message):
    name: str = ""
    config_operation: int8 = 0
    value: str | None = ""


class IncrementalAlterConfigsResource(Message):
    resource_type: int8 = 0
    resource_name: str = ""
    configs: list[IncrementalAlterConfigsAlterableConfig] = field()


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    resources: list[IncrementalAlterConfigsResource] = field()
    validate_only: bool = False


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = field()


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    resource_types: list[int8] = field(versions="1+")


class ConfigResource(Message):
    resource_name: str = ""
    resource_type: int8 = field(versions="1+", default=CONFIG_RESOURCE_CLIENT_METRICS)


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    config_resources: list[ConfigResource] = field()


class DescribableLogDirTopic(Message):
    topic: str = ""
    partitions: list[int32] = field()


class DescribeLogDirsRequest(Message, api_key=35, versions="1-5", flexible="2+"):
    # Null requests every topic.
    topics: list[DescribableLogDirTopic] | None = field()


class DescribeLogDirsPartition(Message):
    partition_index: int32 = 0
    partition_size: int64 = 0
    offset_lag: int64 = 0
    is_future_key: bool = False


class DescribeLogDirsTopic(Message):
    name: str = ""
    partitions: list[DescribeLogDirsPartition] = field()


class DescribeLogDirsResult(Message):
    error_code: int16 = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = field()
    total_bytes: int64 = field(versions="4+", default=-1)
    usable_bytes: int64 = field(versions="4+", default=-1)
    is_cordoned: bool = field(versions="5+", default=False)


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field(versions="3+", default=0)
    results: list[DescribeLogDirsResult] = field()
