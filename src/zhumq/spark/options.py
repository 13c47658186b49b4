"""The options of the source and the sink: those of Spark's Kafka connector, validated before any work."""

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from zhumq.client.errors import SecurityInvalid
from zhumq.model.address import parse_addresses
from zhumq.model.errors import ZhumqError
from zhumq.model.ids import INTERNAL_TOPICS, TopicPartition
from zhumq.model.isolation import Isolation
from zhumq.spark.cluster_client import EARLIEST, LATEST
from zhumq.spark.columns import DEFAULT_COLUMNS, HEADERS, UnknownColumn, parse_columns
from zhumq.spark.security_options import (
    PREFIX,
    SecurityOptions,
    is_security_option,
    security_options,
)

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
SINK_LEDGER_TOPIC: Final = (
    "__zhumq_spark_sink"  # which batches the sinks of all queries have written
)
SINK_DECISIONS_TOPIC: Final = (
    "__zhumq_spark_decisions"  # which transactions the exactly-once sinks of all queries commit
)
TRIGGER_DELAY_MS_DEFAULT: Final = 15 * 60 * 1000  # Spark's maxTriggerDelay
POLL_MS_DEFAULT: Final = 120_000
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

READ_NAMES: Final = (
    "subscribe", "subscribePattern", "assign", "path", "columns", "includeHeaders", "groupId",
    "pushFilters", "isolationLevel",
    "startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
    "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestampStrategy",
    "failOnDataLoss", "minPartitions", "maxRecordsPerPartition", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxBytesPerTrigger", "maxTriggerDelay", "kafkaConsumer.pollTimeoutMs",
    "groupIdPrefix", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
)  # fmt: skip
WRITE_NAMES: Final = (
    "topic", "includeHeaders", "includeTimestamp", "exactlyOnce", "txnAppId", "txnVersion",
    "queryName", "checkpointLocation",
)  # fmt: skip
# Spark's connector refuses these too, in the same words: they would change the meaning of the rows.
REFUSED_FOR_READING: Final = {
    "kafka.auto.offset.reset": "Instead set the source option 'startingOffsets' to 'earliest' or"
    " 'latest': Spark keeps the offsets of a query itself",
    "kafka.key.deserializer": "keys come as bytes; use DataFrame operations to deserialize them",
    "kafka.value.deserializer": "values come as bytes; use DataFrame operations to deserialize them",
    "kafka.enable.auto.commit": "the offsets of a query are in its checkpoint",
    "kafka.interceptor.classes": "an interceptor could change what is read",
}
REFUSED_FOR_WRITING: Final = {
    "kafka.key.serializer": "keys are written as the bytes of their column",
    "kafka.value.serializer": "values are written as the bytes of their column",
}
_DURATION: Final = re.compile(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*")
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionInvalid(ZhumqError, ValueError):
    """An invalid option; the message names it and its valid values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which partitions are read: exactly one of the three is given, or none with a path."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None

    def names(self, topic: str) -> bool:
        """Whether the subscription includes a topic."""
        if self.topics is not None:
            return topic in self.topics
        if self.pattern is not None:
            # As in Spark's connector: a match anywhere in the name, and no internal topics.
            hidden = topic in (*INTERNAL_TOPICS, SINK_LEDGER_TOPIC, SINK_DECISIONS_TOPIC)
            return not hidden and re.search(self.pattern, topic) is not None
        if self.partitions is not None:
            return any(each.topic == topic for each in self.partitions)
        return True

    def picks(self, place: TopicPartition) -> bool:
        """Whether the subscription includes a partition."""
        if self.partitions is not None:
            return place in self.partitions
        return self.names(place.topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The start or the end of a read: offsets or timestamps, for all partitions or for each."""

    everywhere: int | None = None  # EARLIEST or LATEST
    offsets: Mapping[TopicPartition, int] | None = None
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] | None = None
    option: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The validated options of a read."""

    bootstrap: str
    subscription: Subscription
    start: Bound
    end: Bound
    columns: tuple[str, ...]
    security: SecurityOptions = field(default_factory=SecurityOptions)
    path: str | None = None
    group: str | None = None
    late_start_is_latest: bool = False
    fail_on_data_loss: bool = True
    read_committed: bool = False
    pushes_filters: bool = False
    partitions_min: int | None = None
    rows_per_partition_max: int | None = None
    rows_per_trigger_max: int | None = None
    rows_per_trigger_min: int | None = None
    bytes_per_trigger_max: int | None = None
    trigger_delay_ms_max: int = TRIGGER_DELAY_MS_DEFAULT
    poll_ms_max: int = POLL_MS_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatableBatch:
    """Names a batch write, as Delta's options of the same names do: a write of the same name adds nothing."""

    app_id: str
    version: int  # grows from one batch to the next


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The validated options of a write."""

    bootstrap: str
    topic: str | None
    includes_timestamp: bool
    exactly_once: bool = False
    repeatable: "RepeatableBatch | None" = None
    security: SecurityOptions = field(default_factory=SecurityOptions)
    producer_settings: Mapping[str, str] = field(default_factory=dict)


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """The options of a read. Raises OptionInvalid."""
    given = _Given(options, READ_NAMES, REFUSED_FOR_READING)
    path = given.text("path")
    if streaming and path is not None:
        raise OptionInvalid("path is for batch reads: a stream needs a broker")
    if streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if given.text(name) is not None:
                raise OptionInvalid(f"{name} is for batch reads: a stream has no end")
    strategy = given.text("startingOffsetsByTimestampStrategy") or "error"
    if strategy.lower() not in ("error", "latest"):
        raise OptionInvalid(
            f"startingOffsetsByTimestampStrategy is error or latest, not {strategy!r}"
        )
    rows_min, rows_max = given.count("minOffsetsPerTrigger"), given.count("maxOffsetsPerTrigger")
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise OptionInvalid("minOffsetsPerTrigger is larger than maxOffsetsPerTrigger")
    return ReadOptions(
        bootstrap=given.bootstrap(),
        subscription=_subscription(given, path),
        start=_bound(given, "starting", LATEST if streaming else EARLIEST, streaming=streaming),
        end=_bound(given, "ending", LATEST, streaming=streaming),
        columns=_columns(given),
        security=given.security(),
        path=path,
        group=given.text("kafka.group.id") or given.text("groupId"),
        late_start_is_latest=strategy.lower() == "latest",
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        read_committed=_isolation(given, path) is Isolation.READ_COMMITTED,
        pushes_filters=given.flag("pushFilters", default=False),
        partitions_min=given.count("minPartitions"),
        rows_per_partition_max=given.count("maxRecordsPerPartition"),
        rows_per_trigger_max=rows_max,
        rows_per_trigger_min=rows_min,
        bytes_per_trigger_max=given.count("maxBytesPerTrigger"),
        trigger_delay_ms_max=given.duration_ms("maxTriggerDelay", TRIGGER_DELAY_MS_DEFAULT),
        poll_ms_max=given.count("kafkaConsumer.pollTimeoutMs") or POLL_MS_DEFAULT,
    )


def _isolation(given: "_Given", path: str | None) -> Isolation:
    """The isolation level, by the source's own option or Kafka's."""
    levels = {
        name: level
        for name in ("isolationLevel", "kafka.isolation.level")
        if (level := given.text(name)) is not None
    }
    for name, level in levels.items():
        if level not in ("read_committed", "read_uncommitted"):
            raise OptionInvalid(f"{name} is read_committed or read_uncommitted, not {level!r}")
        if path is not None and level == "read_committed":
            raise OptionInvalid(f"{name}: path reads aborted transactions, too: read from a broker")
    if len(set(levels.values())) > 1:
        raise OptionInvalid("isolationLevel and kafka.isolation.level differ: give one of them")
    return Isolation.named(next(iter(levels.values()), "read_committed"))


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a write. Raises OptionInvalid."""
    given = _Given(options, WRITE_NAMES, REFUSED_FOR_WRITING)
    return WriteOptions(
        bootstrap=given.bootstrap(),
        topic=given.text("topic"),
        includes_timestamp=given.flag("includeTimestamp", default=False),
        exactly_once=given.flag("exactlyOnce", default=False),
        repeatable=_repeatable(given),
        producer_settings={
            name.removeprefix(PREFIX): value
            for name, value in given.values.items()
            if name.startswith(PREFIX)
            and name != "kafka.bootstrap.servers"
            and not is_security_option(name)
        },
        security=given.security(),
    )


