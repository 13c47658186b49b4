"""One shard: the half messages of one partition of `__half_messages`. Requests in, records and replies out."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, assert_never

from zhumq.half_messages.checks import Checks
from zhumq.half_messages.message import (
    ENDED,
    GROUP_LENGTH_MAX,
    ID_LENGTH_MAX,
    TRANSITIONS,
    HalfMessage,
    HalfState,
)
from zhumq.half_messages.persisted import (
    STAGED,
    STATE_OF,
    decode_key,
    decode_staged,
    decode_state,
    staged_record,
    staged_tombstone,
    state_record,
    state_tombstone,
)
from zhumq.half_messages.requests import (
    Answer,
    AwaitChecks,
    AwaitCommitted,
    Decide,
    Decision,
    HalfRequest,
    HalfResponse,
    ListHalfMessages,
    MarkFailed,
    MarkSent,
    Messages,
    Prepare,
    Problem,
    SetLive,
)
from zhumq.half_messages.settings import HalfSettings
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Outcome, Reply, ReplyToken, StateRecord

COMMITTED_AT_ONCE_MAX: Final = 500  # messages in one answer to AwaitCommitted
CHANGED_AT_ONCE_MAX: Final = 500  # by deadlines in one turn; the others are due at once again
# The decision on a message that is ended is remembered for a request that comes again.
ENDED_MS: Final = 600_000
ENDED_MAX: Final = 100_000
REASON_LENGTH_MAX: Final = 1_000
TARGETS_SHARED_MAX: Final = 10_000
NOWHERE: Final = TopicPartition("", -1)
NO_OFFSET: Final = -1
State = HalfState


@dataclass(slots=True)
class _Turn:
    """The decision on one request, while it is made."""

    now_ms: int
    records: list[StateRecord] = field(default_factory=list)
    replies: list[Reply[HalfResponse]] = field(default_factory=list)
    committed: list[HalfMessage] = field(default_factory=list)  # by this decision
    # There may be more to hand out than before.
    has_checks: bool = False
    has_committed: bool = False

    def change(self, message: HalfMessage, state: HalfState, reason: str = "") -> None:
        assert state in TRANSITIONS[message.state], f"{message.state} to {state}"
        changed = replace(message, state=state, changed_ms=self.now_ms, reason=reason)
        self.records.append(state_record(changed))
        if state is HalfState.COMMITTED:
            self.committed.append(changed)
        elif state in ENDED:
            self.records.append(staged_tombstone(message.id))

    def outcome(self) -> Outcome[HalfResponse]:
        return Outcome(records=tuple(self.records), replies=tuple(self.replies))


class HalfShard:
    """The half messages of the producer groups that map to one partition.

    Its hard state is the staged record of each message, which holds the body, and the last state record. The broker that
    leads the shard asks with AwaitChecks for messages whose producers are silent, and with AwaitCommitted for messages
    that it moves into their topics. It marks those in the transaction that writes them: until the marker comes they are
    neither committed nor sent, and are not handed out.
    """

    def __init__(self, settings: HalfSettings) -> None:
        self._settings = settings
        self.messages: dict[str, HalfMessage] = {}  # that are not ended, the oldest first
        self.ended: OrderedDict[str, HalfMessage] = OrderedDict()  # the first one expires first
        self._given_up: OrderedDict[str, None] = OrderedDict()  # the same
        self._committed: dict[TopicPartition, dict[str, None]] = {}
        self._targets: dict[TopicPartition, TopicPartition] = {}  # one object for each
        self.checks = Checks(settings.first_check_ms, settings.check_interval_ms)
        # Marks of open transactions, by producer, and the messages they are about.
        self._marks: dict[int, list[StateRecord]] = {}
        self._marked: set[str] = set()
        self._released_ms: int | None = (
            None  # when marks were dropped: their messages are free again
        )
        # Soft state: the requests that wait.
        self._check_waiter: ReplyToken | None = None
        self._move_waiter: ReplyToken | None = None
        self._avoided: frozenset[TopicPartition] = frozenset()
        self._has_reported_marks = False

    # The StateMachine interface

    @property
    def next_deadline_ms(self) -> int | None:
        deadlines = [self.checks.next_deadline_ms, self._released_ms]
        if self.ended:
            first = next(iter(self.ended.values()))
            is_full = len(self.ended) > ENDED_MAX
            deadlines.append(first.changed_ms + (0 if is_full else ENDED_MS))
        if self._given_up:
            given_up = self.messages[next(iter(self._given_up))]
            deadlines.append(given_up.changed_ms + self._settings.retention_ms)
        return min((each for each in deadlines if each is not None), default=None)

    def loaded(self, _now_ms: int) -> Outcome[HalfResponse]:
        """The log is read. No request waits yet, and deadlines that passed meanwhile are due."""
        return Outcome()

    def handle(self, request: HalfRequest, token: ReplyToken, now_ms: int) -> Outcome[HalfResponse]:
        turn = _Turn(now_ms)
        match request:
            case Prepare():
                turn.replies.append(Reply(token, self._prepare(request, turn)))
            case Decide():
                turn.replies.append(Reply(token, self._decide(request, turn)))
            case SetLive():
                self.checks.set_live(request.group, is_live=request.is_live)
                turn.has_checks = True
                turn.replies.append(Reply(token, Answer()))
            case AwaitChecks():
                _replace(self._check_waiter, turn)
                self._check_waiter = token
                turn.has_checks = True
            case AwaitCommitted():
                _replace(self._move_waiter, turn)
                self._move_waiter = token
                self._avoided = request.avoided
                turn.has_committed = True
            case MarkSent():
                return self._mark_sent(request, token, now_ms)
            case MarkFailed():
                turn.replies.append(Reply(token, self._mark_failed(request, turn)))
            case ListHalfMessages():
                turn.replies.append(Reply(token, self._list(request)))
            case _:
                assert_never(request)
        return self._finish(turn)

    def expire(self, now_ms: int) -> Outcome[HalfResponse]:
        turn = _Turn(now_ms)
        self._expire_checks(turn)
        if self._released_ms is not None:
            self._released_ms = None
            turn.has_committed = True
        for message in islice(self.ended.values(), CHANGED_AT_ONCE_MAX):
            is_over = message.changed_ms + ENDED_MS <= now_ms
            if not is_over and len(self.ended) - len(turn.records) <= ENDED_MAX:
                break
            turn.records.append(state_tombstone(message.id))
        for message_id in islice(self._given_up, CHANGED_AT_ONCE_MAX):
            if self.messages[message_id].changed_ms + self._settings.retention_ms > now_ms:
                break
            turn.records += (state_tombstone(message_id), staged_tombstone(message_id))
        return self._finish(turn)

    def replay(self, record: StateRecord, _now_ms: int) -> None:
        key = decode_key(record.key)
        if key is None:
            return
        if key.kind == STAGED:
            # A tombstone follows the state that ends the message, or comes with the state's own tombstone.
            if record.value is not None:
                self._replay_staged(key.id, record.value, record.offset)
        elif record.value is None:
            self._forget(key.id)
            self.ended.pop(key.id, None)
        else:
            self._replay_state(key.id, record.value)

    def replay_pending(self, producer_id: int, record: StateRecord, _now_ms: int) -> None:
        self._marks.setdefault(producer_id, []).append(record)
        key = decode_key(record.key)
        if key is not None:
            self._marked.add(key.id)

    def end_transaction(self, producer_id: int, now_ms: int, *, is_commit: bool) -> None:
        marks = self._marks.pop(producer_id, [])
        for record in marks:
            key = decode_key(record.key)
            if key is not None:
                self._marked.discard(key.id)
            if is_commit:
                self.replay(record, now_ms)
        if marks and not is_commit:
            self._released_ms = now_ms

    # Replaying

    def _replay_staged(self, message_id: str, value: bytes, offset: int) -> None:
        staged = decode_staged(value)
        if staged is None or message_id in self.messages:
            return  # It is of a newer version, or damaged by its writer.
        target = TopicPartition(staged.topic, staged.partition)
        self.ended.pop(message_id, None)
        if len(self._targets) >= TARGETS_SHARED_MAX:
            self._targets.clear()
        self._change(
            HalfMessage(
                id=message_id,
                group=self.checks.name_of(staged.group),
                target=self._targets.setdefault(target, target),
                offset=offset,
                prepared_ms=staged.prepared_ms,
                changed_ms=staged.prepared_ms,
            )
        )

    def _replay_state(self, message_id: str, value: bytes) -> None:
        decoded = decode_state(value)
        if decoded is None:
            return
        known = self.messages.get(message_id)
        state = STATE_OF[decoded.state]
        if known is None:
            if state in ENDED:  # Its staged record is compacted away.
                self.ended[message_id] = HalfMessage(
                    id=message_id,
                    group=decoded.group,
                    target=NOWHERE,
                    offset=NO_OFFSET,
                    prepared_ms=decoded.prepared_ms,
                    state=state,
                    checks=decoded.checks,
                    changed_ms=decoded.changed_ms,
                    reason=decoded.reason,
                )
            return
        self._change(
            replace(
                known,
                state=state,
                checks=decoded.checks,
                changed_ms=decoded.changed_ms,
                reason=decoded.reason,
            )
        )

    def _change(self, message: HalfMessage) -> None:
        """Put a message where its state belongs."""
        known = self.messages.get(message.id)
        if known is not None and known.state is not message.state:
            self._leave(known)
        match message.state:
            case State.PENDING if known is None:
                self.checks.add(message)
            case State.PENDING:
                self.checks.set(message)
            case State.COMMITTED:
                self._committed.setdefault(message.target, {})[message.id] = None
            case State.GIVEN_UP:
                self._given_up[message.id] = None
            case State.FAILED:
                pass
            case State.SENT | State.ROLLED_BACK:
                self.messages.pop(message.id, None)
                self.ended[message.id] = replace(message, target=NOWHERE, offset=NO_OFFSET)
                return
            case _:
                assert_never(message.state)
        self.messages[message.id] = message

    def _leave(self, message: HalfMessage) -> None:
        if message.state is State.PENDING:
            self.checks.remove(message)
        elif message.state is State.GIVEN_UP:
            self._given_up.pop(message.id, None)
        elif message.state is State.COMMITTED:
            committed = self._committed[message.target]
            committed.pop(message.id, None)
            if not committed:
                del self._committed[message.target]

    def _forget(self, message_id: str) -> None:
        message = self.messages.pop(message_id, None)
        if message is not None:
            self._leave(message)

    # Preparing and deciding

    def _prepare(self, request: Prepare, turn: _Turn) -> Answer:
        if not 0 < len(request.id) <= ID_LENGTH_MAX:
            return _invalid(f"the id of a half message has 1 to {ID_LENGTH_MAX} characters")
        if not 0 < len(request.group) <= GROUP_LENGTH_MAX:
            return _invalid(f"the name of a producer group has 1 to {GROUP_LENGTH_MAX} characters")
        known = self.messages.get(request.id) or self.ended.get(request.id)
        if known is not None:
            if known.state is State.PENDING and known.group == request.group:
                return Answer()  # It came before, and its answer was lost.
            return _decided(request.id, f"it is in use, and {known.state}: take another id")
        if len(self.messages) >= self._settings.pending_max:
            return Answer(
                problem=Problem.TOO_MANY,
                message=f"there are {len(self.messages)} half messages already"
                " (half.message.pending.max): decide on some, or see `zhumq half list`",
            )
        turn.records.append(
            staged_record(request.id, request.group, request.target, turn.now_ms, request.body)
        )
        return Answer()

    def _decide(self, request: Decide, turn: _Turn) -> Answer:
        message = self.messages.get(request.id) or self.ended.get(request.id)
        is_operator = not request.group
        if message is None or not (is_operator or message.group == request.group):
            return Answer(
                problem=Problem.UNKNOWN_ID,
                message=f"there is no half message {request.id!r} of the group"
                " that is pending, or was decided a short time ago",
            )
        match request.decision:
            case Decision.UNKNOWN:
                if message.state is State.PENDING:
                    self.checks.answered(message)
                    turn.has_checks = True
                return Answer()
            case Decision.COMMIT:
                return self._commit(message, turn, is_operator=is_operator)
            case Decision.ROLL_BACK:
                return self._roll_back(message, turn, is_operator=is_operator)
            case _:
                assert_never(request.decision)

    def _commit(self, message: HalfMessage, turn: _Turn, *, is_operator: bool) -> Answer:
        match message.state:
            case State.COMMITTED | State.SENT:
                return Answer()
            case State.FAILED if not is_operator:
                return Answer()
            case State.ROLLED_BACK:
                return _decided(message.id, "it was rolled back")
            case State.GIVEN_UP if not is_operator:
                return _decided(
                    message.id, f"it was rolled back: {message.reason}; an operator can commit it"
                )
            case _:
                turn.change(message, State.COMMITTED)
                turn.has_committed = turn.has_checks = True
                return Answer()

    def _roll_back(self, message: HalfMessage, turn: _Turn, *, is_operator: bool) -> Answer:
        match message.state:
            case State.ROLLED_BACK:
                return Answer()
            case State.FAILED if not is_operator:
                return _decided(message.id, "it was committed")
            case State.COMMITTED | State.SENT:
                return _decided(message.id, "it was committed")
            case _:
                turn.change(message, State.ROLLED_BACK)
                turn.has_checks = True
                return Answer()

    # Checks

    def _expire_checks(self, turn: _Turn) -> None:
        for _ in range(CHANGED_AT_ONCE_MAX):
            message_id = self.checks.pop_due(turn.now_ms)
            if message_id is None:
                break
            message = self.messages[message_id]
            if message.checks >= self._settings.checks_max:
                reason = f"no producer decided after {message.checks} checks"
                turn.change(message, State.GIVEN_UP, reason)
            elif message.prepared_ms + self._settings.retention_ms <= turn.now_ms:
                reason = "no producer of the group was connected"
                turn.change(message, State.GIVEN_UP, reason)
            else:
                self.checks.make_due(message, turn.now_ms)
        turn.has_checks = True

    def _hand_out_checks(self, turn: _Turn) -> None:
        if self._check_waiter is None or not turn.has_checks:
            return
        checked = []
        for message_id in self.checks.take():
            message = self.messages[message_id]
            asked = replace(message, checks=message.checks + 1, changed_ms=turn.now_ms)
            turn.records.append(state_record(asked))
            checked.append(asked)
        if checked:
            turn.replies.append(Reply(self._check_waiter, Messages(messages=tuple(checked))))
            self._check_waiter = None

    # Moving

    def _hand_out_committed(self, turn: _Turn) -> None:
        """Answer the request for committed messages. The runtime sends it when the decisions are durable."""
        if self._move_waiter is None or not turn.has_committed:
            return
        taken = (
            *self._movable(),
            *(each for each in turn.committed if each.target not in self._avoided),
        )
        is_marked = bool(self._marks) and not self._has_reported_marks
        if taken or is_marked:
            self._has_reported_marks = True
            reply = Messages(messages=taken[:COMMITTED_AT_ONCE_MAX], is_marked=is_marked)
            turn.replies.append(Reply(self._move_waiter, reply))
            self._move_waiter = None

    def _movable(self) -> Iterator[HalfMessage]:
        targets = [each for each in self._committed if each not in self._avoided]
        if not targets:
            return
        share = COMMITTED_AT_ONCE_MAX // len(targets) + 1
        for target in targets[:COMMITTED_AT_ONCE_MAX]:
            free = (each for each in self._committed[target] if each not in self._marked)
            for message_id in islice(free, share):
                yield self.messages[message_id]

    def _mark_sent(
        self, request: MarkSent, token: ReplyToken, now_ms: int
    ) -> Outcome[HalfResponse]:
        records: list[StateRecord] = []
        for message_id in request.ids:
            message = self._to_be_moved(message_id)
            if message is None:
                return Outcome(replies=(Reply(token, _not_to_be_moved(message_id)),))
            sent = replace(message, state=State.SENT, changed_ms=now_ms)
            records += (state_record(sent), staged_tombstone(message_id))
        return Outcome(
            records=tuple(records), replies=(Reply(token, Answer()),), producer=request.producer
        )

    def _mark_failed(self, request: MarkFailed, turn: _Turn) -> Answer:
        message = self._to_be_moved(request.id)
        if message is None:
            return _not_to_be_moved(request.id)
        turn.change(message, State.FAILED, request.reason[:REASON_LENGTH_MAX])
        return Answer()

    def _to_be_moved(self, message_id: str) -> HalfMessage | None:
        """The message if it is committed, and in no transaction that may be committed."""
        message = self.messages.get(message_id)
        if message is None or message.state is not State.COMMITTED or message_id in self._marked:
            return None
        return message

    # Lists

    def _list(self, request: ListHalfMessages) -> Messages:
        if request.id:
            one = self.messages.get(request.id) or self.ended.get(request.id)
            return Messages(messages=() if one is None else (one,))
        found = (
            each
            for each in self.messages.values()
            if request.group in ("", each.group)
            and (not request.states or each.state in request.states)
        )
        listed = tuple(islice(found, request.limit + 1))
        return Messages(messages=listed[: request.limit], has_more=len(listed) > request.limit)

    def _finish(self, turn: _Turn) -> Outcome[HalfResponse]:
        self._hand_out_checks(turn)
        self._hand_out_committed(turn)
        return turn.outcome()


def _replace(waiter: ReplyToken | None, turn: _Turn) -> None:
    """A second request that waits replaces the first: one broker does the work."""
    if waiter is not None:
        turn.replies.append(Reply(waiter, Messages()))


def _invalid(message: str) -> Answer:
    return Answer(problem=Problem.INVALID, message=message)


def _not_to_be_moved(message_id: str) -> Answer:
    return _invalid(f"half message {message_id!r} is not to be moved any more")


def _decided(message_id: str, message: str) -> Answer:
    return Answer(problem=Problem.DECIDED, message=f"half message {message_id!r}: {message}")
