"""Classic members in a consumer group, and online migration between the protocols."""

import pytest
from consumer_driver import ConsumerDriver
from group_driver import GROUP, protocols, subscription

from zhumq.groups.classic import ClassicGroup, ClassicGroupState
from zhumq.groups.consumer import ConsumerGroupState
from zhumq.groups.settings import GroupSettings, MigrationPolicy
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.coordinator_records import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
    decode_versioned,
    encode_versioned,
)
from zhumq.protocol.messages.groups import JoinGroupRequestProtocol, JoinGroupResponse


def assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    named = [ConsumerProtocolTopicPartition(topic="topic", partitions=list(partitions))]
    return encode_versioned(
        ConsumerProtocolAssignment(
            assigned_partitions=named if partitions else [], user_data=user_data
        ),
        1,
    )


def assigned(data: bytes) -> list[int]:
    _, read = decode_versioned(ConsumerProtocolAssignment, data)
    return [index for each in read.assigned_partitions for index in each.partitions]


def owning(*partitions: int) -> list[JoinGroupRequestProtocol]:
    """A cooperative member's join: its subscription, and its owned partitions."""
    metadata = encode_versioned(
        ConsumerProtocolSubscription(
            topics=["topic"],
            owned_partitions=[
                ConsumerProtocolTopicPartition(topic="topic", partitions=list(partitions))
            ],
        ),
        1,
    )
    return [JoinGroupRequestProtocol(name="cooperative-sticky", metadata=metadata)]


class ClassicMember:
    """A classic client with a cooperative assignor."""

    def __init__(self, driver: ConsumerDriver, member_id: str = "") -> None:
        self.driver = driver
        self.member_id = member_id
        self.generation = -1
        self.partitions: list[int] = []

    def join(self) -> JoinGroupResponse:
        offered = owning(*self.partitions)
        answer = self.driver.joined(self.driver.join(self.member_id, offered=offered))
        self.member_id = answer.member_id
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = self.driver.joined(self.driver.join(self.member_id, offered=offered))
        self.generation = answer.generation_id
        return answer

    def sync(self) -> int:
        answer = self.driver.synced(self.driver.sync(self.member_id, self.generation))
        if answer.error_code == ErrorCode.NONE:
            self.partitions = assigned(answer.assignment)
        return answer.error_code

    def beat(self) -> int:
        return self.driver.heartbeat(self.member_id, self.generation)

    def catch_up(self) -> None:
        """Rejoin as a client does after REBALANCE_IN_PROGRESS."""
        while self.beat() == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            assert self.sync() == ErrorCode.NONE


def classic_group(driver: ConsumerDriver) -> list[ClassicMember]:
    """Two classic members that have three partitions each."""
    ids = [driver.joined(driver.join("", offered=owning())).member_id for _ in range(2)]
    tokens = [driver.join(each, offered=owning(), settle=False) for each in ids]
    driver.advance(0)
    while any(driver.is_parked(token) for token in tokens):
        tokens = [driver.join(each, offered=owning()) for each in ids]
    joined = driver.joined(tokens[0])
    ids.sort(key=lambda each: each != joined.leader)
    shares = {ids[0]: assignment(0, 1, 2), ids[1]: assignment(3, 4, 5)}
    members = []
    for each in ids:
        member = ClassicMember(driver, each)
        member.generation = joined.generation_id
        data = driver.synced(
            driver.sync(each, joined.generation_id, shares if each == ids[0] else None)
        ).assignment
        member.partitions = assigned(data)
        members.append(member)
    return members


def test_a_consumer_that_joins_upgrades_a_classic_group() -> None:
    driver = ConsumerDriver()
    old = classic_group(driver)
    driver.commit(7, member_id=old[0].member_id, generation=old[0].generation)
    new = driver.consumer()
    assert new.answer.error_code == ErrorCode.NONE
    assert new.epoch == old[0].generation + 1
    assert new.partitions == [], "the others still own everything"
    assert [driver.group.members[each.member_id].assigned for each in old] == [
        {driver.topics.ids["topic"]: frozenset({0, 1, 2})},
        {driver.topics.ids["topic"]: frozenset({3, 4, 5})},
    ]
    assert driver.committed() == (7, "")
    for _ in range(3):
        for member in old:
            member.catch_up()
        new.beat()
    everything = [*old[0].partitions, *old[1].partitions, *new.partitions]
    assert sorted(everything) == list(range(6))
    assert [len(each) for each in (old[0].partitions, old[1].partitions, new.partitions)] == [2] * 3
    assert driver.group.state is ConsumerGroupState.STABLE
    types = {each.member_id: each.member_type for each in driver.describe_consumers().members}
    assert types == {old[0].member_id: 0, old[1].member_id: 0, new.member_id: 1}


