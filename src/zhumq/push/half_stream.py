"""One producer's stream of half messages: registers, prepares, decides, and is asked about its group's messages."""

import asyncio
import contextlib
import logging
from collections import deque
from typing import Any, Final, Protocol

from zhumq.coordinators.half_message_service import HalfMessageService
from zhumq.half_messages.message import GROUP_LENGTH_MAX, Body, HalfMessage
from zhumq.half_messages.requests import Answer, Decision, Problem
from zhumq.model.errors import BrokerError, ErrorCode
from zhumq.protocol.push import push_pb2 as pb
from zhumq.push.callers import Caller, not_permitted
from zhumq.push.frames import Refusal, code_of
from zhumq.push.services import PushServices
from zhumq.push.stream import login_ended
from zhumq.push.wire import WireBroken, first_frame
from zhumq.security.acl import Operation, ResourceType
from zhumq.security.login import Login

logger = logging.getLogger(__name__)

LAST_FRAMES_SECONDS_MAX: Final = 1.0
REQUESTS_MAX: Final = 1_000  # of a stream that are not answered: more are not read
REQUEST_BYTES_MAX: Final = 8 << 20  # of these together
# To a client that does not read: answers are small, and checks have bodies.
FRAMES_UNSENT_MAX: Final = 10_000
CHECKS_UNSENT_MAX: Final = 100

DECISIONS: Final[dict[int, Decision]] = {
    pb.HALF_UNKNOWN: Decision.UNKNOWN,
    pb.HALF_COMMIT: Decision.COMMIT,
    pb.HALF_ROLLBACK: Decision.ROLL_BACK,
}
_PROBLEMS: Final = {
    Problem.INVALID: pb.INVALID,
    Problem.UNKNOWN_ID: pb.UNKNOWN_HALF_MESSAGE,
    Problem.DECIDED: pb.HALF_MESSAGE_DECIDED,
    Problem.TOO_MANY: pb.TOO_MANY_HALF_MESSAGES,
}


class HalfWire(Protocol):
    """The gRPC call of a producer."""

    async def read(self) -> pb.HalfClientFrame | None:
        """The next frame; None when the client has half-closed. Raises WireBroken."""

    async def write(self, frame: pb.HalfServerFrame) -> None:
        """Write a frame; waits while the client reads slowly. Raises WireBroken."""


class HalfStream:
    """A connected producer. `run` lasts as long as the call."""

    def __init__(
        self,
        services: PushServices,
        half_messages: HalfMessageService,
        wire: HalfWire,
        caller: Caller,
        login: Login,
        register: pb.HalfRegister,
    ) -> None:
        self._services = services
        self._half_messages = half_messages
        self._wire = wire
        self._caller = caller
        self._login = login
        self.group = register.group
        self._client_id = register.client_id
        self._answers_checks = register.answers_checks
        self._unsent: deque[pb.HalfServerFrame] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()  # for another request
        self._room.set()
        self._requests: dict[asyncio.Task[None], int] = {}  # with their bytes
        self._request_bytes = 0
        self._ending: Refusal | None = None
        self._is_done = False  # The client has half-closed.
        self._runner: asyncio.Task[Any] | None = None

    # Called by the service

    def check(self, message: HalfMessage, body: Body) -> None:
        if len(self._unsent) >= CHECKS_UNSENT_MAX:
            return  # The client does not read: it is silent.
        check = pb.HalfCheck(
            id=message.id,
            topic=message.target.topic,
            partition=message.target.partition,
            body=body_frame(body),
            check=message.checks,
            prepared_ms=message.prepared_ms,
        )
        self._send(pb.HalfServerFrame(check=check))

    def lose(self) -> None:
        self.end(Refusal(pb.NOT_LEADER, "another broker coordinates the group now", retry=True))

    def end(self, why: Refusal) -> None:
        if self._ending is None:
            self._ending = why
            if self._runner is not None:
                # The client may not read, and then no more frames can be written.
                loop = asyncio.get_running_loop()
                loop.call_later(LAST_FRAMES_SECONDS_MAX, self._runner.cancel)
        self._wake.set()

    def check_access(self) -> None:
        """A producer that has lost its user or its rights can do nothing more."""
        user = self._login.user
        if user is not None and user not in self._services.image.security.users:
            self.end(login_ended("its user was deleted"))
        elif not _may_produce(self._caller, self.group):
            self.end(not_permitted(f"producer group {self.group!r}"))

    # Serving

    async def run(self) -> None:
        """Serve until the client half-closes, disconnects, or is refused."""
        self._runner = asyncio.current_task()
        self._services.half_streams.add(self)
        login_end = self._end_with_login()
        if self._answers_checks:
            self._half_messages.attach(self)
        self.check_access()
        reader = asyncio.create_task(self._read(), name="half-stream")
        try:
            registered = pb.HalfRegistered(broker_id=self._services.broker_id)
            self._send(pb.HalfServerFrame(registered=registered))
            await self._write()
        except WireBroken:
            pass
        finally:
            if login_end is not None:
                login_end.cancel()
            self._half_messages.detach(self)
            self._services.half_streams.discard(self)
            tasks = (reader, *self._requests)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _end_with_login(self) -> asyncio.TimerHandle | None:
        if self._login.ends_at_ms is None:
            return None
        seconds = max(self._login.ends_at_ms - self._services.clock.now_ms(), 0) / 1000
        why = login_ended("it was for a limited time")
        return asyncio.get_running_loop().call_later(seconds, self.end, why)

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._unsent:
                await self._wire.write(self._unsent.popleft())
            if self._ending is not None:
                await self._wire.write(_refused(self._ending))
                return
            if self._is_done and not self._requests:
                return

    async def _read(self) -> None:
        try:
            while (frame := await self._wire.read()) is not None:
                await self._start(frame)
            self._is_done = True
            self._wake.set()
        except WireBroken:
            self.end(Refusal(pb.UNAVAILABLE, "the connection is gone"))

    async def _start(self, frame: pb.HalfClientFrame) -> None:
        """Begin with a request. Many of them are under way at a time: they become durable together."""
        size = frame.ByteSize()
        task = asyncio.create_task(self._answer(frame))
        self._requests[task] = size
        self._request_bytes += size
        task.add_done_callback(self._answered)
        pause_ms = self._services.prepare_quotas.record_prepared(
            self._login.principal, self._client_id, size
        )
        if pause_ms:
            await asyncio.sleep(pause_ms / 1000)
        if len(self._requests) >= REQUESTS_MAX or self._request_bytes >= REQUEST_BYTES_MAX:
            self._room.clear()
            await self._room.wait()

    def _answered(self, task: "asyncio.Task[None]") -> None:
        self._request_bytes -= self._requests.pop(task)
        self._room.set()
        self._wake.set()
        if not task.cancelled() and task.exception() is not None:
            logger.error("a request about a half message failed", exc_info=task.exception())
            self.end(Refusal(pb.INTERNAL, "the broker failed; its log says why", retry=True))

    async def _answer(self, frame: pb.HalfClientFrame) -> None:
        try:
            answer = await self._carry_out(frame)
        except Refusal as refusal:
            answered = pb.HalfAnswered(code=refusal.code, message=str(refusal))
        except BrokerError as error:
            answered = pb.HalfAnswered(code=code_of(error), message=str(error))
        else:
            answered = pb.HalfAnswered(code=answer_code(answer), message=answer.message)
        answered.number = frame.number
        self._send(pb.HalfServerFrame(answered=answered))

    async def _carry_out(self, frame: pb.HalfClientFrame) -> Answer:
        match frame.WhichOneof("frame"):
            case "prepare":
                prepare = frame.prepare
                if not self._caller.may(Operation.WRITE, ResourceType.TOPIC, prepare.topic):
                    raise not_permitted(f"writing to topic {prepare.topic!r}")
                partition = prepare.partition if prepare.HasField("partition") else None
                return await self._half_messages.prepare(
                    prepare.id, self.group, prepare.topic, partition, body_of(prepare.body)
                )
            case "decide":
                decision = DECISIONS.get(frame.decide.decision)
                if decision is None:
                    raise Refusal(pb.INVALID, f"no decision has number {frame.decide.decision}")
                return await self._half_messages.decide(frame.decide.id, self.group, decision)
            case _:
                raise Refusal(pb.INVALID, "a frame without a request, or a second register")

    def _send(self, frame: pb.HalfServerFrame) -> None:
        if len(self._unsent) >= FRAMES_UNSENT_MAX:
            self.end(Refusal(pb.UNAVAILABLE, "the client reads too slowly", retry=True))
            return
        self._unsent.append(frame)
        self._wake.set()


