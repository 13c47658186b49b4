"""One client's connection: frames in, answers out in the order of the requests."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import islice
from time import monotonic, thread_time

from zhumq.model.errors import MalformedFrame
from zhumq.net.answers import AnswerWriter
from zhumq.net.expiry import ConnectionActivity, deadline_of
from zhumq.net.mute import Mute
from zhumq.net.owner import Owner
from zhumq.net.service import Answer, ConnectionInfo
from zhumq.net.slow_lane import NEW, QUICK, SLOW, SLOW_SECONDS
from zhumq.protocol.api import Part
from zhumq.protocol.connection import ConnectionCodec

logger = logging.getLogger(__name__)

# Frames of one connection served in one turn of the loop; then other connections are served.
REQUESTS_PER_TURN_MAX = 256
FRAME_SIZE_BYTES = 4  # the size in front of a frame
# Larger requests are served one by one: serving them together saves nothing.
RUN_FRAME_BYTES_MAX = 16 * 1024


class Connection(asyncio.Protocol):
    """The protocol object behind a client's transport.

    Frames wait in `_backlog` until a limit lets them through to the service; answers wait in
    `_slots` until all earlier ones are there; their parts wait in `_answers` until the socket
    takes them. There is no task: all work happens in callbacks of the event loop.
    """

    __slots__ = (
        "_accepted_tick", "_active_tick", "_answers", "_backlog", "_closing", "_codec", "_counters", "_draining",
        "_frame_tick", "_half_bytes", "_has_asked", "_limits", "_memory", "_mute", "_owner", "_pace",
        "_requests_in_flight", "_serving_scheduled", "_slots", "_times", "_transport", "_wheel", "_whole_bytes",
        "info", "is_reading", "proven_bytes", "reserved_bytes",
    )  # fmt: skip

    def __init__(self, transport: asyncio.Transport, info: ConnectionInfo, owner: Owner) -> None:
        self.info = info
        self._transport = transport
        self._owner = owner
        self._limits = owner.limits
        self._counters = owner.counters
        self._memory = owner.memory
        self._wheel = owner.wheel
        self._times = owner.times
        self._codec = ConnectionCodec(owner.limits.frame_bytes_max)
        if not info.is_authenticated:
            self._codec.limit_frames(owner.limits.unauthenticated_frame_bytes_max)
            info.on_authenticated = partial(self._codec.limit_frames, owner.limits.frame_bytes_max)
        self._answers = AnswerWriter(
            owner.loop,
            transport,
            owner.counters,
            on_room=self._on_room,
            on_failed=self._on_send_failed,
        )
        self._mute = Mute(owner.loop, self._on_room)
        info.mute = self._mute.extend
        self._backlog: deque[bytes] = deque()
        # Requests that the service has and has not answered yet, in order: (number of requests,
        # their bytes, the key of their API, when they were served, their answer or a future of it).
        self._slots: deque[tuple[int, int, bytes, float, Answer]] = deque()
        self._requests_in_flight = 0  # in `_slots`
        self._half_bytes = 0  # of a frame that is not whole yet
        # Invariant: 0, or all missing bytes of that frame, which are then reserved.
        self.reserved_bytes = 0
        self._whole_bytes = 0  # of frames in `_backlog` and `_slots`
        self._has_asked = False
        self._pace = NEW
        self.proven_bytes = 0  # the largest frame received in pieces
        self.is_reading = True
        self._serving_scheduled = False
        self._draining = False
        self._closing = False
        self._accepted_tick = self._active_tick = self._frame_tick = self._wheel.tick
        self._wheel.schedule(self, self._wheel.tick + self._check_ticks())

    # Called by the transport.

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._active_tick = self._wheel.tick
        size = len(data)
        self._counters.bytes_received += size
        try:
            frames = self._codec.receive_bytes(data)
        except MalformedFrame as error:
            self._fail(error)
            return
        if frames:
            self._has_asked = True
            self._counters.requests_received += len(frames)
            if len(frames[0]) == size - FRAME_SIZE_BYTES and self._is_at_rest:
                self._serve_alone(frames[0])
                return
            if self._half_bytes and len(frames[0]) > self.proven_bytes:
                self.proven_bytes = len(frames[0])
        if frames or not self._half_bytes:
            self._frame_tick = self._active_tick
        self._half_bytes += size
        reserved = min(self.reserved_bytes, size)
        self.reserved_bytes -= reserved
        self._memory.bytes_used += size - reserved
        if frames:
            self._accept(frames)
            self._backlog.extend(frames)
            self._serve()
        elif not self.reserved_bytes:
            self._regulate_reading()

    def pause_writing(self) -> None:
        self._answers.is_paused = True
        self._owner.unread.add(self, self._answers.memory_bytes)

    def resume_writing(self) -> None:
        self._answers.is_paused = False
        self._owner.unread.discard(self)
        self._on_room()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._closing = True
        self._mute.cancel()
        self._answers.close()
        self._wheel.discard(self)
        self._owner.lane.leave(self)
        self._counters.requests_in_flight -= len(self._backlog) + self._requests_in_flight
        self._backlog.clear()
        for *_, answer in self._slots:
            if isinstance(answer, asyncio.Future):
                answer.cancel()
        self._slots.clear()
        if not self.is_reading:
            self.is_reading = True
            self._counters.reading_paused -= 1
        self._release_memory()
        self._owner.forget(self.info)

    # Called by the listener, the deadline wheel and the request memory.

    @property
    def address(self) -> str:
        return self.info.client_host

    @property
    def held_bytes(self) -> int:
        return self._half_bytes + self.reserved_bytes + self._whole_bytes

    @property
    def quiet_ms(self) -> int:
        return self._wheel.milliseconds(self._wheel.tick - self._active_tick)

    def memory_granted(self, reserved_bytes: int) -> None:
        # The broker made the client wait, so the wait does not count against the client.
        self._active_tick = self._wheel.tick
        if reserved_bytes:
            self.reserved_bytes = reserved_bytes
            self._frame_tick = self._wheel.tick
        self._regulate_reading()

    def cut_off(self, reason: str) -> None:
        if self._closing:
            return
        self._counters.connections_cut_off += 1
        self._warn_of_closing(reason)
        self.abort()
        self._release_memory()

    def drain(self) -> None:
        """Stops serving; closes once the requests that the service has are answered."""
        self._draining = True
        self._pump()

    def abort(self) -> None:
        self._closing = True
        self._transport.abort()

    def expire(self, tick: int) -> int:
        """Closes the connection if a deadline has passed; else returns the tick of the next check."""
        if self._closing:
            self.abort()
            return 0
        found = deadline_of(self._activity(), self._limits, self._wheel.ticks)
        if found is None:
            return tick + self._check_ticks()
        deadline, reason = found
        if tick < deadline:
            return min(deadline, tick + self._check_ticks())
        self._counters.connections_expired += 1
        if reason:
            self._warn_of_closing(reason)
        self._close_after_answers()
        return tick + self._wheel.ticks(self._limits.close_ms)

    def _activity(self) -> ConnectionActivity:
        return ConnectionActivity(
            accepted_tick=self._accepted_tick,
            active_tick=self._active_tick,
            frame_tick=self._frame_tick,
            frame_bytes=self._half_bytes + self._codec.missing_bytes,
            has_asked=self._has_asked,
            may_be_anyone=self.info.on_authenticated is not None,
            is_reading=self.is_reading,
            is_parked=bool(self._slots),
            is_stuck=self._answers.is_stuck,
            waits_for_memory=not self.is_reading and self._memory.waits(self),
        )

    def _check_ticks(self) -> int:
        # A frame may start and stall at any time, so the shortest deadline sets the interval.
        return self._wheel.ticks(self._limits.shortest_wait_ms)

    # Requests.

    @property
    def _is_at_rest(self) -> bool:
        return not (
            self._half_bytes
            or self._backlog
            or self._slots
            or self._answers.bytes_queued
            or self._answers.is_paused
            or self._draining
            or self._mute.is_on
            or (self._pace != QUICK and self._waits_in_lane)
        )

    @property
    def _waits_in_lane(self) -> bool:
        return self._pace == SLOW or (self._pace == NEW and self._owner.lane.is_busy)

    def serve_one(self) -> None:
        self._serve(1, from_lane=True)

    def _serve_alone(self, frame: bytes) -> None:
        """Fast path: one request with nothing queued before it, usually answered at once."""
        is_quick = self._pace == QUICK
        worked = 0.0 if is_quick else thread_time()
        begun = monotonic()
        try:
            _, answer = self._owner.service.handle((frame,), self.info)
        except Exception as error:
            self._fail(error)
            return
        seconds = monotonic() - begun
        if seconds > SLOW_SECONDS or not is_quick:
            held = seconds if is_quick else thread_time() - worked
            self._pace = self._owner.lane.next_pace(self._pace, held)
        if isinstance(answer, list) and len(answer) == 1 and isinstance(answer[0], bytes):
            self._times.record(frame[:2], seconds, 1)
            self._answers.write(answer[0])
            if self._answers.is_paused or self._mute.is_on:
                self._regulate_reading()
            return
        size = len(frame) + FRAME_SIZE_BYTES
        self._half_bytes += size
        self._memory.bytes_used += size
        self._accept((frame,))
        self._take_answer(1, size, frame[:2], begun, answer)
        if self._answers.bytes_queued:
            self._answers.flush()
        self._regulate_reading()

    def _accept(self, frames: Sequence[bytes]) -> None:
        """Counts complete frames as in flight until they are answered."""
        size = FRAME_SIZE_BYTES * len(frames) + sum(map(len, frames))
        self._half_bytes -= size
        self._whole_bytes += size
        self._counters.requests_in_flight += len(frames)
        self._memory.frame_completed(self)

    def _release_memory(self) -> None:
        self._owner.unread.discard(self)
        # Freed now, not when the garbage collector finds this connection.
        self._codec.close()
        self._memory.forget(self, held_bytes=self.held_bytes)
        self._half_bytes = self.reserved_bytes = self._whole_bytes = 0

    def _serve(self, turn: int = REQUESTS_PER_TURN_MAX, *, from_lane: bool = False) -> None:
        """Passes frames to the service until there are none or a limit is reached."""
        backlog = self._backlog
        owner = self._owner
        while backlog and turn and self._may_serve:
            if self._pace != QUICK and not from_lane and self._waits_in_lane:
                break
            is_quick = self._pace == QUICK
            worked = 0.0 if is_quick else thread_time()
            begun = monotonic()
            run = self._next_run(turn)
            try:
                count, answer = owner.service.handle(run, self.info)
            except Exception as error:
                backlog.popleft()
                self._counters.requests_in_flight -= 1
                self._fail(error)
                return
            size = FRAME_SIZE_BYTES * count + sum(map(len, run[:count]))
            if count == len(backlog):
                backlog.clear()
            else:
                for _ in range(count):
                    backlog.popleft()
            turn -= count
            held = (monotonic() - begun if is_quick else thread_time() - worked) / count
            if held > SLOW_SECONDS or not is_quick:
                self._pace = self._owner.lane.next_pace(self._pace, held)
            self._take_answer(count, size, run[0][:2], begun, answer)
        self._answers.flush()
        # Where a limit holds requests back, `_pump` is called once there is room again.
        if backlog and self._may_serve and not self._serving_scheduled:
            if self._waits_in_lane:
                owner.lane.enter(self, is_new=self._pace == NEW)
            else:
                self._serving_scheduled = True
                owner.loop.call_soon(self._serve_next_turn)
        self._regulate_reading()

    def _next_run(self, count_max: int) -> Sequence[bytes]:
        """The frames that the service may handle together."""
        backlog = self._backlog
        if len(backlog) == 1 or len(backlog[0]) > RUN_FRAME_BYTES_MAX:
            return (backlog[0],)
        room = self._limits.requests_in_flight_max - self._requests_in_flight
        return list(islice(backlog, min(count_max, room)))

    @property
    def _may_serve(self) -> bool:
        return (
            self._requests_in_flight < self._limits.requests_in_flight_max
            and self._answers.bytes_queued < self._limits.answer_bytes_max
            and not self._answers.is_paused
            and not self._mute.is_on
            and not self._draining
            and not self._closing
        )

    def _take_answer(
        self, request_count: int, request_bytes: int, key: bytes, begun: float, answer: Answer
    ) -> None:
        self._requests_in_flight += request_count
        if answer is None or isinstance(answer, list):
            if self._slots:
                self._slots.append((request_count, request_bytes, key, begun, answer))
            else:
                self._times.record(key, monotonic() - begun, request_count)
                self._answer(request_count, request_bytes, answer)
        else:
            self._slots.append((request_count, request_bytes, key, begun, answer))
            answer.add_done_callback(self._on_answered)

    def _serve_next_turn(self) -> None:
        self._serving_scheduled = False
        self._serve()

    def _on_answered(self, future: asyncio.Future[list[Part] | None]) -> None:
        if self._closing:
            # The client is gone: retrieve the failure, so that asyncio does not log it.
            if not future.cancelled():
                future.exception()
            return
        self._active_tick = self._wheel.tick
        slots = self._slots
        while slots:
            count, size, key, begun, answer = slots[0]
            if isinstance(answer, asyncio.Future):
                if not answer.done():
                    break
                if answer.cancelled():
                    self._close_after_answers()
                    return
                error = answer.exception()
                if error is not None:
                    self._fail(error)
                    return
                answer = answer.result()
            slots.popleft()
            self._times.record(key, monotonic() - begun, count)
            self._answer(count, size, answer)
        self._pump()
        if self.info.closes_after_answer and not slots:
            self._close_after_answers()

    def _answer(self, request_count: int, request_bytes: int, parts: list[Part] | None) -> None:
        """Queues the answer of the oldest unanswered requests."""
        self._requests_in_flight -= request_count
        self._counters.requests_in_flight -= request_count
        self._whole_bytes -= request_bytes
        self._memory.release(request_bytes)
        if parts:
            self._answers.put(parts)

    def _on_room(self) -> None:
        """Continues after the peer has read, or is not throttled any more."""
        self._active_tick = self._wheel.tick
        self._pump()

    def _pump(self) -> None:
        """Continues what had to wait: sending, closing, serving, reading."""
        self._answers.flush()
        if self._closing:
            return
        if self._draining:
            if not self._slots and not self._answers.bytes_queued and not self._answers.is_paused:
                self._close_after_answers()
        elif self._backlog:
            self._serve()
            return
        self._regulate_reading()

    def _regulate_reading(self) -> None:
        memory = self._memory
        if memory.bytes_used > memory.bytes_max and memory.is_overdrawn:
            memory.relieve_at_once()
        if self._closing:
            return
        limits = self._limits
        may_read = not (
            self._draining
            or self._backlog
            or self._mute.is_on
            or self._answers.is_paused
            or self._requests_in_flight >= limits.requests_in_flight_max
            or (
                self._whole_bytes
                and self._whole_bytes + self._half_bytes > limits.request_bytes_max
            )
            or self._answers.bytes_queued >= limits.answer_bytes_max
        )
        if may_read and self._codec.missing_bytes and not self.reserved_bytes:
            may_read = self._reserve_rest(self._codec)
        elif may_read and memory.bytes_used > memory.bytes_max:
            may_read = memory.admits(self)
        if may_read is not self.is_reading:
            self.is_reading = may_read
            if may_read:
                self._counters.reading_paused -= 1
                self._transport.resume_reading()
            else:
                self._counters.reading_paused += 1
                self._transport.pause_reading()

    def _reserve_rest(self, codec: ConnectionCodec) -> bool:
        """Reserves memory for the rest of a frame. False: reading waits until there is some."""
        missing_bytes = codec.missing_bytes
        if not self._memory.reserve(self, missing_bytes, codec.held_bytes + missing_bytes):
            if self.proven_bytes:
                self._owner.relieve_soon()
            return False
        self.reserved_bytes = missing_bytes
        return True

    # Closing.

    def _on_send_failed(self, error: Exception) -> None:
        # Part of an answer was sent and the rest cannot be, so the connection is unusable.
        if not isinstance(error, ConnectionError):
            self._counters.connections_failed += 1
            self._warn_of_closing(f"an answer could not be read: {error}")
        self.abort()

    def _fail(self, error: BaseException) -> None:
        """Closes the connection: without this answer, no later one may be sent."""
        if isinstance(error, MalformedFrame):
            self._counters.connections_malformed += 1
            self._warn_of_closing(f"not the Kafka protocol: {error}")
        else:
            self._counters.connections_failed += 1
            logger.error("the service failed on a request of %s", self.info, exc_info=error)
        self._close_after_answers()

    def _warn_of_closing(self, reason: str) -> None:
        info = self.info
        self._owner.warn("closed %s:%d: %s", info.client_host, info.client_port, reason)

    def _close_after_answers(self) -> None:
        """Closes; the peer may still read the answers that are ready, for `close_ms`."""
        self._answers.flush()
        self._closing = True
        if self._answers.bytes_queued:
            self._transport.abort()
            return
        self._transport.close()
        self._wheel.schedule(self, self._wheel.tick + self._wheel.ticks(self._limits.close_ms))
