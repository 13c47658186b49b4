"""`zhumq topic retention`: what a topic keeps, and which of its segments go, when and why."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from zhumq.admin.retention import (
    BrokerDisk,
    Segment,
    TopicRetention,
    explain_retention,
    retention_words,
)
from zhumq.cli import completion
from zhumq.cli.client import connect
from zhumq.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, SecurityOption
from zhumq.cli.output import headings, print_facts, print_json, print_table
from zhumq.model.sizes import size_text

WATERMARK_OFF: Final = 100


def retention(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The topic.", autocompletion=completion.topics)
    ],
    explain: Annotated[
        bool, typer.Option("--explain", help="Also list the segments: which go, when and why.")
    ] = False,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Show what a topic keeps, what 24 hours more would cost, and with --explain which segments go, when and why."""
    found = explain_retention(connect(bootstrap, security), name)
    if as_json:
        print_json(asdict(found))
        return
    print_facts(_facts(found))
    if explain:
        now_ms = {disk.now_ms for disk in found.disks}
        rows = [_row(each, max(now_ms, default=0)) for each in found.segments]
        columns = headings("partition offsets bytes newest goes why at_full_disk")
        print_table(rows, columns, empty="the topic has no segments")


def _facts(found: TopicRetention) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "topic": found.topic,
        "rule": retention_words(found.retention_ms, found.retention_bytes, found.cleanup_policy),
    }
    going = [each for each in found.segments if each.goes_at_ms is not None]
    facts["on disk"] = size_text(sum(each.size_bytes for each in found.segments))
    facts["goes next"] = _next(going)
    facts["24 h more"] = (
        "costs nothing: there is no limit of time"
        if found.retention_ms < 0
        else f"costs up to {size_text(found.day_bytes)} on each replica: zhumq topic alter {found.topic}"
        f" --set retention.ms={found.retention_ms + 24 * 3_600_000}"
    )
    for disk in found.disks:
        facts[f"disk of broker {disk.broker}"] = _disk(disk)
    if found.unanswered:
        facts["no answer for"] = f"partitions {', '.join(map(str, found.unanswered))}"
    if found.segments_left_off:
        facts["left off"] = f"the {found.segments_left_off} youngest segments"
    return facts


def _next(going: list[Segment]) -> str:
    if not going:
        return "nothing, by what is known now"
    first = min(going, key=lambda each: each.goes_at_ms or 0)
    size = sum(each.size_bytes for each in going if each.goes_at_ms == first.goes_at_ms)
    return f"{size_text(size)} at {_time(first.goes_at_ms)} ({first.reason})"


def _disk(disk: BrokerDisk) -> str:
    marks = [
        (disk.expired_percent, "expired segments go at once"),
        (disk.forced_percent, "the oldest segments go"),
        (disk.refused_percent, "messages are refused"),
    ]
    words = [f"{mark} % {what}" for mark, what in marks if mark != WATERMARK_OFF]
    state = [f"{disk.used_percent} % full ({'; '.join(words) or 'no watermarks'})"]
    if disk.delete_at is not None:
        state.append(f"expired segments go in the hour from {disk.delete_at}")
    if disk.refuses_writes:
        state.append("MESSAGES ARE REFUSED")
    if disk.beyond_help:
        state.append("OTHER FILES FILL THE DISK: deleting messages would not be enough")
    if disk.clock_held:
        state.append("THE CLOCK JUMPED AHEAD: for an hour retention goes by the time before")
    return ", ".join(state)


def _row(each: Segment, now_ms: int) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "offsets": f"{each.first_offset}-{max(each.next_offset - 1, each.first_offset)}"
        if each.size_bytes
        else f"{each.first_offset}-",
        "bytes": each.size_bytes,
        "newest": _time(each.newest_ms),
        "goes": _goes(each, now_ms),
        "why": each.reason,
        "at_full_disk": "goes" if each.protection is None else f"stays: {each.protection}",
    }


def _goes(each: Segment, now_ms: int) -> str:
    ways = []
    if each.goes_at_ms is not None:
        ways.append("now" if each.goes_at_ms <= now_ms else _time(each.goes_at_ms) or "")
    if each.goes_after_bytes is not None:
        ways.append(f"after {size_text(each.goes_after_bytes)} more")
    return " or ".join(ways) or "stays"


def _time(moment_ms: int | None) -> str | None:
    if moment_ms is None:
        return None
    try:
        return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat("T", "seconds")
    except (ValueError, OverflowError):
        return f"{moment_ms} ms"  # A producer may have written any number.
