"""The delivery-state shard: fencing by epochs, snapshots that bound the log, claims, settings."""

import uuid

import pytest

from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import ReplyToken, StateRecord
from zhumq.protocol.messages.delivery_state import (
    ClaimTopicRequest,
    DeleteSharePartitionsRequest,
    DescribeSharePartitionsRequest,
    GroupSetting,
    GroupSettingsRequest,
    ListClaimsRequest,
    ListSessionsRequest,
    PushSessionValue,
    ReadSharePartitionRequest,
    SaveSessionRequest,
    WriteSharePartitionRequest,
)
from zhumq.share.partition_state import RecordState, StateRun
from zhumq.share.persisted import SharePartitionKey, encode_key, record, written_runs
from zhumq.share.requests import REQUEST_KINDS, refusal
from zhumq.share.shard import UPDATES_PER_SNAPSHOT, DeliveryShard

TOPIC = uuid.UUID(int=3)
ACKED = RecordState.ACKNOWLEDGED


class Kept:
    """A shard with its log."""

    def __init__(self) -> None:
        self.shard = DeliveryShard()
        self.log: list[StateRecord] = []

    def ask(self, request):
        outcome = self.shard.handle(request, ReplyToken(1), 0)
        for each in outcome.records:
            self.log.append(each)
            self.shard.replay(each, 0)
        (reply,) = outcome.replies
        return reply.response

    def compacted(self) -> list[StateRecord]:
        last = {each.key: index for index, each in enumerate(self.log)}
        return [self.log[index] for index in sorted(last.values())]

    def reloaded(self, log: list[StateRecord] | None = None) -> "Kept":
        again = Kept()
        again.log = list(self.log if log is None else log)
        for each in again.log:
            again.shard.replay(each, 0)
        assert again.shard.next_deadline_ms is None
        assert not again.shard.loaded(0).records
        return again


class Leader:
    """A broker that has a share partition open."""

    def __init__(self, kept: Kept, *, epoch: int = 0, group: str = "g") -> None:
        self.kept, self.epoch, self.group = kept, epoch, group
        self.answer = kept.ask(
            ReadSharePartitionRequest(group_id=group, topic_id=TOPIC, leader_epoch=epoch)
        )
        self.number = self.answer.write_number

    def write(self, *runs: StateRun, start: int = 0, number: int | None = None, **more: int):
        if number is None:
            self.number += 1
            number = self.number
        return self.kept.ask(
            WriteSharePartitionRequest(
                group_id=self.group,
                topic_id=TOPIC,
                leader_epoch=self.epoch,
                state_epoch=more.get("state_epoch", self.answer.state_epoch),
                write_number=number,
                start_offset=start,
                runs=written_runs(runs),
            )
        )


def begin(kept: Kept, *, start: int = 0, group: str = "g", epoch: int = -1):
    return kept.ask(
        WriteSharePartitionRequest(
            group_id=group,
            topic_id=TOPIC,
            start_offset=start,
            leader_epoch=epoch,
            dead_letter_producer_id=77,
            resets=True,
        )
    )


def state_of(kept: Kept, group: str = "g"):
    return kept.shard.share_partitions()[SharePartitionKey(group, TOPIC, 0)].state


def acked(first: int, last: int) -> StateRun:
    return StateRun(first, last, ACKED, 0)


def test_a_share_partition_that_was_never_opened_is_not_known() -> None:
    kept = Kept()
    leader = Leader(kept)
    assert not leader.answer.is_known
    assert leader.write(acked(0, 0)).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert kept.log == []


def test_what_was_written_is_read_again() -> None:
    kept = Kept()
    begin(kept, start=5)
    leader = Leader(kept)
    assert (leader.answer.start_offset, leader.answer.dead_letter_producer_id) == (5, 77)
    assert leader.write(acked(7, 8), start=5).error_code == 0
    assert leader.write(acked(5, 6), start=9).error_code == 0
    for again in (kept.reloaded(), kept.reloaded(kept.compacted())):
        assert state_of(again) == state_of(kept)
        assert Leader(again).answer.start_offset == 9


def test_an_earlier_leader_is_fenced_as_soon_as_a_later_one_has_read() -> None:
    kept = Kept()
    begin(kept)
    old = Leader(kept, epoch=3)
    Leader(kept, epoch=4)
    answer = old.write(acked(0, 0))
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert "4" in answer.error_message
    assert Leader(kept, epoch=3).answer.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (
        kept.reloaded().shard.share_partitions()[SharePartitionKey("g", TOPIC, 0)].leader_epoch == 4
    )


