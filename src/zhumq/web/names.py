"""Names and numbers in requests, with their bounds."""

from typing import Annotated

from msgspec import Meta

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

TopicName = Annotated[str, Meta(min_length=1, max_length=249, pattern="^[a-zA-Z0-9._-]+$")]
# Any text, but no control characters: the brokers' clients are C programs.
GroupName = Annotated[str, Meta(min_length=1, max_length=255, pattern="^[^\\x00-\\x1f\\x7f]+$")]
AnyName = Annotated[str, Meta(min_length=1, max_length=1024, pattern="^[^\\x00-\\x1f\\x7f]+$")]
SettingName = Annotated[str, Meta(min_length=1, max_length=249, pattern="^[a-zA-Z0-9._-]+$")]
SettingValue = Annotated[str, Meta(max_length=32_768, pattern="^[^\\x00]*$")]
SearchText = Annotated[
    str, Meta(max_length=249, description="Only names that have this in them, in any case.")
]
PartitionNumber = Annotated[int, Meta(ge=0, le=INT32_MAX)]
BrokerNumber = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Offset = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Milliseconds = Annotated[int, Meta(ge=0, le=INT64_MAX, description="Milliseconds since 1970.")]
PositionText = Annotated[
    str,
    Meta(
        max_length=64,
        description="earliest, latest, an offset, a time such as 2026-01-31T09:00:00Z, or"
        " @MILLISECONDS since 1970.",
    ),
]
FilterText = Annotated[
    str,
    Meta(
        max_length=8_192,
        description="Tags (`a || b`) or a condition (`key LIKE 'eu-%' AND value.total > 100`).",
    ),
]
