"""Log lines to columns: JSON, logfmt, plain lines and access logs, without a Python row."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

JSON: Final = "json"
LOGFMT: Final = "logfmt"
PLAIN: Final = "plain"
ACCESS: Final = "access"

# 2026-01-01T08:00:00.123Z ERROR deliveries: van 7 has no driver
_PLAIN: Final = r"^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*)\s+\[?([A-Za-z]+)\]?\s+([\w.-]+):?\s+(.+)$"
# 10.0.0.7 - - [01/Jan/2026:08:00:00 +0000] "GET /items/7 HTTP/1.1" 200 512
_ACCESS: Final = r'^\S+ \S+ \S+ \[([^\]]+)\] "([A-Z]+ [^"]+)" (\d{3}) (\d+|-)'
_ACCESS_TIME: Final = "dd/MMM/yyyy:HH:mm:ss Z"
_JSON_NAMES: Final = {
    "moment": ("time", "ts", "timestamp"),
    "level": ("level", "severity"),
    "service": ("service", "logger", "app"),
    "message": ("message", "msg", "event"),
}
_LEVELS: Final = {
    "ERROR": ("ERROR", "ERR", "FATAL", "CRITICAL", "PANIC", "SEVERE"),
    "WARN": ("WARN", "WARNING"),
    "INFO": ("INFO", "NOTICE"),
    "DEBUG": ("DEBUG", "TRACE"),
}


def parse_lines(rows: DataFrame) -> DataFrame:
    """The rows with format, moment, level, service, message and template; null where not found.

    A service that a line does not name is the key of its record.
    """
    text = F.col("value").cast("string")
    line = rows.withColumn("_text", F.trim(text))
    json_schema = ", ".join(f"{name} STRING" for names in _JSON_NAMES.values() for name in names)
    line = line.withColumn(
        "_json", F.when(F.col("_text").startswith("{"), F.from_json("_text", json_schema))
    )
    is_json = F.col("_json").isNotNull() & _json("moment").isNotNull()
    kind = (
        F.when(is_json, JSON)
        .when(F.col("_text").startswith("{"), F.lit(None).cast("string"))
        .when(F.col("_text").rlike(_PLAIN), PLAIN)
        .when(F.col("_text").rlike(_ACCESS), ACCESS)
        .when(
            F.col("_text").rlike(r"(^|\s)level=\S") & F.col("_text").rlike(r"(^|\s)(ts|time)="),
            LOGFMT,
        )
    )
    line = line.withColumn("format", kind)
    line = line.withColumn("moment", _moment())
    line = line.withColumn("level", _level())
    named = _by_format(
        {JSON: _json("service"), LOGFMT: _logfmt("service", "app"), PLAIN: _plain(3)}
    )
    line = line.withColumn("service", F.coalesce(named, F.col("key").cast("string")))
    line = line.withColumn(
        "message",
        _by_format(
            {
                JSON: _json("message"),
                LOGFMT: _logfmt("msg", "message"),
                PLAIN: _plain(4),
                ACCESS: F.concat_ws(" ", _access(2), _access(3)),
            }
        ),
    )
    return line.withColumn("template", template(F.col("message"))).drop("_text", "_json")


def template(message: Column) -> Column:
    """A message without what differs from one time to the next: ids, numbers, quoted words."""
    words = F.regexp_replace(message, r"\b(?=[0-9a-f-]*\d)[0-9a-f-]{8,}\b", "<id>")
    words = F.regexp_replace(words, r"'[^']*'|\"[^\"]*\"", "<text>")
    return F.regexp_replace(words, r"\d+(\.\d+)?", "<n>")


def _moment() -> Column:
    iso = _by_format({JSON: _json("moment"), LOGFMT: _logfmt("ts", "time"), PLAIN: _plain(1)})
    access = F.try_to_timestamp(_access(1), F.lit(_ACCESS_TIME))
    return F.when(F.col("format") == ACCESS, access).otherwise(F.try_to_timestamp(iso))


def _level() -> Column:
    given = F.upper(_by_format({JSON: _json("level"), LOGFMT: _logfmt("level"), PLAIN: _plain(2)}))
    # An access log has no level; its status says as much.
    status = F.col("_text").cast("string")
    code = F.regexp_extract(status, _ACCESS, 3)
    by_status = F.when(code >= "500", "ERROR").when(code >= "400", "WARN").otherwise("INFO")
    level = F.when(F.col("format") == ACCESS, by_status)
    for name, words in _LEVELS.items():
        level = level.when(given.isin(*words), name)
    return level


def _by_format(choices: dict[str, Column]) -> Column:
    chosen = F.lit(None).cast("string")
    for name, value in choices.items():
        chosen = F.when(F.col("format") == name, value).otherwise(chosen)
    return chosen


def _json(field: str) -> Column:
    return F.coalesce(*(F.col(f"_json.{name}") for name in _JSON_NAMES[field]))


def _logfmt(*names: str) -> Column:
    """The value of the first of these keys that a line has, quoted or not."""
    found = []
    for name in names:
        key = rf"(?:^|\s){name}="
        quoted = F.regexp_extract("_text", rf'{key}"([^"]*)"', 1)
        bare = F.regexp_extract("_text", rf'{key}([^"\s]\S*)', 1)
        found += [F.when(quoted != "", quoted), F.when(bare != "", bare)]
    return F.coalesce(*found)


def _plain(group: int) -> Column:
    return F.regexp_extract("_text", _PLAIN, group)


def _access(group: int) -> Column:
    return F.regexp_extract("_text", _ACCESS, group)
