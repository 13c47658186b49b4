"""Members of a consumer group: joining, reconciling, leaving, and refusals (KIP-848)."""

import pytest
from consumer_driver import REBALANCE_TIMEOUT_MS, ConsumerDriver
from group_driver import GROUP

from zhumq.groups.consumer import ConsumerGroupState, MemberState
from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode


def test_the_first_member_gets_everything_in_its_first_answer() -> None:
    driver = ConsumerDriver()
    member = driver.consumer()
    assert member.answer.member_id == "m1"
    assert member.answer.heartbeat_interval_ms == 5_000
    assert (member.epoch, member.partitions) == (1, [0, 1, 2, 3, 4, 5])
    assert driver.group.state is ConsumerGroupState.STABLE


def test_a_response_has_partitions_only_when_they_changed_or_for_a_full_heartbeat() -> None:
    driver = ConsumerDriver()
    member = driver.consumer()
    assert driver.beat("m1", 1).assignment is None
    assert driver.beat("m1", 1, owned={"topic": [0, 1, 2, 3, 4, 5]}).assignment is None
    full = driver.beat(
        "m1", 1, owned=member.owned, topics=["topic"], rebalance_timeout_ms=REBALANCE_TIMEOUT_MS
    )
    assert driver.named(full) == {"topic": [0, 1, 2, 3, 4, 5]}


def test_a_partition_is_given_up_before_it_is_given_away() -> None:
    driver = ConsumerDriver()
    first = driver.consumer()
    second = driver.consumer()
    assert (second.epoch, second.partitions) == (2, [])
    assert driver.group.members["m2"].state is MemberState.UNRELEASED_PARTITIONS

    response = driver.beat("m1", 1)
    assert response.member_epoch == 1, "it keeps its epoch until it has revoked"
    kept = driver.named(response)["topic"]
    assert len(kept) == 3
    assert driver.group.members["m1"].state is MemberState.UNREVOKED_PARTITIONS
    assert second.beat().assignment is None, "it is still waiting"

    first.owned = {"topic": kept}
    assert first.beat().member_epoch == 2
    assert second.beat().member_epoch == 2
    assert sorted(first.partitions + second.partitions) == list(range(6))
    assert driver.group.state is ConsumerGroupState.STABLE


