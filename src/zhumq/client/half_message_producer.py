"""The producer of half messages: stored and invisible until the program's own transaction is decided."""

import itertools
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Final, Self

from zhumq.client.errors import (
    ClientError,
    HalfMessageDecided,
    HalfMessageRefused,
    OutcomeUnknown,
    SecurityFailed,
    TransactionMisuse,
)
from zhumq.client.half_link import HalfLink, LinkBroken, find_coordinator
from zhumq.client.link import Credentials
from zhumq.client.push_credentials import channel_credentials
from zhumq.client.routes import find_push_addresses, parse_addresses
from zhumq.client.security import Security, as_security
from zhumq.client.waiting import Waiting
from zhumq.protocol.push import push_pb2 as pb

logger = logging.getLogger("zhumq.client")

BACKOFF_SECONDS_MIN: Final = 0.1
BACKOFF_SECONDS_MAX: Final = 1.0
LOOK_UP_AFTER_FAILURES: Final = (
    5  # addresses of brokers: that takes much longer than to ask a known one again
)
CLOSE_SECONDS_MAX: Final = 5.0
FRAME_BYTES_MAX: Final = 1 << 20  # the push listener takes no longer ones
_TRY_AGAIN: Final = frozenset({pb.UNAVAILABLE, pb.NOT_LEADER})
_DECISIONS: Final = {True: pb.HALF_COMMIT, False: pb.HALF_ROLLBACK, None: pb.HALF_UNKNOWN}


@dataclass(slots=True, eq=False)
class HalfMessage:
    """A message that consumers do not see before it is committed."""

    id: str
    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    # In a check: the how-manieth it is, and when the message was prepared. 0 in the program that prepared it.
    check: int = 0
    prepared_ms: int = 0
    _producer: "HalfMessageProducer | None" = field(default=None, repr=False)

    def commit(self) -> None:
        """The message appears in its topic, once. Durable when this returns; safe to repeat.

        Raises HalfMessageDecided if it was rolled back before, and OutcomeUnknown if no broker answers: then repeat it,
        or leave the decision to the check.
        """
        self._decide(is_commit=True)

    def rollback(self) -> None:
        """The message never appears. Durable when this returns; safe to repeat.

        Raises HalfMessageDecided if it was committed before, and OutcomeUnknown.
        """
        self._decide(is_commit=False)

    def _decide(self, *, is_commit: bool) -> None:
        if self._producer is None:
            raise TransactionMisuse("a check is answered by its return value")
        self._producer.decide(self.id, is_commit=is_commit)


Check = Callable[[HalfMessage], bool | None]
Headers = Mapping[str, bytes | str | None]


