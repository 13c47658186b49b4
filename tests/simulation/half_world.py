"""Half messages under crashes: a shard on a log that loses what is not durable, a mover, a coordinator, a topic, operators.

Everything is decided by one random generator, so a seed names a run. Producers, brokers and markers may be late. What was
acknowledged is compared with what a consumer at read_committed sees.
"""

import random
from dataclasses import dataclass, field, replace

from zhumq.half_messages.message import ENDED, Body, HalfMessage, HalfState
from zhumq.half_messages.persisted import body_of, decode_key
from zhumq.half_messages.requests import (
    Answer,
    AwaitChecks,
    AwaitCommitted,
    Decide,
    Decision,
    HalfRequest,
    HalfResponse,
    MarkFailed,
    MarkSent,
    Messages,
    Prepare,
    Problem,
    SetLive,
)
from zhumq.half_messages.settings import HalfSettings
from zhumq.half_messages.shard import HalfShard
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Outcome, Producer, ReplyToken, StateRecord

GROUPS = ("g", "h")
TARGETS = (TopicPartition("t", 0), TopicPartition("t", 1))
SETTINGS = HalfSettings(
    first_check_ms=6_000,
    check_interval_ms=30_000,
    checks_max=3,
    pending_max=12,
    retention_ms=3_600_000,
)


@dataclass(slots=True)
class Entry:
    """One record or marker of the shard's log, at its offset."""

    offset: int
    record: StateRecord | None  # None: a marker
    producer_id: int | None = None
    is_commit: bool = False


@dataclass(slots=True)
class Transaction:
    """The one transaction of the mover's transactional id that is not over."""

    epoch: int
    appended: list[str] = field(default_factory=list)
    is_commit: bool | None = None  # None: not decided


@dataclass(slots=True)
class Known:
    """What clients know of a message for certain, and what they asked for."""

    group: str
    is_prepared: bool = False
    asked: set[Decision] = field(default_factory=set)
    acknowledged: Decision | None = None
    checks: int = 0


