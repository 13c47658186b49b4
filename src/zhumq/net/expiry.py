"""When a connection has to go. Pure: what it is waiting for in, a deadline and the reason out."""

from collections.abc import Callable
from typing import NamedTuple

from zhumq.net.limits import Limits


class ConnectionActivity(NamedTuple):
    """What a connection is in the middle of. Ticks are those of the listener's wheel."""

    accepted_tick: int
    active_tick: int  # when something was last received or answered
    frame_tick: int  # when the frame that has begun did, or was given its memory
    frame_bytes: int  # of the frame that has begun; 0: none has
    has_asked: bool
    is_reading: bool
    is_parked: bool  # the service has requests that it has not answered
    is_stuck: bool  # the client has to read before more can be sent
    waits_for_memory: bool


def deadline_of(
    activity: ConnectionActivity, limits: Limits, ticks: Callable[[int], int]
) -> tuple[int, str] | None:
    """The tick by which something has to happen, and what a client did wrong that lets it pass.

    None: the client waits for us. An empty reason: nothing wrong, it was idle.
    """
    is_half = activity.is_reading and activity.frame_bytes > 0
    if activity.waits_for_memory:
        deadline = activity.active_tick + ticks(limits.memory_wait_ms)
        return deadline, "found no memory for its request"
    if activity.is_reading and not activity.has_asked:
        deadline = activity.accepted_tick + ticks(limits.first_frame_ms)
        return deadline, "sent no whole request" if is_half else ""
    if is_half:
        arrival_ms = activity.frame_bytes * 1000 // limits.frame_bytes_per_second_min
        deadline = min(
            activity.active_tick + ticks(limits.half_frame_ms),
            activity.frame_tick + ticks(limits.half_frame_ms + arrival_ms),
        )
        return deadline, "stopped inside a request, or sent it too slowly"
    if not activity.is_stuck and (activity.is_parked or not activity.is_reading):
        # It waits for us, not we for it; a parked request has its deadline in the service.
        return None
    return activity.active_tick + ticks(limits.idle_ms), ""