def test_a_classic_member_must_rejoin_when_its_target_partitions_are_free() -> None:
    driver = ConsumerDriver()
    new = driver.consumer()
    old = ClassicMember(driver)
    old.join()
    assert old.sync() == ErrorCode.NONE
    assert old.partitions == []
    assert old.beat() == ErrorCode.NONE, "its assignment has not changed yet"
    new.beat()
    new.beat()
    assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    old.catch_up()
    assert sorted(old.partitions + new.partitions) == list(range(6))


def test_a_classic_member_gives_up_before_another_gets_it() -> None:
    driver = ConsumerDriver()
    old = classic_group(driver)
    new = driver.consumer()
    old[0].join()
    assert old[0].sync() == ErrorCode.NONE
    assert len(old[0].partitions) == 2
    new.beat()
    assert new.partitions == [], "the classic member has not reported the revocation yet"
    old[0].catch_up()
    new.beat()
    assert len(new.partitions) == 1


def test_the_last_consumer_leaves_and_the_group_is_classic_again() -> None:
    driver = ConsumerDriver()
    old = classic_group(driver)
    new = driver.consumer()
    for _ in range(3):
        for member in old:
            member.catch_up()
        new.beat()
    epoch = driver.group.epoch
    assert new.leave() == ErrorCode.NONE
    group = driver.shard.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicGroupState.PREPARING_REBALANCE
    assert group.generation == epoch + 1
    assert old[0].beat() in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
    tokens = [driver.join(each.member_id, offered=owning(*each.partitions)) for each in old]
    assert {driver.joined(token).generation_id for token in tokens} == {epoch + 2}
    before = driver.shard.hard_state()
    driver.reload()
    assert driver.shard.hard_state() == before


def test_the_last_consumer_falls_silent_and_the_group_is_classic_again() -> None:
    driver = ConsumerDriver()
    old = classic_group(driver)
    driver.consumer()
    for _ in range(9):
        driver.advance(5_000)
        for member in old:
            member.catch_up()
    assert isinstance(driver.shard.groups[GROUP], ClassicGroup)


def test_a_classic_member_that_does_not_join_again_in_time_is_put_out() -> None:
    driver = ConsumerDriver()
    old = classic_group(driver)
    new = driver.consumer()
    for _ in range(13):
        driver.advance(5_000)
        old[0].beat()
        old[1].catch_up()
        new.beat()
    assert old[0].member_id not in driver.group.members
    assert old[0].beat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert old[1].member_id in driver.group.members


def test_the_first_member_of_an_empty_group_decides_its_protocol() -> None:
    driver = ConsumerDriver()
    old = classic_group(driver)
    driver.commit(7, member_id=old[0].member_id, generation=old[0].generation)
    driver.leave(*(each.member_id for each in old))
    new = driver.consumer()
    assert new.partitions == list(range(6))
    new.leave()
    driver.stable_group()
    assert isinstance(driver.shard.groups[GROUP], ClassicGroup)
    assert driver.committed() == (7, "")
    before = driver.shard.hard_state()
    driver.reload()
    assert driver.shard.hard_state() == before


def test_a_rebalance_under_way_is_ended_by_an_upgrade() -> None:
    driver = ConsumerDriver()
    old = classic_group(driver)
    parked = driver.join(old[0].member_id, offered=owning(0, 1))
    assert driver.is_parked(parked)
    assert driver.consumer().answer.error_code == ErrorCode.NONE
    assert driver.joined(parked).error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("policy", [MigrationPolicy.DOWNGRADE, MigrationPolicy.DISABLED])
def test_a_policy_can_forbid_the_upgrade(policy: MigrationPolicy) -> None:
    driver = ConsumerDriver(settings=GroupSettings(consumer_migration_policy=policy))
    classic_group(driver)
    before = driver.shard.hard_state()
    assert driver.consumer().answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(driver.shard.groups[GROUP], ClassicGroup)
    assert driver.shard.hard_state() == before


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE, MigrationPolicy.DISABLED])
def test_a_policy_can_forbid_the_downgrade(policy: MigrationPolicy) -> None:
    driver = ConsumerDriver(settings=GroupSettings(consumer_migration_policy=policy))
    new = driver.consumer()
    old = ClassicMember(driver)
    old.join()
    old.sync()
    new.leave()
    old.catch_up()
    assert old.partitions == list(range(6)), "the coordinator still assigns"


@pytest.mark.parametrize("what", ["protocol type", "subscription", "assignment", "user data"])
def test_what_cannot_be_understood_is_not_upgraded(what: str) -> None:
    driver = ConsumerDriver()
    offered = protocols("of-my-own" if what == "user data" else "range")
    if what == "subscription":
        offered = [JoinGroupRequestProtocol(name="range", metadata=b"\x00")]
    protocol_type = "connect" if what == "protocol type" else "consumer"
    member_id = driver.member(offered=offered, protocol_type=protocol_type)
    joined = driver.joined(driver.join(member_id, offered=offered, protocol_type=protocol_type))
    data = assignment(0, user_data=b"mine") if what == "user data" else assignment(0)
    shares = {member_id: b"\x00" if what == "assignment" else data}
    driver.sync(member_id, joined.generation_id, shares)
    answer = driver.consumer().answer
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert driver.heartbeat(member_id, joined.generation_id) == ErrorCode.NONE


