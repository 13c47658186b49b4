"""Parses log lines into columns with Spark expressions: JSON, logfmt, plain lines, syslog, access logs."""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from zhumq.pipelines.log_formats import (
    DATED,
    FIELDS,
    JSON_NAMES,
    JSON_NESTED,
    LEVELS,
    LOGFMT_NAMES,
    SEPARATOR,
    UNDATED,
    LineFormat,
    TimeKind,
)

JSON: Final = "json"
LOGFMT: Final = "logfmt"

TEMPLATE_LENGTH_MAX: Final = 2000  # of the message; the rest is ignored
_TEXT: Final = "_text"
_OBJECT: Final = "_object"  # a JSON line as a map
_FOUND: Final = "_found"  # the fields of any line, as texts
_HELPERS: Final = (_TEXT, _OBJECT, _FOUND)
# Spark writes fractions from JSON in scientific notation: 1.767254400123E9.
_EPOCH: Final = r"^(?:\d{9,19}(?:\.\d+)?|\d\.\d+E\d{1,2})$"
# Numbers of this size are nanoseconds, microseconds, milliseconds; smaller ones are seconds.
_EPOCH_UNITS: Final = ((1e17, 1e-3), (1e14, 1.0), (1e11, 1e3))
_EPOCH_END: Final = 1e19
_SECOND_MICROS: Final = 1e6
_PINO_MIN: Final = 10  # Levels of bunyan and pino are tens; below are the severities of syslog.


def parse_lines(rows: DataFrame) -> DataFrame:
    """The rows with format, moment, level, service, message and template; null where not found.

    For a line without a service, the service is the key of its record, else its topic. The part of a
    time that a line leaves out, such as its year, comes from the timestamp of its record.
    """
    received = F.col("timestamp") if "timestamp" in rows.columns else F.current_timestamp()
    names = [F.col(name).cast("string") for name in ("key", "topic") if name in rows.columns]
    text = F.rtrim(F.col("value").cast("string"), F.lit(" \r\n\t"))
    line = rows.withColumn(_TEXT, text)
    is_object = F.col(_TEXT).startswith("{")
    line = line.withColumn(_OBJECT, F.when(is_object, F.from_json(_TEXT, "MAP<STRING, STRING>")))
    line = line.withColumn(_FOUND, F.when(is_object, _from_json()).otherwise(_from_text()))
    found = {name: F.get(_FOUND, F.lit(index)) for index, name in enumerate(FIELDS)}
    message = found["message"]
    line = line.withColumns(
        {
            # An object without a time is no log line.
            "format": F.when(found["moment"].isNotNull(), found["format"]),
            "moment": _moment(found["kind"], found["moment"], received),
            "level": _level(found["level"], message),
            "service": F.coalesce(_given(found["service"]), *names),
            "message": message,
        }
    )
    start = F.substring("message", 1, TEMPLATE_LENGTH_MAX)
    return line.withColumn("template", template(start)).drop(*_HELPERS)


def template(message: Column) -> Column:
    """A message without its variable parts: ids, numbers, quoted words."""
    words = F.regexp_replace(message, r"\b(?=[0-9a-f-]*\d)[0-9a-f-]{8,}\b", "<id>")
    words = F.regexp_replace(words, r"'[^']*'|\"[^\"]*\"", "<text>")
    return F.regexp_replace(words, r"\d+(\.\d+)?", "<n>")


# Spark evaluates an expression under a condition again at each use. So the functions below use the
# result of a regular expression once, and give an empty text for a field that is not found.


def _from_json() -> Column:
    """The fields of a JSON object."""
    # A line of a container's log ends with a newline.
    message = F.rtrim(_member("message"), F.lit("\r\n"))
    fields = (_member("moment"), _member("level"), _member("service"), message)
    return F.when(
        F.col(_OBJECT).isNotNull(), F.array(F.lit(JSON), F.lit(str(TimeKind.ISO)), *fields)
    )


def _member(field: str) -> Column:
    found = []
    for name, nested in JSON_NESTED.get(field, ()):
        outer = F.col(_OBJECT)[name]
        found.append(F.when(outer.startswith("{"), F.get_json_object(outer, f"$.{nested}")))
    nested_names = {name for name, _ in JSON_NESTED.get(field, ())}
    for name in JSON_NAMES[field]:
        member = F.col(_OBJECT)[name]
        found.append(F.when(~member.startswith("{"), member) if name in nested_names else member)
    return F.coalesce(*found)


def _from_text() -> Column:
    """The fields of a line by the first format that matches; null if none does."""
    text = F.col(_TEXT)
    is_logfmt = text.rlike(rf"(?:^|\s)(?:{LOGFMT_NAMES['moment']})=") & text.rlike(
        rf"(?:^|\s)(?:{LOGFMT_NAMES['level']})=\S"
    )
    values = [_logfmt(LOGFMT_NAMES[name]) for name in ("moment", "level", "service", "message")]
    logfmt = F.array(F.lit(LOGFMT), F.lit(str(TimeKind.ISO)), *values)
    dated = F.split(_first_of(DATED), SEPARATOR, len(FIELDS))
    undated = F.split(_first_of(UNDATED), SEPARATOR, len(FIELDS))
    return (
        F.when(text.rlike(r"^\[?\d{4}[-/]"), dated)
        .when(text.rlike(r"^[\w.@-]+=\S") & is_logfmt, logfmt)
        .otherwise(F.coalesce(undated, F.when(is_logfmt, logfmt)))
    )


