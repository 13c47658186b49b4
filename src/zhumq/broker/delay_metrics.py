"""Metrics of delayed messages: pending, overdue, delivered, late, dropped."""

from collections.abc import Iterable, Sequence

from zhumq.coordinators.delay_mover import DelayMover
from zhumq.delays.shard import DelayShard
from zhumq.model.metric import Metric


def delay_metrics(shards: Sequence[DelayShard], mover: DelayMover, now_ms: int) -> Iterable[Metric]:
    """The delayed messages that this broker coordinates."""
    overdue_ms = max(
        (now_ms - due_ms for each in shards if (due_ms := each.next_due_ms) is not None),
        default=0,
    )
    for name, kind, help_text, value in (
        (
            "zhumq_delayed_messages_pending",
            "gauge",
            "Delayed messages that are not in their topics yet.",
            sum(each.pending for each in shards),
        ),
        (
            "zhumq_delayed_messages_in_memory",
            "gauge",
            "Entries of pending messages that are in memory; the others are on disk.",
            sum(each.in_memory for each in shards),
        ),
        (
            "zhumq_delayed_messages_overdue_seconds",
            "gauge",
            "For how long the first pending message has been due; 0 if none is.",
            max(overdue_ms, 0) / 1000,
        ),
        (
            "zhumq_delayed_messages_delivered_total",
            "counter",
            "Delayed messages that were moved into their topics.",
            mover.delivered_total,
        ),
        (
            "zhumq_delayed_messages_lateness_seconds_total",
            "counter",
            "By how much the delivered ones were late, added up.",
            mover.lateness_ms_total / 1000,
        ),
        (
            "zhumq_delayed_messages_late_total",
            "counter",
            "Delayed messages that were delivered more than a second late.",
            mover.late_total,
        ),
        (
            "zhumq_delayed_messages_dropped_total",
            "counter",
            "Delayed messages whose topic was deleted before they were due.",
            mover.dropped_total,
        ),
    ):
        yield Metric(name=name, kind=kind, help=help_text, samples=[("", value)])