class HalfWorld:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1_000_000
        self.log: list[Entry] = []
        self.end_offset = 0
        self.durable_offset = 0
        self.shard = HalfShard(SETTINGS)
        self.next_token = 0
        # Replies wait until the log is durable up to the offset.
        self.held: list[tuple[int, ReplyToken, HalfResponse]] = []
        self.waiting: dict[ReplyToken, tuple[HalfRequest, int]] = {}
        self.live: set[str] = set()
        self.known: dict[str, Known] = {}
        self.visible: list[str] = []
        # The coordinator, which does not crash with the shard's leader.
        self.epoch = 0
        self.transaction: Transaction | None = None
        # The mover: soft state of the shard's leader.
        self.mover_epoch: int | None = None
        self.taken: tuple[HalfMessage, ...] = ()
        self.marking: ReplyToken | None = None
        self.incarnation = 0

    # The runtime

    def submit(self, request: HalfRequest) -> ReplyToken:
        token = ReplyToken(self.next_token)
        self.next_token += 1
        self.waiting[token] = (request, self.incarnation)
        self._apply(self.shard.handle(request, token, self.now_ms))
        return token

    def _apply(self, outcome: Outcome[HalfResponse]) -> None:
        producer_id = None if outcome.producer is None else outcome.producer.producer_id
        for record in outcome.records:
            placed = replace(record, offset=self.end_offset)
            self._append(Entry(self.end_offset, placed, producer_id))
            if producer_id is None:
                self.shard.replay(placed, self.now_ms)
            else:
                self.shard.replay_pending(producer_id, placed, self.now_ms)
        for reply in outcome.replies:
            self.held.append((self.end_offset, reply.token, reply.response))

    def _append(self, entry: Entry) -> None:
        self.log.append(entry)
        self.end_offset += 1

    def flush(self) -> None:
        self.durable_offset = self.end_offset
        released, self.held = self.held, []
        for _, token, response in released:
            request, incarnation = self.waiting.pop(token)
            if incarnation == self.incarnation:
                self._answered(request, response)

    def crash(self) -> None:
        """The leader dies. What is not durable may be lost, answers are; the next leader replays the log."""
        if self.random.random() < 0.7:
            self.log = [each for each in self.log if each.offset < self.durable_offset]
            self.end_offset = self.durable_offset
        self.durable_offset = self.end_offset
        self.held.clear()
        self.waiting.clear()
        self.incarnation += 1
        self.mover_epoch, self.taken, self.marking = None, (), None
        if self.random.random() < 0.5:
            self.compact()
        self.shard = self.replayed()
        self._apply(self.shard.loaded(self.now_ms))
        for group in sorted(self.live):
            self.submit(SetLive(group=group, is_live=True))

    def replayed(self) -> HalfShard:
        shard = HalfShard(SETTINGS)
        for each in self.log:
            if each.record is None:
                assert each.producer_id is not None
                shard.end_transaction(each.producer_id, self.now_ms, is_commit=each.is_commit)
            elif each.producer_id is None:
                shard.replay(each.record, self.now_ms)
            else:
                shard.replay_pending(each.producer_id, each.record, self.now_ms)
        return shard

    def compact(self) -> None:
        """As the cleaner does it: below the first open transaction, the last committed record of each key stays."""
        is_over: set[int] = set()
        open_from = self.end_offset
        for each in reversed(self.log):
            if each.record is None:
                is_over.add(each.offset)
            elif each.producer_id is not None and not is_over:
                open_from = each.offset
        last: dict[bytes, int] = {}
        aborted: set[int] = set()
        pending: list[Entry] = []
        for each in self.log:
            if each.record is None:
                for one in pending:
                    assert one.record is not None
                    if each.is_commit:
                        last[one.record.key] = one.offset
                    else:
                        aborted.add(one.offset)
                pending = []
            elif each.producer_id is not None:
                pending.append(each)
            elif each.offset < open_from:
                last[each.record.key] = each.offset
        self.log = [
            each
            for each in self.log
            if each.offset >= open_from
            or each.record is None
            or (each.offset not in aborted and last.get(each.record.key) == each.offset)
        ]

    def pass_time(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        due_ms = self.shard.next_deadline_ms
        if due_ms is not None and due_ms <= self.now_ms:
            self._apply(self.shard.expire(self.now_ms))

    # The coordinator

    def _mark_end(self, transaction: Transaction) -> None:
        """The marker arrives in the shard's log and in the topic, whichever broker leads now."""
        assert transaction.is_commit is not None
        marker = Entry(self.end_offset, None, 7, transaction.is_commit)
        self._append(marker)
        self.shard.end_transaction(7, self.now_ms, is_commit=transaction.is_commit)
        self.flush()
        if transaction.is_commit:
            self.visible += transaction.appended
        self.transaction = None

    def deliver_marker(self) -> None:
        if self.transaction is not None and self.transaction.is_commit is not None:
            self._mark_end(self.transaction)

    def time_out(self) -> None:
        if self.transaction is not None and self.transaction.is_commit is None:
            self.epoch += 1
            self.transaction.is_commit = False

    # The mover

    def begin(self) -> None:
        """InitProducerId: abort what is open, fence, and begin once that is over."""
        if self.transaction is not None:
            self.time_out()
            return
        self.epoch += 1
        self.mover_epoch = self.epoch

    def move(self) -> None:
        """One step of the mover."""
        if self.marking is not None:
            return
        if not self.taken:
            is_asking = any(isinstance(each, AwaitCommitted) for each, _ in self.waiting.values())
            if not is_asking:
                self.submit(AwaitCommitted())
            return
        if self.mover_epoch is None:
            self.begin()
            return
        if self.transaction is None:
            if self.mover_epoch != self.epoch:
                self.mover_epoch = None  # The coordinator says that it is fenced.
                return
            self.transaction = Transaction(self.mover_epoch)
            for message in self.taken:
                self._read_back(message)
                self.transaction.appended.append(message.id)
            return
        if self.transaction.is_commit is not None or self.transaction.epoch != self.mover_epoch:
            return  # CONCURRENT_TRANSACTIONS
        ids = tuple(each.id for each in self.taken)
        self.marking = self.submit(MarkSent(ids=ids, producer=Producer(7, self.mover_epoch)))

    def _marked(self, answer: Answer) -> None:
        self.marking, self.taken = None, ()
        transaction = self.transaction
        if transaction is None or transaction.epoch != self.mover_epoch:
            self.mover_epoch = None
            return
        if transaction.is_commit is None:
            transaction.is_commit = answer.problem is None and self.random.random() < 0.8
            self.epoch += 1
            self.mover_epoch = self.epoch

    def _read_back(self, message: HalfMessage) -> None:
        found = [each for each in self.log if each.offset == message.offset]
        assert found, f"the body of {message.id} is not in the log"
        record = found[0].record
        assert record is not None
        assert record.value is not None
        body = body_of(record.value)
        assert body is not None
        assert body.value == message.id.encode()

    # Answers

    def _answered(self, request: HalfRequest, response: HalfResponse) -> None:
        match request, response:
            case AwaitCommitted(), Messages():
                self.taken = response.messages
                if response.is_marked and self.mover_epoch is None:
                    self.begin()
            case AwaitChecks(), Messages():
                for message in response.messages:
                    self._checked(message)
            case MarkSent(), Answer():
                self._marked(response)
            case Prepare(), Answer():
                if response.problem is None:
                    self.known[request.id].is_prepared = True
            case Decide(), Answer():
                self._decided(request, response)
            case _:
                pass

    def _checked(self, message: HalfMessage) -> None:
        known = self.known[message.id]
        known.checks += 1
        assert message.state is HalfState.PENDING
        assert message.checks <= SETTINGS.checks_max, "asked too often"
        assert known.acknowledged is None, "asked about a message that is decided"

    def _decided(self, request: Decide, answer: Answer) -> None:
        known = self.known[request.id]
        if request.decision is Decision.UNKNOWN:
            return
        if not request.group and answer.problem is None:
            known.acknowledged = request.decision  # The operator's decision replaces the other.
        elif answer.problem is None:
            other = known.acknowledged
            assert other in (None, request.decision), (
                f"{request.id}: {other}, and then {request.decision}"
            )
            known.acknowledged = request.decision
        elif answer.problem is Problem.UNKNOWN_ID and known.is_prepared:
            # It was given up and forgotten, or decided some time ago.
            assert request.id not in self.shard.messages or request.group != known.group

    # Clients

    def step(self) -> None:
        actions = (
            (self._prepare, 6),
            (self._decide, 6),
            (self._repeat_prepare, 1),
            (self.move, 10),
            (self.flush, 8),
            (self.deliver_marker, 4),
            (self._ask_checks, 3),
            (self._change_producers, 1),
            (lambda: self.pass_time(self.random.choice((10, 1_000, 7_000, 31_000))), 4),
            (lambda: self.pass_time(self.random.choice((700_000, 4_000_000))), 0.2),
            (self.crash, 1.5),
            (self.time_out, 0.3),
            (self._fail, 0.3),
            (self._operate, 0.5),
        )
        (action,) = self.random.choices(
            [each for each, _ in actions], [each for _, each in actions]
        )
        action()
        self.check()

    def _prepare(self) -> None:
        message_id = f"m{len(self.known)}"
        group = self.random.choice(GROUPS)
        self.known[message_id] = Known(group)
        self._send_prepare(message_id)

    def _send_prepare(self, message_id: str) -> None:
        self.submit(
            Prepare(
                id=message_id,
                group=self.known[message_id].group,
                target=self.random.choice(TARGETS),
                body=Body(value=message_id.encode()),
            )
        )

    def _repeat_prepare(self) -> None:
        unanswered = [each for each, known in self.known.items() if not known.is_prepared]
        if unanswered:
            self._send_prepare(self.random.choice(unanswered))

    def _decide(self) -> None:
        if not self.known:
            return
        message_id = self.random.choice(list(self.known)[-15:])
        known = self.known[message_id]
        weights = (5, 3, 1) if not known.asked else (2, 2, 1)
        decision = self.random.choices(list(Decision), weights)[0]
        if known.is_prepared:
            known.asked.add(decision)
            self.submit(Decide(id=message_id, group=known.group, decision=decision))

    def _ask_checks(self) -> None:
        if not any(isinstance(each, AwaitChecks) for each, _ in self.waiting.values()):
            self.submit(AwaitChecks())

    def _change_producers(self) -> None:
        group = self.random.choice(GROUPS)
        is_live = group not in self.live
        (self.live.add if is_live else self.live.discard)(group)
        self.submit(SetLive(group=group, is_live=is_live))

    def _fail(self) -> None:
        committed = [
            each.id for each in self.shard.messages.values() if each.state is HalfState.COMMITTED
        ]
        if committed:
            self.submit(MarkFailed(id=self.random.choice(committed), reason="refused"))

    def _operate(self) -> None:
        """An operator decides on what was given up or has failed: from then on that counts."""
        stuck = [
            each.id
            for each in self.shard.messages.values()
            if each.state in (HalfState.FAILED, HalfState.GIVEN_UP)
        ]
        if stuck:
            message_id = self.random.choice(stuck)
            decision = self.random.choice((Decision.COMMIT, Decision.ROLL_BACK))
            known = self.known[message_id]
            known.asked.add(decision)
            known.acknowledged = None
            self.submit(Decide(id=message_id, group="", decision=decision))

    # Rules

    def check(self) -> None:
        assert len(self.visible) == len(set(self.visible)), "a message is visible twice"
        for message_id in self.visible:
            known = self.known[message_id]
            assert Decision.COMMIT in known.asked, (
                f"{message_id} is visible and was never committed"
            )
            assert known.acknowledged is not Decision.ROLL_BACK, f"{message_id} was rolled back"
        assert len(self.shard.messages) <= SETTINGS.pending_max + 1
        if self.random.random() < 0.1:
            replayed = self.replayed()
            assert replayed.messages == self.shard.messages, (
                "the state is not the replay of the log"
            )
            assert dict(replayed.ended) == dict(self.shard.ended)

    def settle(self) -> None:
        """Faults end: producers are silent, everything that is decided gets to its topic."""
        if self.random.random() < 0.5:
            self.crash()
        for number in range(60):
            if number % 20 == 10:
                self.time_out()  # what a mover has left open that was fenced
            self.move()
            self.flush()
            self.deliver_marker()
            self.pass_time(10)
        self.check()
        for message_id, known in self.known.items():
            message = self.shard.messages.get(message_id)
            state = None if message is None else message.state
            times = self.visible.count(message_id)
            if known.acknowledged is Decision.COMMIT:
                assert times == (0 if state is HalfState.FAILED else 1), (
                    f"{message_id}: {times}, {state}"
                )
            elif known.acknowledged is Decision.ROLL_BACK:
                assert (times, state) == (0, None)
            elif state is HalfState.GIVEN_UP and message is not None and "checks" in message.reason:
                assert message.checks == SETTINGS.checks_max
            assert state is not HalfState.COMMITTED, f"{message_id} is not moved"
            assert state not in ENDED
            if known.is_prepared and not known.asked and state is None:
                assert self.now_ms - 1_000_000 > SETTINGS.retention_ms, f"{message_id} is lost"
        # What is not listed takes no room in a compacted log.
        self.compact()
        for each in self.log:
            if each.record is not None and each.record.value is not None:
                key = decode_key(each.record.key)
                assert key is not None
                assert key.id in self.shard.messages or key.id in self.shard.ended
