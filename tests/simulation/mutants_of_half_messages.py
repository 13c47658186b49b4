"""Bugs planted into the core of half messages. The simulation has to find each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from zhumq.half_messages import shard as shard_module
from zhumq.half_messages.message import HalfState
from zhumq.half_messages.requests import Answer
from zhumq.half_messages.shard import HalfShard
from zhumq.model.state_machine import Reply

Patch = Callable[[object, str, Any], None]


def marks_count_at_once(patch: Patch) -> None:
    """A mark counts before the transaction is committed."""
    patch(HalfShard, "replay_pending", lambda self, _, record, now_ms: self.replay(record, now_ms))


def marks_are_forgotten(patch: Patch) -> None:
    """The marker of a commit leaves the messages committed, and not sent."""
    patch(HalfShard, "end_transaction", lambda self, producer_id, *_, **__: None)


def marked_messages_are_handed_out(patch: Patch) -> None:
    """A message whose transaction may be committed is moved again."""

    def movable(self: Any) -> Any:
        return [self.messages[each] for ids in self._committed.values() for each in ids]

    patch(HalfShard, "_movable", movable)

    patch(HalfShard, "_to_be_moved", lambda self, message_id: self.messages.get(message_id))


def aborts_count(patch: Patch) -> None:
    """The marker of an abort counts as that of a commit."""
    end = HalfShard.end_transaction
    patch(
        HalfShard,
        "end_transaction",
        lambda self, producer_id, now_ms, *, is_commit: end(
            self, producer_id, now_ms, is_commit=True
        ),
    )


def aborts_do_not_wake_the_mover(patch: Patch) -> None:
    """Messages of an aborted transaction wait for ever."""
    end = HalfShard.end_transaction

    def quiet(self: Any, producer_id: int, now_ms: int, *, is_commit: bool) -> None:
        end(self, producer_id, now_ms, is_commit=is_commit)
        self._released_ms = None

    patch(HalfShard, "end_transaction", quiet)


def decisions_are_reversed(patch: Patch) -> None:
    """A roll-back after a commit is accepted."""
    patch(HalfShard, "_roll_back", lambda *_, **__: Answer())


def decisions_are_not_written(patch: Patch) -> None:
    """A commit is acknowledged, and its record is missing."""

    def commit(self: Any, message: Any, turn: Any, *, is_operator: bool) -> Answer:
        del self, is_operator
        if message.state is HalfState.PENDING:
            turn.committed.append(replace(message, state=HalfState.COMMITTED))
        return Answer()

    patch(HalfShard, "_commit", commit)


def checks_are_not_counted(patch: Patch) -> None:
    """A silent producer is asked for ever: the count is not in the record."""

    def hand_out(self: Any, turn: Any) -> None:
        if self._check_waiter is None:
            return
        taken = [self.messages[each] for each in self.checks.take()]
        for message in taken:
            self.checks.set(replace(message, checks=1, changed_ms=turn.now_ms))
        if taken:
            asked = tuple(replace(each, checks=4) for each in taken)
            turn.replies.append(Reply(self._check_waiter, shard_module.Messages(messages=asked)))
            self._check_waiter = None

    patch(HalfShard, "_hand_out_checks", hand_out)


def decided_messages_are_checked(patch: Patch) -> None:
    """A decision leaves the message among those that are checked."""
    patch(HalfShard, "_leave", lambda *_: None)


def the_body_goes_with_the_decision(patch: Patch) -> None:
    """A commit deletes the staged record, which the mover needs."""
    turn = shard_module._Turn
    original = turn.change

    def and_delete(self: Any, message: Any, state: HalfState, reason: str = "") -> None:
        original(self, message, state, reason)
        if state is HalfState.COMMITTED:
            self.records.append(shard_module.staged_tombstone(message.id))

    patch(turn, "change", and_delete)


def bodies_are_kept_for_ever(patch: Patch) -> None:
    """A message that is sent leaves its body in the log."""
    patch(
        shard_module,
        "staged_tombstone",
        lambda message_id: shard_module.state_tombstone(f"other-{message_id}"),
    )


def the_count_is_not_bounded(patch: Patch) -> None:
    """More messages are stored than the limit allows."""
    prepare = HalfShard._prepare

    def store(self: Any, request: Any, turn: Any) -> Answer:
        settings, self._settings = self._settings, replace(self._settings, pending_max=1_000)
        answer = prepare(self, request, turn)
        self._settings = settings
        return answer

    patch(HalfShard, "_prepare", store)


HALF_MESSAGE_MUTANTS = (
    marks_count_at_once,
    marks_are_forgotten,
    marked_messages_are_handed_out,
    aborts_count,
    aborts_do_not_wake_the_mover,
    decisions_are_reversed,
    decisions_are_not_written,
    checks_are_not_counted,
    decided_messages_are_checked,
    the_body_goes_with_the_decision,
    bodies_are_kept_for_ever,
    the_count_is_not_bounded,
)