def test_user_data_of_a_client_s_builtin_assignor_does_not_prevent_an_upgrade() -> None:
    # librdkafka's cooperative-sticky assignor sends members their previous partitions.
    driver = ConsumerDriver()
    member_id = driver.member(offered=owning())
    joined = driver.joined(driver.join(member_id, offered=owning()))
    shares = {member_id: assignment(0, 1, user_data=b"earlier")}
    driver.sync(member_id, joined.generation_id, shares)
    assert driver.consumer().answer.error_code == ErrorCode.NONE


def test_a_classic_member_without_a_common_protocol_is_refused() -> None:
    driver = ConsumerDriver()
    driver.consumer()
    ClassicMember(driver).join()
    metadata = subscription("topic")
    unknown = driver.join("s", offered=[JoinGroupRequestProtocol(name="other", metadata=metadata)])
    assert driver.joined(unknown).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    garbled = driver.join(
        "s", offered=[JoinGroupRequestProtocol(name="cooperative-sticky", metadata=b"")]
    )
    assert driver.joined(garbled).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_classic_requests_of_others_are_refused() -> None:
    driver = ConsumerDriver()
    new = driver.consumer()
    old = ClassicMember(driver)
    old.join()
    wrong = driver.synced(driver.sync(old.member_id, old.generation + 1))
    assert wrong.error_code == ErrorCode.ILLEGAL_GENERATION
    other = driver.synced(driver.sync(old.member_id, old.generation, protocol_name="range"))
    assert other.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.heartbeat(new.member_id, new.epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat("unknown", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.commit(1, member_id=old.member_id, generation=99) == ErrorCode.ILLEGAL_GENERATION
    assert driver.leave("unknown", new.member_id).members[0].error_code == (
        ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert set(driver.group.members) == {new.member_id, old.member_id}


def test_a_static_classic_member_is_replaced_by_a_static_consumer() -> None:
    driver = ConsumerDriver()
    driver.consumer()
    first = driver.joined(driver.join("", offered=owning(), instance_id="one"))
    assert first.error_code == ErrorCode.NONE
    again = driver.joined(driver.join("", offered=owning(), instance_id="one"))
    assert again.member_id != first.member_id
    fenced = driver.synced(driver.sync(first.member_id, first.generation_id, instance_id="one"))
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert driver.consumer("new", instance_id="one").answer.error_code == ErrorCode.NONE
    assert driver.group.static_members == {"one": "new"}


def test_an_administrator_removes_a_static_member_of_either_protocol() -> None:
    driver = ConsumerDriver()
    driver.consumer(instance_id="one")
    answer = driver.leave(("", "one"), ("", "two"))
    assert [each.error_code for each in answer.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert driver.group.is_empty


def test_a_removed_classic_member_gets_unknown_member_id_before_it_rejoins() -> None:
    driver = ConsumerDriver()
    driver.consumer()
    zombie = driver.join("given-up", offered=owning(3, 4))
    assert driver.joined(zombie).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert set(driver.group.members) == {"m1"}


def test_what_a_classic_member_has_not_revoked_stays_its_own_after_an_upgrade() -> None:
    driver = ConsumerDriver()
    old = classic_group(driver)
    # A rebalance takes partitions 1 and 2 from the first; the response is still in flight.
    tokens = [driver.join(each.member_id, offered=owning(*each.partitions)) for each in old]
    generation = driver.joined(tokens[0]).generation_id
    shares = {old[0].member_id: assignment(0), old[1].member_id: assignment(3, 4, 5)}
    driver.sync(old[0].member_id, generation, shares)

    new = driver.consumer()
    assert new.partitions == [], "1 and 2 may still be read"
    topic_id = driver.topics.ids["topic"]
    assert driver.group.members[old[0].member_id].pending_revocation == {
        topic_id: frozenset({1, 2})
    }
    before = driver.shard.hard_state()
    driver.reload()
    assert driver.shard.hard_state() == before

    old[0].partitions = [0]
    old[0].generation = old[1].generation = generation
    for _ in range(3):
        for member in old:
            member.catch_up()
        new.beat()
    everything = [*old[0].partitions, *old[1].partitions, *new.partitions]
    assert sorted(everything) == list(range(6))


def test_epochs_go_on_when_an_empty_group_changes_its_protocol() -> None:
    driver = ConsumerDriver()
    old = classic_group(driver)
    driver.leave(*(each.member_id for each in old))
    new = driver.consumer()
    assert new.epoch > old[0].generation
    new.leave()
    _, generation = driver.stable_group()
    assert generation > new.epoch
