"""A shard of half messages with a log in memory, for tests that call it by hand."""

from zhumq.half_messages.message import Body, HalfMessage
from zhumq.half_messages.requests import (
    Answer,
    AwaitChecks,
    AwaitCommitted,
    Decide,
    Decision,
    HalfRequest,
    HalfResponse,
    ListHalfMessages,
    MarkSent,
    Messages,
    Prepare,
    SetLive,
)
from zhumq.half_messages.settings import HalfSettings
from zhumq.half_messages.shard import HalfShard
from zhumq.model.ids import TopicPartition
from zhumq.model.state_machine import Outcome, Producer, ReplyToken, StateRecord

GROUP = "orders"
TARGET = TopicPartition("orders", 0)
START_MS = 1_000_000
# A record, or a producer's record in a transaction, or the end of a transaction.
Entry = tuple[int | None, StateRecord | bool]


class DrivenHalfShard:
    """Does what the runtime does, without waiting for a disk."""

    def __init__(self, settings: HalfSettings | None = None) -> None:
        self.settings = settings or HalfSettings()
        self.shard = HalfShard(self.settings)
        self.now_ms = START_MS
        self.log: list[Entry] = []
        self.answers: dict[ReplyToken, HalfResponse] = {}
        self._next_token = 0

    def submit(self, request: HalfRequest) -> ReplyToken:
        token = ReplyToken(self._next_token)
        self._next_token += 1
        self._apply(self.shard.handle(request, token, self.now_ms))
        return token

    def ask(self, request: HalfRequest) -> Answer:
        answer = self.answers[self.submit(request)]
        assert isinstance(answer, Answer)
        return answer

    def messages(self, token: ReplyToken) -> tuple[HalfMessage, ...]:
        """The answer to a request that waits; none while it does."""
        answer = self.answers.get(token)
        assert answer is None or isinstance(answer, Messages)
        return () if answer is None else answer.messages

    def prepare(self, message_id: str, *, group: str = GROUP, value: bytes = b"v") -> Answer:
        request = Prepare(id=message_id, group=group, target=TARGET, body=Body(value=value))
        return self.ask(request)

    def commit(self, message_id: str, *, group: str = GROUP) -> Answer:
        return self.ask(Decide(id=message_id, group=group, decision=Decision.COMMIT))

    def roll_back(self, message_id: str, *, group: str = GROUP) -> Answer:
        return self.ask(Decide(id=message_id, group=group, decision=Decision.ROLL_BACK))

    def answer_unknown(self, message_id: str) -> Answer:
        return self.ask(Decide(id=message_id, group=GROUP, decision=Decision.UNKNOWN))

    def set_live(self, *, is_live: bool = True, group: str = GROUP) -> None:
        self.ask(SetLive(group=group, is_live=is_live))

    def await_checks(self) -> ReplyToken:
        return self.submit(AwaitChecks())

    def await_committed(self, *avoided: TopicPartition) -> ReplyToken:
        return self.submit(AwaitCommitted(avoided=frozenset(avoided)))

    def mark_sent(self, *ids: str, producer: Producer) -> Answer:
        return self.ask(MarkSent(ids=ids, producer=producer))

    def end_transaction(self, producer: Producer, *, is_commit: bool) -> None:
        self.log.append((producer.producer_id, is_commit))
        self.shard.end_transaction(producer.producer_id, self.now_ms, is_commit=is_commit)
        self.pass_time(0)

    def listed(self, **request: object) -> dict[str, str]:
        answer = self.answers[self.submit(ListHalfMessages(**request))]  # type: ignore[arg-type]
        assert isinstance(answer, Messages)
        return {each.id: each.state.value for each in answer.messages}

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass, with a stop at each deadline."""
        until_ms = self.now_ms + milliseconds
        while True:
            due_ms = self.shard.next_deadline_ms
            if due_ms is None or due_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self._apply(self.shard.expire(self.now_ms))
        self.now_ms = until_ms

    def restart(self) -> None:
        """A new leader replays the log."""
        self.shard = HalfShard(self.settings)
        for offset, (producer_id, entry) in enumerate(self.log):
            if isinstance(entry, bool):
                assert producer_id is not None
                self.shard.end_transaction(producer_id, self.now_ms, is_commit=entry)
            else:
                self._replay(producer_id, entry, offset)
        self._apply(self.shard.loaded(self.now_ms))

    def _apply(self, outcome: Outcome[HalfResponse]) -> None:
        producer_id = None if outcome.producer is None else outcome.producer.producer_id
        for record in outcome.records:
            self.log.append((producer_id, record))
            self._replay(producer_id, record, len(self.log) - 1)
        for reply in outcome.replies:
            assert reply.token not in self.answers
            self.answers[reply.token] = reply.response

    def _replay(self, producer_id: int | None, record: StateRecord, offset: int) -> None:
        placed = StateRecord(key=record.key, value=record.value, offset=offset)
        if producer_id is None:
            self.shard.replay(placed, self.now_ms)
        else:
            self.shard.replay_pending(producer_id, placed, self.now_ms)
