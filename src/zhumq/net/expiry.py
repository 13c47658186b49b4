"""Decides when a connection expires. Pure: its activity in, a deadline and the reason out."""

from collections.abc import Callable
from typing import NamedTuple

from zhumq.net.limits import Limits


class ConnectionActivity(NamedTuple):
    """What a connection is doing. Ticks are those of the listener's deadline wheel."""

    accepted_tick: int
    active_tick: int  # when something was last received or answered
    frame_tick: int  # when the incomplete frame started, or got its memory
    frame_bytes: int  # of the incomplete frame; 0: there is none
    has_asked: bool
    may_be_anyone: bool  # the client has to authenticate, and has not
    is_reading: bool
    is_parked: bool  # the service has requests that it has not answered
    is_stuck: bool  # the client has to read before more can be sent
    waits_for_memory: bool


def deadline_of(
    activity: ConnectionActivity, limits: Limits, ticks: Callable[[int], int]
) -> tuple[int, str] | None:
    """The tick of the deadline, and the reason to log if it passes.

    None: the client waits for the broker. An empty reason: the connection was idle.
    """
    is_half = activity.is_reading and activity.frame_bytes > 0
    if activity.waits_for_memory:
        deadline = activity.active_tick + ticks(limits.memory_wait_ms)
        return deadline, "found no memory for its request"
    if activity.is_reading and not activity.has_asked:
        deadline = activity.accepted_tick + ticks(limits.first_frame_ms)
        return deadline, "sent no whole request" if is_half else ""
    if activity.may_be_anyone:
        deadline = activity.accepted_tick + ticks(limits.authentication_ms)
        return deadline, "did not authenticate in time"
    if is_half:
        arrival_ms = activity.frame_bytes * 1000 // limits.frame_bytes_per_second_min
        deadline = min(
            activity.active_tick + ticks(limits.half_frame_ms),
            activity.frame_tick + ticks(limits.half_frame_ms + arrival_ms),
        )
        return deadline, "stopped inside a request, or sent it too slowly"
    if not activity.is_stuck and (activity.is_parked or not activity.is_reading):
        # The client waits for the broker; a parked request has its deadline in the service.
        return None
    return activity.active_tick + ticks(limits.idle_ms), ""