async def serve_half_stream(
    services: PushServices, wire: HalfWire, caller: Caller, login: Login
) -> None:
    """Serve one call from its first frame to its end."""
    try:
        stream = await _accept(services, wire, caller, login)
    except Refusal as refusal:
        with contextlib.suppress(WireBroken):
            await wire.write(_refused(refusal))
        return
    except WireBroken:
        return
    await stream.run()


async def _accept(
    services: PushServices, wire: HalfWire, caller: Caller, login: Login
) -> HalfStream:
    first = await first_frame(wire.read, "register")
    group = first.register.group
    check_producer(caller, group)
    if len(services.half_streams) >= services.settings.streams_max:
        raise Refusal(pb.UNAVAILABLE, "there are too many streams (push.max.streams)", retry=True)
    try:
        coordinator = await services.half_messages.coordinator_of(group)
    except BrokerError as error:
        raise Refusal.of(error) from error
    if coordinator != services.broker_id:
        raise Refusal(
            pb.NOT_LEADER, f"broker {coordinator} coordinates group {group!r}", retry=True
        )
    return HalfStream(services, services.half_messages, wire, caller, login, first.register)


def check_producer(caller: Caller, group: str) -> None:
    """Raises Refusal."""
    if not 0 < len(group) <= GROUP_LENGTH_MAX:
        raise Refusal(pb.INVALID, f"a producer group has 1 to {GROUP_LENGTH_MAX} characters")
    if not _may_produce(caller, group):
        raise not_permitted(f"producer group {group!r}")


def _may_produce(caller: Caller, group: str) -> bool:
    """A producer group is a transactional id to ACLs: its producers decide on what is written under its name."""
    return caller.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, group)


def answer_code(answer: Answer) -> "pb.Code":
    """The push protocol's code for the answer of a shard."""
    if answer.problem is not None:
        return _PROBLEMS[answer.problem]
    match answer.code:
        case ErrorCode.NONE:
            return pb.OK
        case ErrorCode.NOT_COORDINATOR:
            return pb.NOT_LEADER
        case _:
            return pb.UNAVAILABLE


def body_of(frame: pb.HalfBody) -> Body:
    return Body(
        key=frame.key if frame.HasField("key") else None,
        value=frame.value if frame.HasField("value") else None,
        headers=tuple(
            (each.key, each.value if each.HasField("value") else None) for each in frame.headers
        ),
    )


def body_frame(body: Body) -> pb.HalfBody:
    headers = [pb.HalfHeader(key=key, value=value) for key, value in body.headers]
    return pb.HalfBody(key=body.key, value=body.value, headers=headers)


def _refused(refusal: Refusal) -> pb.HalfServerFrame:
    frame: Any = refusal.frame().refused
    return pb.HalfServerFrame(refused=frame)