def test_an_earlier_opening_of_the_share_partition_is_fenced_in_the_same_epoch() -> None:
    kept = Kept()
    begin(kept)
    old, new = Leader(kept), Leader(kept)
    assert old.write(acked(0, 0)).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert new.write(acked(1, 1)).error_code == 0
    assert state_of(kept).runs == (acked(1, 1),)


def test_a_write_that_comes_twice_is_done_once() -> None:
    kept = Kept()
    begin(kept)
    leader = Leader(kept)
    released = StateRun(0, 0, RecordState.AVAILABLE, 1)
    leader.write(released)
    early = leader.number
    leader.write(acked(0, 0), start=0)
    size = len(kept.log)
    assert leader.write(released, number=early).error_code == 0, (
        "a retry after a late answer succeeds"
    )
    assert len(kept.log) == size
    assert state_of(kept).runs == (acked(0, 0),), "and it is not undone"


def test_a_reset_begins_a_new_state_epoch() -> None:
    kept = Kept()
    begin(kept)
    leader = Leader(kept)
    leader.write(acked(3, 4))
    assert begin(kept, start=2).state_epoch == 1
    assert leader.write(acked(0, 0)).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert state_of(kept).start_offset == 2
    assert state_of(kept).runs == ()


def test_the_log_of_a_share_partition_is_bounded_however_much_is_written() -> None:
    kept = Kept()
    begin(kept)
    leader = Leader(kept)
    for offset in range(3 * UPDATES_PER_SNAPSHOT + 17):
        leader.write(acked(offset, offset), start=offset + 1)
    compacted = kept.compacted()
    assert len(compacted) <= UPDATES_PER_SNAPSHOT + 1
    again = kept.reloaded(compacted)
    assert state_of(again) == state_of(kept)
    assert state_of(again).start_offset == 3 * UPDATES_PER_SNAPSHOT + 17


@pytest.mark.parametrize("extra", range(UPDATES_PER_SNAPSHOT - 2, UPDATES_PER_SNAPSHOT + 3))
def test_compaction_around_a_snapshot_loses_nothing(extra: int) -> None:
    kept = Kept()
    begin(kept)
    leader = Leader(kept)
    for offset in range(0, 2 * extra, 2):
        leader.write(acked(offset, offset))
    assert state_of(kept).runs == tuple(acked(offset, offset) for offset in range(0, 2 * extra, 2))
    assert state_of(kept.reloaded(kept.compacted())) == state_of(kept)


def test_an_update_of_an_earlier_snapshot_is_ignored() -> None:
    kept = Kept()
    begin(kept)
    leader = Leader(kept)
    leader.write(StateRun(0, 0, RecordState.AVAILABLE, 1))
    early = kept.log[-1]
    for offset in range(UPDATES_PER_SNAPSHOT + 2):
        leader.write(acked(offset, offset))
    before = state_of(kept)
    kept.shard.replay(early, 0)
    assert state_of(kept) == before


def test_the_reason_of_an_archiving_message_is_kept() -> None:
    kept = Kept()
    begin(kept)
    archiving = StateRun(3, 4, RecordState.ARCHIVING, 2, "not JSON")
    Leader(kept).write(archiving)
    assert state_of(kept.reloaded()).runs == (archiving,)


def test_a_deleted_share_partition_leaves_nothing_in_the_compacted_log() -> None:
    kept = Kept()
    for group in ("g", "h"):
        begin(kept, group=group)
        leader = Leader(kept, group=group)
        for offset in range(UPDATES_PER_SNAPSHOT + 5):
            leader.write(acked(offset, offset))
    assert (
        kept.ask(DeleteSharePartitionsRequest(group_id="g", topic_ids=[TOPIC])).deleted_count == 1
    )
    left = [each for each in kept.compacted() if each.value is not None]
    again = kept.reloaded(left)
    assert set(again.shard.share_partitions()) == {SharePartitionKey("h", TOPIC, 0)}
    assert all(b"\x00\x01g" not in each.key for each in left)
    kept.ask(DeleteSharePartitionsRequest(group_id="", topic_ids=[TOPIC]))
    assert [each for each in kept.compacted() if each.value is not None] == []


def test_share_partitions_are_described_by_group() -> None:
    kept = Kept()
    begin(kept, start=4)
    begin(kept, group="other")
    Leader(kept, epoch=2).write(acked(6, 8), start=4)
    (share_partition,) = kept.ask(DescribeSharePartitionsRequest(group_id="g")).share_partitions
    assert (
        share_partition.start_offset,
        share_partition.done_count,
        share_partition.leader_epoch,
    ) == (4, 3, 2)