class HalfMessageProducer:
    """Sends a message together with a transaction of the program's own, such as one in a database: both or none.

    `prepare` stores the message, which consumers do not see. Then the program runs its transaction, and calls `commit` or
    `rollback`. If it dies in between, the broker asks any live producer of the same `group`: `check(half)` says True
    (commit), False (roll back) or None (not known yet), usually by a look at what the transaction has left, under
    `half.id`. It is called in a thread of the producer's own.

    >>> import zhumq
    >>> done = set()
    >>> with zhumq.HalfMessageProducer(
    ...     bootstrap, group="docs", check=lambda half: half.id in done
    ... ) as producer:
    ...     half = producer.prepare("greetings", b"hello", key=b"k")
    ...     done.add(half.id)  # the transaction
    ...     half.commit()
    """

    def __init__(
        self,
        bootstrap: str = "127.0.0.1:9092",
        *,
        group: str,
        check: Check | None,
        push: str | None = None,
        timeout: float = 30.0,
        client_id: str = "zhumq-python",
        security: Security = None,
        credentials: Credentials = None,
    ) -> None:
        """Connects in the background; `prepare` waits for that.

        Without a `check` this producer is asked nothing: another one of the group has to be. `timeout` is in seconds, for
        each call. `push` gives the push listeners, which the brokers at `bootstrap` are asked for otherwise. `security` is
        a ClientSecurity, or settings with Kafka's names; gRPC's `credentials` override it.
        """
        self._bootstrap = bootstrap
        self._security = as_security(security)
        self._credentials = credentials or channel_credentials(self._security)
        self._push = push
        self._addresses = [] if push is None else parse_addresses(push)
        self._failures = 0  # of asking them
        self._group = group
        self._check = check
        self._timeout = timeout
        self._register = pb.HalfRegister(
            group=group, client_id=client_id, answers_checks=check is not None
        )
        self._waiting = Waiting(push or bootstrap, self._security)
        self._lock = threading.Lock()
        self._link: HalfLink | None = None  # while it is registered
        self._unanswered: dict[int, tuple[pb.HalfClientFrame, Future[pb.HalfAnswered]]] = {}
        self._numbers = itertools.count(1)
        self._failure: ClientError | None = None
        self._is_closing = threading.Event()
        # The broker has at most 100 unanswered checks of a group.
        self._checks: queue.SimpleQueue[pb.HalfCheck | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run, name="half-messages", daemon=True)]
        if check is not None:
            answering = threading.Thread(
                target=self._answer_checks, args=(check,), name="half-checks", daemon=True
            )
            self._threads.append(answering)
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. Messages that are not decided are decided by a check of another producer of the group."""
        self._is_closing.set()
        self._checks.put(None)
        with self._lock:
            link = self._link
        if link is not None:
            link.finish()
        for thread in self._threads:
            thread.join(CLOSE_SECONDS_MAX)
        self._fail(TransactionMisuse("the producer is closed"))

    def prepare(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        id: str | None = None,  # noqa: A002 (the message's)
    ) -> HalfMessage:
        """Store a message that consumers do not see yet; durable when this returns.

        `id` is a UUID unless it is given: one that is found again in the program's own data, such as an order's, is
        useful, but no two messages may have the same. Raises HalfMessageRefused, and OutcomeUnknown if no broker answers
        in time: then run no transaction. Should the message be stored all the same, the check rolls it back.
        """
        half = HalfMessage(
            id=id or uuid.uuid4().hex,
            topic=topic,
            value=_bytes(value),
            key=_bytes(key),
            headers=tuple((name, _bytes(each)) for name, each in (headers or {}).items()),
            _producer=self,
        )
        body = pb.HalfBody(
            key=half.key,
            value=half.value,
            headers=[pb.HalfHeader(key=name, value=each) for name, each in half.headers],
        )
        prepare = pb.HalfPrepare(id=half.id, topic=topic, partition=partition, body=body)
        self._ask(pb.HalfClientFrame(prepare=prepare))
        return half

    def send_with(
        self,
        local_transaction: Callable[[HalfMessage], bool | None],
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
    ) -> HalfMessage:
        """Prepare a message, run the program's transaction, and commit the message; roll it back if the transaction
        returns False.

        If the transaction raises, whether it was committed may not be known: the message is left to the check, and the
        error is raised.
        """
        half = self.prepare(topic, value, key=key, headers=headers)
        if local_transaction(half) is False:
            half.rollback()
        else:
            half.commit()
        return half

    def decide(self, message_id: str, *, is_commit: bool) -> None:
        """Commit or roll back a message of this group, also one that another producer has prepared."""
        decide = pb.HalfDecide(id=message_id, decision=_DECISIONS[is_commit])
        self._ask(pb.HalfClientFrame(decide=decide))

    # Requests

    def _ask(self, frame: pb.HalfClientFrame) -> None:
        """Send a request, again after each reconnect, until it is answered."""
        answer: Future[pb.HalfAnswered] = Future()
        frame.number = next(self._numbers)
        if frame.ByteSize() > FRAME_BYTES_MAX:
            raise HalfMessageRefused(
                "INVALID", f"a half message of {frame.ByteSize()} bytes: it has at most a million"
            )
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._unanswered[frame.number] = (frame, answer)
            if self._link is not None:
                self._link.send(frame)
        try:
            answered = answer.result(self._timeout)
        except FutureTimeout:
            raise OutcomeUnknown(
                self._waiting.explain(
                    f"no broker answered for half messages of group {self._group!r}"
                    f" within {self._timeout:g} s"
                )
            ) from None
        finally:
            with self._lock:
                self._unanswered.pop(frame.number, None)
        if answered.code == pb.HALF_MESSAGE_DECIDED:
            raise HalfMessageDecided(pb.Code.Name(answered.code), answered.message)
        if answered.code != pb.OK:
            raise HalfMessageRefused(pb.Code.Name(answered.code), answered.message)

    def _fail(self, failure: ClientError) -> None:
        with self._lock:
            self._failure = self._failure or failure
            unanswered = list(self._unanswered.values())
        for _, answer in unanswered:
            if not answer.done():
                answer.set_exception(failure)

    # The thread of the connection

    def _run(self) -> None:
        backoff = BACKOFF_SECONDS_MIN
        while not self._is_closing.is_set():
            began = time.monotonic()
            try:
                self._serve()
            except LinkBroken as reason:
                self._waiting.note(str(reason))
            except ClientError as failure:
                self._fail(failure)
                return
            except Exception as bug:
                logger.exception("the producer of half messages failed")
                self._fail(ClientError(f"the producer of half messages failed: {bug}"))
                return
            served = time.monotonic() - began > BACKOFF_SECONDS_MAX
            backoff = BACKOFF_SECONDS_MIN if served else min(backoff * 2, BACKOFF_SECONDS_MAX)
            self._is_closing.wait(backoff)

    def _serve(self) -> None:
        """Connect to the coordinator, and serve until the stream ends. Raises LinkBroken and ClientError."""
        link = HalfLink(self._find_coordinator(), self._credentials, self._register)
        try:
            for frame in link.frames():
                self._handle(link, frame)
        finally:
            with self._lock:
                self._link = None
            link.close()

    def _find_coordinator(self) -> str:
        if self._addresses:
            try:
                return find_coordinator(self._addresses, self._group, self._credentials)
            except LinkBroken:
                self._failures += 1
                if self._push is not None or self._failures % LOOK_UP_AFTER_FAILURES:
                    raise
        # The first time, or none of the brokers that were known answers any more.
        try:
            found = find_push_addresses(self._bootstrap, self._security)
        except SecurityFailed:
            raise
        except ClientError as reason:
            raise LinkBroken(str(reason)) from None
        self._addresses = list(found.values())
        return find_coordinator(self._addresses, self._group, self._credentials)

    def _handle(self, link: HalfLink, frame: pb.HalfServerFrame) -> None:
        match frame.WhichOneof("frame"):
            case "registered":
                with self._lock:
                    self._link = link
                    for request, _ in self._unanswered.values():
                        link.send(request)
                if self._is_closing.is_set():
                    link.finish()
            case "answered":
                answered = frame.answered
                if answered.code in _TRY_AGAIN:
                    raise LinkBroken(answered.message)
                with self._lock:
                    waiting = self._unanswered.get(answered.number)
                if waiting is not None and not waiting[1].done():
                    waiting[1].set_result(answered)
            case "check":
                self._checks.put(frame.check)
            case "refused":
                refused = frame.refused
                if refused.retry:
                    raise LinkBroken(refused.message)
                raise HalfMessageRefused(pb.Code.Name(refused.code), refused.message)

    # The thread of the checks

    def _answer_checks(self, check: Check) -> None:
        while (asked := self._checks.get()) is not None:
            half = HalfMessage(
                id=asked.id,
                topic=asked.topic,
                value=asked.body.value if asked.body.HasField("value") else None,
                key=asked.body.key if asked.body.HasField("key") else None,
                headers=tuple(
                    (each.key, each.value if each.HasField("value") else None)
                    for each in asked.body.headers
                ),
                check=asked.check,
                prepared_ms=asked.prepared_ms,
            )
            try:
                decision = _DECISIONS[check(half)]
            except Exception:
                logger.exception("the check of half message %s failed: it is asked again", half.id)
                decision = pb.HALF_UNKNOWN
            with self._lock:
                if self._link is not None:  # Otherwise the broker asks again.
                    self._link.send(
                        pb.HalfClientFrame(decide=pb.HalfDecide(id=half.id, decision=decision))
                    )


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
