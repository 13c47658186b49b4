"""The last hours of the cluster, of a topic or of a group: figures that the brokers keep, added up."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.errors import AdminError, NotFound, Refused, Unavailable
from zhumq.model.errors import RETRIABLE_CODES, ErrorCode
from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.history import HistoryRequest, HistoryResponse

POINTS_DEFAULT: Final = 120
POINTS_MAX: Final = 1_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
# As long as a figure counts as the present one: a broker samples itself every ten seconds.
PRESENT_MS: Final = 40_000
# The brokers keep the last hour in steps of the first length, and the last day in steps of the second.
FINE_MS: Final = 10_000
COARSE_MS: Final = 60_000
_SUBJECTS: Final = {"cluster": 0, "topic": 1, "group": 2}

Figures = tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Figures over time. Rates are means over a step; a figure is None where it is not known: a broker was down, the topic was
    not among the busiest, the group not among those with most lag."""

    what: str  # cluster, topic or group
    name: str  # of the topic or the group
    start_ms: int  # when the first step begins
    step_ms: int
    series: Mapping[str, Figures]


def read_history(
    connection: ClusterConnection,
    what: str,
    name: str = "",
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    last_ms: int = HOUR_MS,
    points: int = POINTS_DEFAULT,
    broker: int | None = None,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> History:
    """The history of the `cluster`, of a `topic` or of a `group`: of the last hour or another length of time, or from one time to before another, in at
    most `points` steps. With `broker`, as that broker has it. Raises NotFound, Refused and Unavailable."""
    if what not in _SUBJECTS:
        raise Refused(
            f"there is no history of a {what!r}", "it is of the cluster, a topic or a group"
        )
    if not name and what != "cluster":
        raise Refused(f"a history of which {what}?", f"give the name of a {what}")
    if not 1 <= points <= POINTS_MAX:
        raise Refused(f"a history has 1 to {POINTS_MAX} points, not {points}")
    current_ms = now_ms()
    to_ms = current_ms if to_ms is None else to_ms
    from_ms = max(to_ms - last_ms, 0) if from_ms is None else from_ms
    if not 0 <= from_ms < to_ms:
        raise Refused(
            f"{from_ms} is not before {to_ms}", "a history is from one time to a later one"
        )
    request = history_request(what, name, from_ms, to_ms, points, current_ms)
    addresses = connection.broker_addresses()
    if broker is not None:
        if broker not in addresses:
            raise NotFound(f"there is no broker {broker}", "see `zhumq cluster status`")
        addresses = {broker: addresses[broker]}
    answers = [_ask(connection, request, number, address) for number, address in addresses.items()]
    return History(
        what=what,
        name=name,
        start_ms=request.start_ms,
        step_ms=request.step_ms,
        series=_merged(answers, request.count),
    )


def present_figures(
    connection: ClusterConnection, what: str, names: Sequence[str], figure: str
) -> dict[str, float]:
    """The newest figure of each topic or group; without those that the brokers do not have, or keep no
    history of."""
    found: dict[str, float] = {}
    if not names:
        return found
    with suppress(AdminError):  # Where no broker answers, asking on would wait with each name.
        addresses = connection.broker_addresses()
        for name in names:
            now_ms = time.time_ns() // 1_000_000
            points = PRESENT_MS // FINE_MS
            request = history_request(what, name, now_ms - PRESENT_MS, now_ms, points, now_ms)
            try:
                answers = [_ask(connection, request, *each) for each in addresses.items()]
            except Refused:
                continue
            values = _merged(answers, request.count).get(figure, ())
            known = [each for each in values if each is not None]
            if known:
                found[name] = known[-1]
    return found


def history_request(
    what: str, name: str, from_ms: int, to_ms: int, points: int, now_ms: int
) -> HistoryRequest:
    """The request for a chart of at most so many points, in steps that the brokers can give it in."""
    # What the brokers keep is all there is: a chart of a year is one of a day.
    from_ms = max(from_ms, min(now_ms, to_ms) - DAY_MS, 0)
    to_ms = max(min(to_ms, now_ms + COARSE_MS), from_ms + 1)
    # A little more than an hour is one: the clock of the caller is not that of the brokers.
    unit_ms = FINE_MS if from_ms >= now_ms - HOUR_MS - COARSE_MS else COARSE_MS
    step_ms = min(max(math.ceil((to_ms - from_ms) / points / unit_ms), 1) * unit_ms, DAY_MS)
    start_ms = from_ms // step_ms * step_ms
    count = math.ceil((to_ms - start_ms) / step_ms)
    if count > points:
        # The first step begins before the first time, and is one too many.
        start_ms += (count - points) * step_ms
        count = points
    return HistoryRequest(
        subject=_SUBJECTS[what], name=name, start_ms=start_ms, step_ms=step_ms, count=count
    )


def _ask(
    connection: ClusterConnection, request: HistoryRequest, broker: int, address: str
) -> HistoryResponse:
    answer: HistoryResponse = connection.request(ApiKey.HISTORY, request, address=address)
    code = ErrorCode(answer.error_code)
    if code is ErrorCode.NONE:
        return answer
    reason = answer.error_message or code.name.lower().replace("_", " ")
    kind = Unavailable if code in RETRIABLE_CODES else Refused
    raise kind(f"broker {broker} gives no history: {reason}", code=code.name)


def _merged(answers: Sequence[HistoryResponse], count: int) -> dict[str, Figures]:
    """The figures of all brokers as one: their sum, or the largest where each has that of the cluster."""
    fields: Sequence[Any] = next((each.fields for each in answers), [])
    series: dict[str, Figures] = {}
    for place, field in enumerate(fields):
        merge = max if field.is_of_cluster else sum
        values: list[float | None] = []
        for step in range(count):
            known = [
                point.values[place]
                for each in answers
                if step < len(each.points) and (point := each.points[step]).values
            ]
            numbers = [value for value in known if not math.isnan(value)]
            values.append(merge(numbers) if numbers else None)
        series[field.name] = tuple(values)
    return series