def test_a_topic_is_claimed_once_and_released_by_its_owner_only() -> None:
    kept = Kept()
    claim = ClaimTopicRequest(topic="t", group_id="a", mode="ptp-shared")
    assert kept.ask(claim).group_id == "a"
    other = ClaimTopicRequest(topic="t", group_id="b", mode="ptp-shared")
    assert kept.ask(other).group_id == "a", "the answer names the owner"
    kept.ask(ClaimTopicRequest(topic="t", group_id="b", gives_up=True))
    again = kept.reloaded(kept.compacted())
    assert again.ask(ClaimTopicRequest(topic="t")).group_id == "a"
    again.ask(ClaimTopicRequest(topic="t", group_id="a", gives_up=True))
    assert again.ask(ClaimTopicRequest(topic="t")).group_id == ""
    assert again.ask(ClaimTopicRequest(topic="t", group_id="b", mode="nonsense")).group_id == ""


def test_a_claim_is_for_one_topic_and_not_for_a_later_one_of_the_same_name() -> None:
    kept = Kept()
    first, second = uuid.UUID(int=1), uuid.UUID(int=2)

    def claim(group: str, topic_id: uuid.UUID) -> str:
        request = ClaimTopicRequest(topic="t", topic_id=topic_id, group_id=group, mode="ptp-shared")
        return kept.ask(request).group_id

    assert claim("a", first) == "a"
    kept = kept.reloaded()
    assert claim("b", first) == "a"
    assert kept.ask(ClaimTopicRequest(topic="t", topic_id=second)).group_id == ""
    assert claim("b", second) == "b"
    kept.ask(DeleteSharePartitionsRequest(topic_ids=[first]))
    assert claim("c", second) == "b", "the claim on the existing topic stays"
    kept.ask(DeleteSharePartitionsRequest(topic_ids=[second]))
    assert kept.reloaded().ask(ListClaimsRequest()).claims == []


def test_claims_are_listed_by_group_and_released_by_an_operator() -> None:
    kept = Kept()
    for topic, group in (("t", "a"), ("u", "b"), ("v", "a")):
        kept.ask(ClaimTopicRequest(topic=topic, group_id=group, mode="ptp-exclusive"))
    listed = kept.ask(ListClaimsRequest(group_id="a")).claims
    assert [(each.topic, each.group_id) for each in listed] == [("t", "a"), ("v", "a")]
    kept.ask(ClaimTopicRequest(topic="t", gives_up=True))
    assert [each.topic for each in kept.ask(ListClaimsRequest()).claims] == ["u", "v"]


def test_sessions_and_settings_are_kept_until_their_group_goes() -> None:
    kept = Kept()
    session = PushSessionValue(mode="psb", state="parked", reason="no answer")
    kept.ask(SaveSessionRequest(group_id="g", consumer="c", topic="t", session=session))
    kept.ask(SaveSessionRequest(group_id="h", consumer="c", topic="t", session=session))
    kept.ask(GroupSettingsRequest(group_id="g", sets=[GroupSetting(name="n", value="v")]))
    again = kept.reloaded()
    (listed,) = again.ask(ListSessionsRequest(group_id="g")).sessions
    assert listed.session == session
    assert again.shard.session_states() == {"parked": 2}
    assert again.ask(GroupSettingsRequest(group_id="g", deletes=["x"])).settings[0].value == "v"
    again.ask(DeleteSharePartitionsRequest(group_id="g"))
    assert again.ask(ListSessionsRequest()).sessions[0].group_id == "h"
    assert again.ask(GroupSettingsRequest(group_id="g")).settings == []
    again.ask(SaveSessionRequest(group_id="h", consumer="c", topic="t", session=None))
    assert again.ask(ListSessionsRequest()).sessions == []


def test_invalid_records_are_ignored() -> None:
    kept = Kept()
    begin(kept)
    before = state_of(kept)
    key = encode_key(SharePartitionKey("g", TOPIC, 0))
    for each in (
        StateRecord(key=b"", value=b"x"),
        StateRecord(key=b"\x00\x63what", value=b"x"),
        StateRecord(key=key[:-3], value=b"\x00\x00"),
        record(SharePartitionKey("h", TOPIC, 0), PushSessionValue()),
    ):
        kept.shard.replay(each, 0)
    assert state_of(kept) == before
    kept.shard.replay(StateRecord(key=key, value=b"\x00\x09junk"), 0)
    assert SharePartitionKey("g", TOPIC, 0) not in kept.shard.share_partitions()


@pytest.mark.parametrize(("request_type", "response_type"), REQUEST_KINDS)
def test_every_request_can_be_refused(request_type, response_type) -> None:
    answer = refusal(request_type(), ErrorCode.NOT_COORDINATOR, "elsewhere")
    assert isinstance(answer, response_type)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NOT_COORDINATOR, "elsewhere")