def _first_of(formats: Iterable[LineFormat]) -> Column:
    chosen = F.when(F.lit(False), F.lit(None).cast("string"))
    for each in formats:
        common_form = F.regexp_replace(_TEXT, each.pattern, each.common_form)
        chosen = chosen.when(F.col(_TEXT).rlike(each.pattern), common_form)
    return chosen


def _logfmt(names: str) -> Column:
    """The value of the first of these keys that a line has, quoted or not."""
    pattern = rf'(?:^|\s)(?:{names})=(?:"((?s:.*?))(?<!\\)"|([^"\s]\S*))'
    return F.concat(F.regexp_extract(_TEXT, pattern, 1), F.regexp_extract(_TEXT, pattern, 2))


def _given(text: Column) -> Column:
    return F.when(text != "", text)


def _moment(kind: Column, text: Column, received: Column) -> Column:
    def is_kind(which: TimeKind) -> Column:
        return kind == str(which)

    number = text.try_cast("double")
    micros = F.when(F.lit(False), number)
    for least, factor in _EPOCH_UNITS:
        micros = micros.when(number >= least, number * factor)
    micros = F.round(micros.otherwise(number * _SECOND_MICROS))
    epoch = F.when(number < _EPOCH_END, F.timestamp_micros(micros.try_cast("bigint")))
    unusual = text.contains(",") | text.contains("/")
    iso = F.try_to_timestamp(F.when(unusual, F.translate(text, ",/", ".-")).otherwise(text))
    single_spaces = F.regexp_replace(text, " +", " ")
    month = F.lit("yyyy MMM d HH:mm:ss")
    year = F.year(received).cast("string")
    yearless = F.try_to_timestamp(F.concat(year, F.lit(" "), single_spaces), month)
    day = F.date_format(received, "yyyy-MM-dd ")
    return (
        F.when(is_kind(TimeKind.EPOCH) | (~text.contains(":") & text.rlike(_EPOCH)), epoch)
        .when(is_kind(TimeKind.ISO), iso)
        .when(is_kind(TimeKind.ACCESS), F.try_to_timestamp(text, F.lit("dd/MMM/yyyy:HH:mm:ss Z")))
        .when(is_kind(TimeKind.MONTH), F.try_to_timestamp(single_spaces, month))
        .when(is_kind(TimeKind.YEARLESS), _not_ahead(yearless, received))
        .when(
            is_kind(TimeKind.YEARLESS_ISO),
            _not_ahead(F.try_to_timestamp(F.concat(year, text)), received),
        )
        .when(
            is_kind(TimeKind.CLOCK),
            F.try_to_timestamp(F.concat(day, F.translate(text, ",", "."))),
        )
        .when(is_kind(TimeKind.JAVA), F.try_to_timestamp(text, F.lit("MMM d, yyyy h:mm:ss a")))
        .when(is_kind(TimeKind.RECORD), received)
    )


def _not_ahead(moment: Column, received: Column) -> Column:
    """Move a time that is ahead of its record back by a year: a line of December read in January."""
    ahead = moment > received + F.expr("INTERVAL 1 DAY")
    return F.when(ahead, moment - F.expr("INTERVAL 1 YEAR")).otherwise(moment)


def _level(given: Column, message: Column) -> Column:
    """The level of a line; without one, the level that its HTTP status or its words imply."""
    word = F.upper(given)
    level = F.when(F.lit(False), F.lit(""))
    for name, words in LEVELS.items():
        level = level.when(word.isin(*words), name)
    code = F.substring(given, 6, 3)  # of `http 503`
    number = F.regexp_extract(given, r"^<?(\d+)$", 1).try_cast("int")
    severity = F.when(given.startswith("<"), number % 8).otherwise(number)
    by_severity = (
        F.when(severity <= 3, "ERROR").when(severity == 4, "WARN").when(severity <= 6, "INFO")
    ).otherwise("DEBUG")
    by_tens = (
        F.when(number >= 50, "ERROR").when(number >= 40, "WARN").when(number >= 30, "INFO")
    ).otherwise("DEBUG")
    by_words = (
        F.when(message.rlike(r"(?i)\b(?:error|fatal|panic|critical|exception|failed)\b"), "ERROR")
        .when(message.rlike(r"(?i)\bwarn(?:ing)?\b"), "WARN")
        .otherwise("INFO")
    )
    return (
        F.when(message.isNull(), F.lit(None).cast("string"))
        .when(given.isNull() | given.isin("", "<"), by_words)
        .when(
            given.startswith("http "),
            F.when(code >= "500", "ERROR").when(code >= "400", "WARN").otherwise("INFO"),
        )
        .when(
            # The comparison of one character comes first: this runs for every line.
            (F.substring(given, 1, 1) <= "<") & number.isNotNull(),
            F.when(given.startswith("<") | (number < _PINO_MIN), by_severity).otherwise(by_tens),
        )
        .otherwise(level)
    )