def test_a_heartbeat_without_owned_partitions_revokes_nothing() -> None:
    driver = ConsumerDriver()
    driver.consumer()
    driver.consumer()
    driver.beat("m1", 1)
    assert driver.beat("m1", 1).member_epoch == 1
    assert driver.group.members["m1"].state is MemberState.UNREVOKED_PARTITIONS


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    driver = ConsumerDriver(settings=GroupSettings(consumer_session_timeout_ms=10_000_000))
    driver.consumer()
    second = driver.consumer()
    driver.beat("m1", 1)
    driver.advance(REBALANCE_TIMEOUT_MS)
    assert "m1" not in driver.group.members
    second.beat()
    assert second.partitions == list(range(6))
    assert driver.beat("m1", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_consumer_whose_session_expires_is_removed() -> None:
    driver = ConsumerDriver()
    driver.consumer()
    driver.advance(44_999)
    assert not driver.group.is_empty
    driver.advance(1)
    assert driver.group.is_empty
    assert driver.group.epoch == 2


def test_a_heartbeat_keeps_a_member_and_a_commit_does_not() -> None:
    driver = ConsumerDriver()
    driver.consumer()
    driver.advance(30_000)
    driver.beat("m1", 1)
    driver.advance(30_000)
    assert driver.commit(5, member_id="m1", generation=1) == ErrorCode.NONE
    driver.advance(15_000)
    assert driver.group.is_empty


def test_a_member_that_leaves_frees_its_partitions_at_once() -> None:
    driver = ConsumerDriver()
    first = driver.consumer()
    second = driver.consumer()
    driver.settle(first, second)
    assert first.leave() == ErrorCode.NONE
    second.beat()
    assert second.partitions == list(range(6))
    assert second.leave() == ErrorCode.NONE
    assert driver.group.state is ConsumerGroupState.EMPTY


def test_the_epoch_before_is_good_if_its_answer_may_have_got_lost() -> None:
    driver = ConsumerDriver()
    first = driver.consumer()
    second = driver.consumer()
    driver.settle(first, second)
    assert driver.group.members["m1"].previous_epoch == 1
    kept = first.owned
    assert driver.beat("m1", 1, owned=kept).member_epoch == 2
    assert driver.beat("m1", 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    everything = {"topic": list(range(6))}
    assert driver.beat("m1", 1, owned=everything).error_code == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("epoch", [2, 99])
def test_an_epoch_of_the_future_is_fenced(epoch: int) -> None:
    driver = ConsumerDriver()
    driver.consumer()
    assert driver.beat("m1", epoch, owned={}).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_fenced_member_starts_over_under_its_id() -> None:
    driver = ConsumerDriver()
    first = driver.consumer()
    second = driver.consumer()
    driver.settle(first, second)
    driver.beat("m1", 9, owned={})
    first.join()
    assert first.answer.error_code == ErrorCode.NONE
    assert len(first.partitions) == 3


def test_a_change_of_subscription_is_a_new_assignment() -> None:
    driver = ConsumerDriver()
    driver.topics.put("other", 2)
    member = driver.consumer()
    member._take(driver.beat("m1", 1, topics=["topic", "other"], owned=member.owned))
    assert member.owned == {"topic": list(range(6)), "other": [0, 1]}
    response = driver.beat("m1", 2, topics=["other"], owned=member.owned)
    assert driver.named(response) == {"other": [0, 1]}
    assert driver.beat("m1", 2, owned={"other": [0, 1]}).member_epoch == 3


def test_new_partitions_reach_members_with_their_next_heartbeat() -> None:
    driver = ConsumerDriver()
    member = driver.consumer()
    driver.topics.put("topic", 8)
    member.beat()
    assert (member.epoch, member.partitions) == (2, list(range(8)))


def test_a_topic_that_is_created_and_deleted_comes_and_goes() -> None:
    driver = ConsumerDriver()
    member = driver.consumer(topics=["topic", "later"])
    driver.topics.put("later", 1)
    member.beat()
    assert member.owned == {"topic": list(range(6)), "later": [0]}
    gone = driver.topics.ids["topic"]
    driver.topics.delete("topic")
    response = driver.beat("m1", 2)
    assert driver.named(response) == {"later": [0]}
    assert (gone, 0) in driver.group.owners, "until the member reports the revocation"
    assert driver.beat("m1", 2, owned={"later": [0]}).member_epoch == 3
    assert (gone, 0) not in driver.group.owners


def test_a_change_of_topics_without_readers_changes_nothing() -> None:
    driver = ConsumerDriver()
    driver.consumer()
    records = len(driver.log)
    driver.topics.put("unrelated", 5)
    assert driver.beat("m1", 1).member_epoch == 1
    assert len(driver.log) == records


def test_an_expression_is_matched_here() -> None:
    driver = ConsumerDriver()
    driver.topics.put("orders-1", 1)
    driver.topics.put("unrelated", 1)
    member = driver.consumer(regex=".*-.*|__.*")
    assert member.owned == {"orders-1": [0]}
    driver.topics.put("orders-2", 1)
    member.beat()
    assert member.owned == {"orders-1": [0], "orders-2": [0]}
    response = driver.beat("m1", member.epoch, topics=["topic"], regex="", owned=member.owned)
    assert response.error_code == ErrorCode.NONE
    assert driver.group.regexes == {}


def test_an_expression_can_mean_internal_topics() -> None:
    # As in Kafka, where ACLs decide; a client can exclude them.
    driver = ConsumerDriver()
    driver.topics.put("__consumer_offsets", 2)
    assert driver.consumer(regex="__.*").owned == {"__consumer_offsets": [0, 1]}


def test_an_expression_means_no_more_topics_than_a_record_holds() -> None:
    driver = ConsumerDriver(settings=GroupSettings(group_record_bytes_max=70_000))
    for number in range(60):
        driver.topics.put(f"{'x' * 200}-{number:02}", 1)
    member = driver.consumer(regex="x.*")
    assert sorted(member.owned) == [f"{'x' * 200}-{number:02}" for number in range(21)]
    assert max(len(each.key) + len(each.value or b"") for each in driver.log) <= 70_000
    before = driver.shard.hard_state()
    driver.reload()
    assert driver.shard.hard_state() == before
    assert member.beat().assignment is None


def test_an_expression_that_is_not_one_is_refused() -> None:
    driver = ConsumerDriver()
    member = driver.consumer(regex="(a")
    assert member.answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "(a" in (member.answer.error_message or "")
    assert driver.shard.groups == {}
    assert driver.log == []


def test_members_vote_for_the_assignor() -> None:
    driver = ConsumerDriver()
    members = [driver.consumer(assignor="range"), driver.consumer(assignor="range")]
    driver.settle(*members)
    assert [member.partitions for member in members] == [[0, 1, 2], [3, 4, 5]]
    assert driver.describe_consumers().assignor_name == "range"
    third = driver.consumer(assignor="nonsense")
    assert third.answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR


# Static members


def test_a_static_member_finds_its_partitions_after_a_restart() -> None:
    driver = ConsumerDriver()
    first = driver.consumer(instance_id="one")
    second = driver.consumer(instance_id="two")
    driver.settle(first, second)
    had, epoch = first.partitions, driver.group.epoch
    assert first.leave(epoch=-2) == ErrorCode.NONE
    assert second.beat().assignment is None, "its partitions stay reserved"
    again = driver.consumer("m1-again", instance_id="one")
    assert again.partitions == had
    assert (again.epoch, driver.group.epoch) == (epoch, epoch), "no rebalance"
    assert driver.beat("m1", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_away_loses_its_partitions() -> None:
    driver = ConsumerDriver()
    first = driver.consumer(instance_id="one")
    second = driver.consumer(instance_id="two")
    driver.settle(first, second)
    first.leave(epoch=-2)
    for _ in range(9):
        driver.advance(5_000)
        second.beat()
    assert second.partitions == list(range(6))


def test_an_instance_id_in_use_is_not_given_to_another() -> None:
    driver = ConsumerDriver()
    driver.consumer(instance_id="one")
    intruder = driver.consumer(instance_id="one")
    assert intruder.answer.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert set(driver.group.members) == {"m1"}


def test_the_former_holder_of_an_instance_id_is_fenced() -> None:
    driver = ConsumerDriver()
    first = driver.consumer(instance_id="one")
    first.leave(epoch=-2)
    driver.consumer(instance_id="one")
    assert driver.beat("m1", 1, instance_id="one").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert first.leave() == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_can_leave_for_good() -> None:
    driver = ConsumerDriver()
    first = driver.consumer(instance_id="one")
    assert first.leave() == ErrorCode.NONE
    assert driver.group.static_members == {}


# What is refused


@pytest.mark.parametrize(
    "options",
    [
        {"group_id": ""},
        {"group_id": "g" * 40_000},
        {"member_id": ""},
        {"member_id": "m" * 40_000},
        {"epoch": -3},
        {"epoch": -2},
        {"instance_id": ""},
        {"rebalance_timeout_ms": -1},
        {"owned": None},
        {"owned": {"topic": [0]}},
        {"topics": None},
        {"topics": ["x" * 2_000_000]},
    ],
)
def test_an_invalid_heartbeat_changes_nothing(options: dict[str, object]) -> None:
    driver = ConsumerDriver()
    given = {
        "member_id": "m",
        "epoch": 0,
        "topics": ["topic"],
        "owned": {},
        "rebalance_timeout_ms": 1_000,
        **options,
    }
    assert driver.beat(**given).error_code == ErrorCode.INVALID_REQUEST  # type: ignore[arg-type]
    assert driver.log == []
    assert driver.shard.groups == {}


def test_version_0_may_leave_the_id_to_the_coordinator() -> None:
    driver = ConsumerDriver()
    answer = driver.beat("", 0, topics=["topic"], owned={}, rebalance_timeout_ms=1, version=0)
    assert answer.member_id == "0001"


def test_a_full_group_refuses_new_members() -> None:
    driver = ConsumerDriver(settings=GroupSettings(consumer_members_max=1))
    first = driver.consumer()
    assert driver.consumer().answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first.beat().error_code == ErrorCode.NONE
    assert first.join().error_code == ErrorCode.NONE


def test_the_protocol_can_be_switched_off() -> None:
    driver = ConsumerDriver(settings=GroupSettings(consumer_protocol_enabled=False))
    assert driver.consumer().answer.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("epoch", [-1, 5])
def test_a_heartbeat_of_an_unknown_member_is_refused(epoch: int) -> None:
    driver = ConsumerDriver()
    assert driver.beat("m1", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    driver.consumer()
    assert driver.beat("unknown", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_is_as_it_was_after_a_reload_in_the_middle() -> None:
    driver = ConsumerDriver()
    first = driver.consumer(instance_id="one")
    second = driver.consumer(regex="topic|x", assignor="uniform")
    driver.beat("m1", 1)
    before = driver.shard.hard_state()
    members = dict(driver.group.members)
    driver.reload()
    assert driver.shard.hard_state() == before
    assert driver.group.members == members
    driver.settle(first, second)
    assert sorted(first.partitions + second.partitions) == list(range(6))
    assert driver.group.epoch == 2, "a reload does not start a new assignment"


def test_a_reloaded_group_still_waits_only_so_long() -> None:
    driver = ConsumerDriver(settings=GroupSettings(consumer_session_timeout_ms=10_000_000))
    driver.consumer()
    driver.consumer()
    driver.beat("m1", 1)
    driver.reload()
    driver.advance(REBALANCE_TIMEOUT_MS)
    assert set(driver.group.members) == {"m2"}
    assert GROUP in driver.shard.groups
