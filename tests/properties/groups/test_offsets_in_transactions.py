"""Offsets in transactions follow Kafka's rules in any order of events, and planted bugs break them."""

from collections.abc import Callable
from typing import Any

import pytest
from offsets_world import OffsetsWorld, Violation

from zhumq.groups.offset_shard import GroupOffsets
from zhumq.groups.pending_offsets import PendingOffsets
from zhumq.groups.persisted import OffsetKey, decode_key
from zhumq.groups.shard import GroupShard
from zhumq.model.state_machine import StateRecord

SEEDS = 40
STEPS = 150
MUTANT_SEEDS = 60  # in which every planted bug has to be found


def run_world(seed: int) -> OffsetsWorld:
    world = OffsetsWorld(seed)
    for _ in range(STEPS):
        world.step()
    return world


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_every_answer_is_what_kafkas_rules_make_of_the_log(first: int) -> None:
    worlds = [run_world(seed) for seed in range(first, first + 10)]
    # The runs are worth something.
    assert sum(world.commits for world in worlds) > 100
    assert sum(world.unstable_answers for world in worlds) > 500
    assert sum(world.reloads for world in worlds) > 50


def nothing(*_: Any, **__: Any) -> None:
    """Does nothing."""


def forget_ordinary_commits(patch: pytest.MonkeyPatch) -> None:
    """An older offset of a transaction replaces an ordinary commit."""
    patch.setattr(PendingOffsets, "supersede", nothing)


def forget_the_order_of_transactions(patch: pytest.MonkeyPatch) -> None:
    """The transaction that ends last counts, whatever the order of the records."""

    def mutant(self: PendingOffsets, producer_id: int, *, is_commit: bool) -> list[StateRecord]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(PendingOffsets, "_supersede", nothing)
            return end(self, producer_id, is_commit=is_commit)

    end = PendingOffsets.end
    patch.setattr(PendingOffsets, "end", mutant)


def supersede_what_is_newer(patch: pytest.MonkeyPatch) -> None:
    """The commit of a transaction makes newer offsets of others void."""
    end = PendingOffsets.end

    def mutant(self: PendingOffsets, producer_id: int, *, is_commit: bool) -> list[StateRecord]:
        committed = end(self, producer_id, is_commit=is_commit)
        for record in committed:
            key = decode_key(record.key)
            assert isinstance(key, OffsetKey)
            self.supersede(key)
        return committed

    patch.setattr(PendingOffsets, "end", mutant)


def commit_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    """An abort counts as a commit."""
    end = PendingOffsets.end
    patch.setattr(
        PendingOffsets,
        "end",
        lambda self, producer_id, *, is_commit: end(self, producer_id, is_commit=True),
    )


def end_all_transactions(patch: pytest.MonkeyPatch) -> None:
    """A marker ends the transactions of all producers."""
    end = PendingOffsets.end

    def mutant(self: PendingOffsets, _producer_id: int, *, is_commit: bool) -> list[StateRecord]:
        ended = []
        for each in {producer for producer, _, _ in self.items()}:
            ended += end(self, each, is_commit=is_commit)
        return ended

    patch.setattr(PendingOffsets, "end", mutant)


def keep_deleted_pending_offsets(patch: pytest.MonkeyPatch) -> None:
    """A deleted offset comes back with the marker."""
    patch.setattr(PendingOffsets, "remove", nothing)


def keep_the_old_position(patch: pytest.MonkeyPatch) -> None:
    """A second offset of a transaction counts as old as the first one."""
    put = PendingOffsets.put

    def mutant(self: PendingOffsets, producer_id: int, key: OffsetKey, record: StateRecord) -> None:
        if all((producer_id, key) != each[:2] for each in self.items()):
            put(self, producer_id, key, record)

    patch.setattr(PendingOffsets, "put", mutant)


def show_unstable_offsets(patch: pytest.MonkeyPatch) -> None:
    """A consumer gets the offset before an open transaction."""
    patch.setattr(PendingOffsets, "__contains__", lambda *_: False)


def drop_what_is_superseded(patch: pytest.MonkeyPatch) -> None:
    """After an ordinary commit a partition is stable although a transaction is open."""
    patch.setattr(PendingOffsets, "supersede", PendingOffsets.remove)


def note_loaded(patch: pytest.MonkeyPatch) -> set[GroupOffsets]:
    """The offsets of the shards that have read their logs."""
    done: set[GroupOffsets] = set()
    loaded = GroupShard.loaded

    def noting(self: GroupShard, now_ms: int) -> Any:
        done.add(self.offsets)
        return loaded(self, now_ms)

    patch.setattr(GroupShard, "loaded", noting)
    return done


def commit_at_once_while_loading(patch: pytest.MonkeyPatch) -> None:
    """A load takes pending offsets for committed ones."""
    done = note_loaded(patch)
    replay_pending = GroupShard.replay_pending

    def mutant(self: GroupShard, producer_id: int, record: StateRecord, now_ms: int) -> None:
        if self.offsets in done:
            replay_pending(self, producer_id, record, now_ms)
        else:
            self.replay(record, now_ms)

    patch.setattr(GroupShard, "replay_pending", mutant)


def load_without_outdating(patch: pytest.MonkeyPatch) -> None:
    """A load does not see that a newer commit, or a deletion, followed a pending offset."""
    done = note_loaded(patch)
    outdate = GroupOffsets.outdate_pending

    def mutant(self: GroupOffsets, key: OffsetKey, *, is_deleted: bool) -> None:
        if self in done:
            outdate(self, key, is_deleted=is_deleted)

    patch.setattr(GroupOffsets, "outdate_pending", mutant)


def delete_groups_without_their_pending_offsets(patch: pytest.MonkeyPatch) -> None:
    """The marker brings a deleted group back."""
    patch.setattr(PendingOffsets, "keys_of_group", lambda *_: ())


def delete_topics_without_their_pending_offsets(patch: pytest.MonkeyPatch) -> None:
    """The marker brings the offsets of a deleted topic back."""
    patch.setattr(PendingOffsets, "keys_of_topics", lambda *_: [])


def forget_idle_groups_with_open_transactions(patch: pytest.MonkeyPatch) -> None:
    """A group without committed offsets is forgotten although a transaction has some for it."""
    patch.setattr(PendingOffsets, "has_group", lambda *_: False)


def leak_pending_memory(patch: pytest.MonkeyPatch) -> None:
    """The memory of a void offset is never given back."""
    supersede = PendingOffsets.supersede

    def mutant(self: PendingOffsets, key: OffsetKey) -> None:
        before = self.size_bytes
        supersede(self, key)
        self.size_bytes = before

    patch.setattr(PendingOffsets, "supersede", mutant)


@pytest.mark.parametrize(
    "plant",
    [
        forget_ordinary_commits,
        forget_the_order_of_transactions,
        supersede_what_is_newer,
        commit_aborted_transactions,
        end_all_transactions,
        keep_deleted_pending_offsets,
        keep_the_old_position,
        show_unstable_offsets,
        drop_what_is_superseded,
        commit_at_once_while_loading,
        load_without_outdating,
        delete_groups_without_their_pending_offsets,
        delete_topics_without_their_pending_offsets,
        forget_idle_groups_with_open_transactions,
        leak_pending_memory,
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(MUTANT_SEEDS):
        try:
            run_world(seed)
        except Violation:
            return
    pytest.fail("no run breaks a rule")
