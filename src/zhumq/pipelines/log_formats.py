"""The formats of log lines: a pattern for each, with the groups of time, level, service and message."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class TimeKind(StrEnum):
    """How the time of a line is written."""

    ISO = "iso"
    EPOCH = (
        "epoch"  # seconds, milliseconds, microseconds or nanoseconds, distinguished by their size
    )
    ACCESS = "access"  # 01/Jan/2026:08:00:00 +0000
    MONTH = "month"  # 2026 Jan 1 08:00:00
    YEARLESS = "yearless"  # Jan  1 08:00:00
    YEARLESS_ISO = "yearless-iso"  # -01-01 08:00:00
    CLOCK = "clock"  # 08:00:00, on the day of its record
    JAVA = "java"  # Jan 1, 2026 8:00:00 AM
    RECORD = "record"  # the line has no time: the timestamp of its record


# Between the fields of a line in its common form. Only the last field, the message, may hold it.
SEPARATOR: Final = "\x01"
FIELDS: Final = ("format", "kind", "moment", "level", "service", "message")


@dataclass(frozen=True, slots=True)
class LineFormat:
    """A Java regular expression for a whole line, and which of its groups are the last four of FIELDS."""

    name: str
    kind: TimeKind
    pattern: str
    moment: str = "$1"
    level: str = "$2"
    service: str = "$3"
    message: str = "$4"

    @property
    def common_form(self) -> str:
        """What regexp_replace makes of a line of this format."""
        fields = (self.name, self.kind, self.moment, self.level, self.service, self.message)
        return SEPARATOR.join(fields)


# Java's engine recurses for a repeated group, so every repeated group has a small bound.
# Each pattern matches the whole text; lines after the first, such as a stack trace, are ignored.
_ISO: Final = (
    r"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?)"
)
_WORDS: Final = (
    "trace|verbose|debug|information|info|notice|log|warning|warn|error|err|severe|critical|crit"
    "|alert|emergency|emerg|fatal|panic|dbg|inf|wrn|ftl|vrb|dpanic"
)
_LEVEL: Final = rf"((?i:{_WORDS}))"
_SERVICE: Final = r"([\w.$/@:-]*\w)"
_REST: Final = r"([^\n]*)(?s:.*)$"
_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_METHOD: Final = r"[A-Z]{3,10}"

# Formats of lines that begin with a date, those with the most fields first.
DATED: Final = (
    # 2026-01-01T08:00:00.123Z ERROR deliveries: van 7 has no driver
    # 2026-01-01 08:00:00,123 ERROR [main] shop.Orders - refused
    LineFormat(
        "plain", TimeKind.ISO,
        rf"^\[?{_ISO}\]?\s+\[?{_LEVEL}\]?:?\s+(?:\[[^\]\n]*\]\s+)?{_SERVICE}(?::| -)\s+{_REST}",
    ),
    # 2026-01-01T08:00:00.123Z ERROR 4711 --- [shop] [main] shop.Orders : refused
    LineFormat(
        "plain", TimeKind.ISO,
        rf"^{_ISO}\s+{_LEVEL}\s+\d+ --- (?:\[[^\]\n]*\] ?){{1,8}}{_SERVICE}\s*: {_REST}",
    ),
    # 2026-01-01 08:00:00.123 [main] ERROR shop.Orders - refused
    LineFormat(
        "plain", TimeKind.ISO,
        rf"^\[?{_ISO}\]?\s+\[[^\]\n]*\]\s+{_LEVEL}\s+{_SERVICE}(?::| -)\s+{_REST}",
    ),
    # 2026-01-01 08:00:00,123 - shop.orders - ERROR - refused
    LineFormat(
        "plain", TimeKind.ISO, rf"^{_ISO} - {_SERVICE} - {_LEVEL} - {_REST}",
        "$1", "$3", "$2", "$4",
    ),
    # [2026-01-01 08:00:00,123] ERROR [ReplicaManager broker=1] Error processing (kafka.server.Log)
    LineFormat(
        "plain", TimeKind.ISO,
        rf"^\[{_ISO}\]\s+{_LEVEL}\s+([^\n]*?) \({_SERVICE}\)(?s:(?:\n.*)?)$",
        "$1", "$2", "$4", "$3",
    ),
    # [2026-01-01T08:00:00,123][ERROR][o.e.c.ClusterService ] [node-1] refused
    LineFormat(
        "plain", TimeKind.ISO,
        rf"^\[{_ISO}\]\[{_LEVEL}\s*\]\[{_SERVICE}\s*\]\s*(?:\[[^\]\n]*\]\s*)?{_REST}",
    ),
    # [2026-01-01T08:00:00.123456+00:00] shop.ERROR: refused {"order": 7} []
    LineFormat(
        "plain", TimeKind.ISO, rf"^\[{_ISO}\] ([\w-]+)\.{_LEVEL}: {_REST}",
        "$1", "$3", "$2", "$4",
    ),
    # [2026-01-01T08:00:00Z ERROR shop::orders] refused
    LineFormat(
        "plain", TimeKind.ISO, rf"^\[{_ISO}\s+{_LEVEL}\s+{_SERVICE}\] {_REST}",
    ),
    # 2026-01-01T08:00:00.123456Z 12 [ERROR] [MY-010119] [Server] refused
    LineFormat(
        "plain", TimeKind.ISO, rf"^{_ISO} \d+ \[{_LEVEL}\] \[[^\]\n]*\] \[{_SERVICE}\] {_REST}",
    ),
    # 2026-01-01 08:00:00.123 UTC [4711] shop@orders ERROR:  duplicate key
    LineFormat(
        "plain", TimeKind.ISO,
        rf"^{_ISO} \[\d+(?:-\d+)?\](?: [^\s@]*@[^\s]*)? {_LEVEL}:\s+{_REST}",
        "$1", "$2", "", "$3",
    ),
    # 2026/01/01 08:00:00 [error] 31#31: *7 connect() failed
    LineFormat(
        "plain", TimeKind.ISO, rf"^{_ISO} \[{_LEVEL}\] \d+#\d+: (?:\*\d+ )?{_REST}",
        "$1", "$2", "", "$3",
    ),
    # [2026-01-01T08:00:00.123Z] "GET /items/7 HTTP/1.1" 503 UF 0 91
    LineFormat(
        "access", TimeKind.ISO, rf'^\[{_ISO}\] "({_METHOD} [^"\n]+)" (\d{{3}}) {_REST}',
        "$1", "http $3", "", "$2 $3",
    ),
    # 2026-01-01 08:00:00 10.0.0.5 GET /items/7 - 443 - 10.0.0.9 curl/8.5 - 503 0 0 91
    LineFormat(
        "access", TimeKind.ISO,
        rf"^{_ISO} \S+ ({_METHOD} \S+) [^\n]*? (\d{{3}})(?: \d+){{1,6}}{_REST}",
        "$1", "http $3", "", "$2 $3",
    ),
    # 2026-01-01 08:00:00.123 +00:00 [ERR] refused
    LineFormat(
        "plain", TimeKind.ISO,
        rf"^\[?{_ISO}\]?\s+\[?{_LEVEL}\b\]?:?\s+(?:\[[^\]\n]*\]\s+)?{_REST}",
        "$1", "$2", "", "$3",
    ),
    # 2026-01-01T08:00:00.123456789Z stderr F refused
    LineFormat(
        "plain", TimeKind.ISO, rf"^{_ISO} std(?:out|err) [FP] {_REST}", "$1", "", "", "$2"
    ),
    # 2026/01/01 08:00:00 refused
    LineFormat("plain", TimeKind.ISO, rf"^\[?{_ISO}\]?:?\s+{_REST}", "$1", "", "", "$2"),
)  # fmt: skip

UNDATED: Final = (
    # 10.0.0.7 - - [01/Jan/2026:08:00:00 +0000] "GET /items/7 HTTP/1.1" 200 512
    LineFormat(
        "access", TimeKind.ACCESS,
        rf'^\S+ \S+ \S+ \[([^\]]+)\] "([A-Z]+ [^"]+)" (\d{{3}}) (?:\d+|-){_REST}',
        "$1", "http $3", "", "$2 $3",
    ),
    # shop:443 10.0.0.7 - - [01/Jan/2026:08:00:00 +0000] "GET /items/7 HTTP/1.1" 200 512
    LineFormat(
        "access", TimeKind.ACCESS,
        rf'^\S+ \S+ \S+ \S+ \[([^\]]+)\] "([A-Z]+ [^"]+)" (\d{{3}}) (?:\d+|-){_REST}',
        "$1", "http $3", "", "$2 $3",
    ),
    # <34>1 2026-01-01T08:00:00.123Z web1 sshd 4711 ID47 [origin ip="10.0.0.7"] refused
    LineFormat(
        "syslog", TimeKind.ISO,
        r"^<(\d{1,3})>1 (\S+) \S+ (\S+) \S+ \S+ (?:-|\[[^\n]*?(?<!\\)\](?=\s|$)) ?(?:\xEF\xBB\xBF|\uFEFF)?"
        + _REST,
        "$2", "<$1", "$3", "$4",
    ),
    # <34>Jan  1 08:00:00 web1 sshd[4711]: refused
    LineFormat(
        "syslog", TimeKind.YEARLESS,
        rf"^(?:<(\d{{1,3}})>)?({_MONTH} [ \d]\d \d\d:\d\d:\d\d) \S+ ([^\s:\[]+)(?:\[\d+\])?: {_REST}",
        "$2", "<$1", "$3", "$4",
    ),
    # [Thu Jan 01 08:00:00.123456 2026] [core:error] [pid 31:tid 7] [client 10.0.0.7:5] refused
    LineFormat(
        "plain", TimeKind.MONTH,
        rf"^\[\w{{3}} ({_MONTH} [ \d]\d \d\d:\d\d:\d\d)(?:\.\d+)? (\d{{4}})\] \[(?:([\w-]*):)?([a-z]+)\d?\] "
        rf"(?:\[[^\]\n]*\] ){{0,8}}{_REST}",
        "$2 $1", "$4", "$3", "$5",
    ),
    # E0101 08:00:00.123456    4711 server.go:123] refused
    LineFormat(
        "plain", TimeKind.YEARLESS_ISO,
        rf"^([IWEF])(\d\d)(\d\d) (\d\d:\d\d:\d\d\.\d+)\s+\d+ ([\w./-]+):\d+\] {_REST}",
        "-$2-$3 $4", "$1", "$5", "$6",
    ),
    # 4711:M 01 Jan 2026 08:00:00.123 # refused
    LineFormat(
        "plain", TimeKind.MONTH,
        rf"^\d+:[A-Z] (\d\d) ({_MONTH}) (\d{{4}}) (\d\d:\d\d:\d\d)(?:\.\d+)? ([.*#-]) {_REST}",
        "$3 $2 $1 $4", "$5", "", "$6",
    ),
    # 08:00:00.123 [main] ERROR shop.Orders - refused
    LineFormat(
        "plain", TimeKind.CLOCK,
        rf"^(\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?)\s+\[[^\]\n]*\]\s+{_LEVEL}\s+{_SERVICE}(?::| -)\s+{_REST}",
    ),
    # [08:00:00 ERR] refused
    LineFormat(
        "plain", TimeKind.CLOCK,
        rf"^\[(\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?) {_LEVEL}\] (?:{_SERVICE}: )?{_REST}",
    ),
    # 1767254400.123 ERROR orders: refused
    LineFormat(
        "plain", TimeKind.EPOCH,
        rf"^\[?(\d{{10}}(?:\.\d{{1,9}})?|\d{{13}}|\d{{16}}|\d{{19}})\]?\s+\[?{_LEVEL}\]?:?\s+"
        rf"(?:{_SERVICE}(?::| -)\s+)?{_REST}",
    ),
    # E, [2026-01-01T08:00:00.123456 #4711] ERROR -- orders: refused
    LineFormat(
        "plain", TimeKind.ISO, rf"^[A-Z], \[{_ISO} #\d+\]\s+{_LEVEL} -- ([^:\n]*): {_REST}",
    ),
    # Jan 01, 2026 8:00:00 AM shop.Orders refuse
    # and on the next line SEVERE: refused
    LineFormat(
        "plain", TimeKind.JAVA,
        rf"^({_MONTH} \d{{1,2}}, \d{{4}} \d{{1,2}}:\d\d:\d\d [AP]M) (\S+) \S+\r?\n([A-Z]+): {_REST}",
        "$1", "$3", "$2", "$4",
    ),
    # ERROR:shop.orders:refused
    LineFormat(
        "plain", TimeKind.RECORD, rf"^(DEBUG|INFO|WARNING|ERROR|CRITICAL):([\w.]+):{_REST}",
        "", "$1", "$2", "$3",
    ),
    # Traceback (most recent call last): ... ValueError: refused
    LineFormat(
        "trace", TimeKind.RECORD,
        r"^Traceback \(most recent call last\):(?s:.*)\n([\w.]+(?:: [^\n]*)?)\s*$",
        "", "ERROR", "", "$1",
    ),
    # Exception in thread "main" java.lang.IllegalStateException: refused
    LineFormat(
        "trace", TimeKind.RECORD, r'^(Exception in thread "[^"\n]*" [^\n]*)(?s:.*)$',
        "", "ERROR", "", "$1",
    ),
    # A line of a stack trace in its own record: the record of the error itself is counted.
    LineFormat(
        "trace", TimeKind.RECORD,
        r"^\s*((?:at [\w.$/<>]+\(|Caused by: |Suppressed: |\.\.\. \d+ (?:more|common frames omitted)"
        r"|File \"[^\"\n]+\", line \d+|Traceback \(most recent call last\):)[^\n]*)(?s:.*)$",
        "", "TRACE", "", "$1",
    ),
)  # fmt: skip

# JSON: the names that loggers give to these, the commonest first.
JSON_NAMES: Final = {
    "moment": (
        "time", "ts", "timestamp", "@timestamp", "@t", "datetime", "asctime", "date",
        "__REALTIME_TIMESTAMP",
    ),
    "level": (
        "level", "severity", "log.level", "levelname", "lvl", "log_level", "@l", "PRIORITY",
    ),
    "service": (
        "service", "service.name", "app", "application", "logger", "logger_name", "loggerName",
        "name", "component", "SYSLOG_IDENTIFIER", "host",
    ),
    "message": (
        "message", "msg", "event", "short_message", "MESSAGE", "textPayload", "@m", "@mt", "log",
    ),
}  # fmt: skip
# The fields of nested objects, e.g. {"log": {"level": "error"}}.
JSON_NESTED: Final = {"level": (("log", "level"),), "service": (("service", "name"),)}
LOGFMT_NAMES: Final = {
    "moment": "ts|time|timestamp|t",
    "level": "level|lvl|severity",
    "service": "service|app|logger|component",
    "message": "msg|message",
}
# The names of each level in capitals; the last are those of klog, Redis and Serilog.
LEVELS: Final = {
    "ERROR": (
        "ERROR", "ERR", "FATAL", "CRITICAL", "CRIT", "PANIC", "DPANIC", "SEVERE", "ALERT", "EMERG",
        "EMERGENCY", "E", "F", "FTL",
    ),
    "WARN": ("WARN", "WARNING", "W", "#", "WRN"),
    "INFO": ("INFO", "INFORMATION", "NOTICE", "LOG", "STATEMENT", "I", "*", "-", "INF"),
    "DEBUG": ("DEBUG", "TRACE", "VERBOSE", "FINE", "FINER", "FINEST", "CONFIG", ".", "DBG", "VRB"),
}  # fmt: skip
