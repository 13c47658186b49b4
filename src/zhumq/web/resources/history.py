"""The last hours: figures of the cluster, of a topic or of a group over time."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from zhumq.admin import history
from zhumq.web.brokers import Brokers
from zhumq.web.names import INT32_MAX, AnyName, Milliseconds

What = Annotated[
    Literal["cluster", "topic", "group"], Meta(description="What the history is about.")
]


class HistoryQuery(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"from_": "from"}
):
    """From when to when, and in how many steps."""

    name: AnyName | None = None
    from_: Milliseconds | None = None
    to: Milliseconds | None = None
    last_ms: Annotated[
        int,
        Meta(ge=1, le=history.DAY_MS, description="How long before `to` it begins without `from`."),
    ] = history.HOUR_MS
    points: Annotated[
        int, Meta(ge=1, le=history.POINTS_MAX, description="The most steps of the answer.")
    ] = history.POINTS_DEFAULT
    broker: (
        Annotated[
            int, Meta(ge=0, le=INT32_MAX, description="As one broker has it; else of all together.")
        ]
        | None
    ) = None


def read_history(brokers: Brokers, what: What, query: HistoryQuery) -> history.History:
    """Show the figures of the cluster, of a topic or of a group over the last hours.

    Steps in which nothing is known are null. The last hour is kept in steps of ten seconds, the last day in minutes; of the
    topics the busiest, and of the groups those with most lag.
    """
    return history.read_history(
        brokers.connection,
        what,
        query.name or "",
        from_ms=query.from_,
        to_ms=query.to,
        last_ms=query.last_ms,
        points=query.points,
        broker=query.broker,
    )