def _repeatable(given: "_Given") -> RepeatableBatch | None:
    app_id, version = given.text("txnAppId"), given.text("txnVersion")
    if app_id is None and version is None:
        return None
    if not app_id or version is None:
        raise OptionInvalid("txnAppId and txnVersion name a batch together: give both")
    if not version.isascii() or not version.isdigit() or int(version) > INT64_MAX:
        raise OptionInvalid(f"txnVersion is the number of a batch, not {version!r}")
    return RepeatableBatch(app_id=app_id, version=int(version))


def check_columns(names: Sequence[str], options: ReadOptions) -> None:
    """Check that a schema that the user has given is the source's. Raises OptionInvalid."""
    if tuple(names) != options.columns:
        raise OptionInvalid(
            f"the source's columns are {', '.join(options.columns)}, not {', '.join(names)}:"
            " leave schema() out, and choose with the option columns"
        )


class _Given:
    """Options by case-insensitive name: Spark passes the names in lower case."""

    def __init__(
        self, options: Mapping[str, str], names: tuple[str, ...], refused: Mapping[str, str]
    ) -> None:
        self.values = {name.lower(): value for name, value in options.items()}
        known = {name.lower() for name in names}
        for name in self.values:
            if name in refused:
                short = name.removeprefix("kafka.")
                raise OptionInvalid(f"Kafka option {short!r} is not supported: {refused[name]}")
            if name not in known and not name.startswith("kafka."):
                raise OptionInvalid(f"there is no option {name!r}; there are {', '.join(names)}")

    def text(self, name: str) -> str | None:
        value = self.values.get(name.lower())
        return None if value is None else value.strip()

    def bootstrap(self) -> str:
        name = "kafka.bootstrap.servers"
        value = self.text(name) or DEFAULT_BOOTSTRAP
        try:
            parse_addresses(value)
        except ValueError as error:
            raise OptionInvalid(f"{name}: {error}") from None
        return value

    def security(self) -> SecurityOptions:
        options = security_options(self.values)
        try:
            # A wrong setting fails here, before any task begins.
            options.security()
        except SecurityInvalid as error:
            raise OptionInvalid(str(error)) from None
        return options

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionInvalid(f"{name} is true or false, not {value!r}")
        return value.lower() == "true"

    def count(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not value.isascii() or not value.isdigit() or not 0 < int(value) <= INT64_MAX:
            raise OptionInvalid(f"{name} is a whole number above 0, not {value!r}")
        return int(value)

    def duration_ms(self, name: str, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        match = _DURATION.fullmatch(value)
        if match is None:
            raise OptionInvalid(f"{name} is a time such as 30s or 15m, not {value!r}")
        return int(match[1]) * _UNIT_MS[match[2] or "ms"]

    def json(self, name: str, example: str) -> Any:
        try:
            return json.loads(self.text(name) or "")
        except ValueError:
            raise OptionInvalid(
                f"{name} is not JSON: {self.text(name)!r}; it looks like {example}"
            ) from None


def _columns(given: _Given) -> tuple[str, ...]:
    text = given.text("columns")
    with_headers = given.flag("includeHeaders", default=False)
    if text is None:
        return (*DEFAULT_COLUMNS, HEADERS) if with_headers else DEFAULT_COLUMNS
    try:
        return parse_columns(text)
    except UnknownColumn as error:
        raise OptionInvalid(f"columns: {error}") from None


def _subscription(given: _Given, path: str | None) -> Subscription:
    names = [name for name in ("subscribe", "subscribePattern", "assign") if given.text(name)]
    if len(names) > 1:
        raise OptionInvalid(f"{names[0]} and {names[1]} exclude each other: give one")
    if not names:
        if path is None:
            raise OptionInvalid(
                "no topics are given: set one of subscribe, subscribePattern, assign; or path"
            )
        return Subscription()
    value = given.text(names[0]) or ""
    if names[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if not topics:
            raise OptionInvalid("subscribe names no topic")
        return Subscription(topics=topics)
    if names[0] == "subscribePattern":
        try:
            with warnings.catch_warnings():
                # Java has nested character sets; Python parses them differently, and only warns.
                warnings.simplefilter("error", FutureWarning)
                re.compile(value)
        except (re.error, FutureWarning) as error:
            raise OptionInvalid(
                f"subscribePattern {value!r}: {error} (a regular expression of Python)"
            ) from None
        return Subscription(pattern=value)
    example = '{"orders": [0, 1]}'
    parsed = given.json("assign", example)
    wrong = OptionInvalid(f"assign is a topic's partitions, as in {example}, not {value}")
    if not isinstance(parsed, dict):
        raise wrong
    places: list[TopicPartition] = []
    for topic, partitions in parsed.items():
        if not isinstance(partitions, list):
            raise wrong
        for each in partitions:
            if not _is_integer(each) or not 0 <= each <= INT32_MAX:
                raise wrong
            places.append(TopicPartition(topic, each))
    if not places:
        raise OptionInvalid("assign names no partition")
    return Subscription(partitions=tuple(places))


def _bound(given: _Given, side: str, default: int, *, streaming: bool) -> Bound:
    """The start or the end of a read. As in Spark, a timestamp takes precedence over offsets."""
    of_all, of_each = f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    if given.text(of_all) is not None:
        value = given.text(of_all) or ""
        if not value.isascii() or not value.isdigit() or int(value) > INT64_MAX:
            raise OptionInvalid(f"{of_all} is milliseconds since 1970, not {value!r}")
        return Bound(timestamp_ms=int(value), option=of_all)
    if given.text(of_each) is not None:
        stamps = _places(given, of_each, '{"orders": {"0": 1700000000000}}', least=0)
        return Bound(timestamps_ms=stamps, option=of_each)
    name = f"{side}Offsets"
    value = given.text(name) or ""
    words = {"earliest": EARLIEST, "latest": LATEST}
    if not value:
        return Bound(everywhere=default, option=name)
    forbidden = None if streaming else {"starting": LATEST, "ending": EARLIEST}[side]
    if value.lower() in words:
        bound = words[value.lower()]
        if bound == forbidden:
            raise OptionInvalid(f"{name} cannot be {value!r} in a batch read: nothing is read then")
        return Bound(everywhere=bound, option=name)
    offsets = _places(given, name, '{"orders": {"0": 23, "1": -2}}', least=EARLIEST)
    for place, offset in offsets.items():
        if offset == forbidden:
            raise OptionInvalid(f"{name} of {place} cannot be {offset} in a batch read")
    return Bound(offsets=offsets, option=name)


def _places(given: _Given, name: str, example: str, *, least: int) -> dict[TopicPartition, int]:
    parsed = given.json(name, example)
    wrong = OptionInvalid(f"{name} has a number for each partition, as in {example}")
    if not isinstance(parsed, dict):
        raise wrong
    found: dict[TopicPartition, int] = {}
    for topic, numbers in parsed.items():
        if not isinstance(numbers, dict):
            raise wrong
        for partition, number in numbers.items():
            if not partition.isascii() or not partition.isdigit() or not _is_integer(number):
                raise wrong
            if not least <= number <= INT64_MAX:
                raise OptionInvalid(f"{name} of {topic}-{partition} cannot be {number}")
            found[TopicPartition(topic, int(partition))] = number
    return found


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
