"""After a restart a group equals its log, and no log content breaks loading."""

import random

from group_driver import GROUP, Driver, protocols, subscription

from zhumq.groups.persisted import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    decode_key,
    decode_offset,
    group_record,
    offset_record,
)
from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode
from zhumq.model.state_machine import StateRecord
from zhumq.protocol.messages.coordinator_records import GroupMetadataValue, MemberMetadata


def test_a_group_is_back_with_its_members_generation_and_assignments() -> None:
    driver = Driver()
    (leader, follower), generation = driver.stable_group(2)
    driver.reload()
    assert driver.heartbeat(leader, generation) == ErrorCode.NONE
    response = driver.synced(driver.sync(follower, generation))
    assert response.assignment == f"of {follower}".encode()
    assert driver.joined(driver.join(follower)).leader == leader


def test_after_a_restart_members_have_a_full_session_timeout() -> None:
    driver = Driver()
    (first, second), generation = driver.stable_group(2)
    driver.now_ms += 3_600_000  # the broker was down for an hour
    driver.reload()
    driver.advance(9_999)
    assert driver.heartbeat(first, generation) == ErrorCode.NONE
    driver.advance(1)
    assert driver.heartbeat(second, generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_under_way_is_forgotten_and_starts_over() -> None:
    driver = Driver()
    (first, second), generation = driver.stable_group(2)
    driver.join(first)
    driver.join(second)
    driver.reload()
    assert (
        driver.synced(driver.sync(first, generation + 1)).error_code == ErrorCode.ILLEGAL_GENERATION
    )
    assert driver.heartbeat(first, generation) == ErrorCode.NONE


def test_a_group_that_never_got_an_assignment_is_unknown_after_a_restart() -> None:
    driver = Driver()
    member_id = driver.joined(driver.join("", version=3)).member_id
    driver.reload()
    assert driver.joined(driver.join(member_id)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_static_members_and_subscriptions_survive() -> None:
    driver = Driver()
    member_id = driver.joined(driver.join("", instance_id="one")).member_id
    driver.sync(member_id, 1, instance_id="one")
    driver.reload()
    fenced = driver.heartbeat("another", 1, instance_id="one")
    assert fenced == ErrorCode.FENCED_INSTANCE_ID
    group = driver.shard.groups[GROUP]
    assert group.is_subscribed_to("topic")
    assert not group.is_subscribed_to("another")


def test_a_group_over_a_lowered_limit_rebalances_and_shrinks() -> None:
    driver = Driver()
    ids, generation = driver.stable_group(3)
    driver.settings = GroupSettings(members_max=2)
    driver.reload()
    assert driver.heartbeat(ids[0], generation) == ErrorCode.REBALANCE_IN_PROGRESS
    joins = [driver.join(member_id) for member_id in ids]
    errors = sorted(driver.joined(token).error_code for token in joins)
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_replaying_twice_is_replaying_once() -> None:
    driver = Driver()
    (member_id,), generation = driver.stable_group()
    driver.commit(5, member_id=member_id, generation=generation)
    state = driver.shard.hard_state()
    driver.log = driver.log * 2
    driver.reload()
    assert driver.shard.hard_state() == state


def test_records_of_unknown_kinds_are_ignored() -> None:
    driver = Driver()
    driver.commit(5)
    strange = [
        StateRecord(key=b"", value=b""),
        StateRecord(key=b"\x00", value=b"x"),
        StateRecord(key=b"\x00\x03\x00\x01x", value=b"a key of a later version"),
        StateRecord(key=b"\xff\xff", value=b""),
        StateRecord(key=b"\x00\x01\x7f\xff", value=b""),
        StateRecord(key=group_record("broken", None).key, value=b"\x00\x63"),
        StateRecord(key=group_record("broken", None).key, value=b""),
        StateRecord(
            key=offset_record(OffsetKey("broken", "t", 0), None).key, value=b"\x00\x03\x00"
        ),
    ]
    for record in strange:
        driver.shard.replay(record, driver.now_ms)
    driver.log.extend(strange)
    driver.reload()
    assert driver.committed() == (5, "")


def test_random_bytes_never_break_a_replay() -> None:
    draw = random.Random(11)
    driver = Driver()
    driver.stable_group(2)
    driver.commit(1, group_id="other")
    valid = list(driver.log)
    for _ in range(2_000):
        record = draw.choice(valid)
        key, value = bytearray(record.key), bytearray(record.value or b"")
        for target in (key, value):
            for _ in range(draw.randrange(3)):
                if target:
                    target[draw.randrange(len(target))] = draw.randrange(256)
            del target[draw.randrange(len(target) + 1) :]
        broken = StateRecord(key=bytes(key), value=bytes(value))
        driver.shard.replay(broken, driver.now_ms)
        driver.log.append(broken)
    driver.reload()


def test_kafkas_bytes_of_an_offset_are_ours() -> None:
    record = offset_record(
        OffsetKey("group", "topic", 3),
        CommittedOffset(offset=42, leader_epoch=7, metadata="m", commit_timestamp_ms=1_000),
    )
    # | version i16 | group | topic | partition i32 |, strings with an i16 length
    assert record.key == b"\x00\x01\x00\x05group\x00\x05topic\x00\x00\x00\x03"
    # | version i16 | offset i64 | leader epoch i32 | metadata | commit timestamp i64 |
    assert record.value == (
        b"\x00\x03"
        + (42).to_bytes(8, "big")
        + (7).to_bytes(4, "big")
        + b"\x00\x01m"
        + (1_000).to_bytes(8, "big")
    )
    assert decode_key(record.key) == OffsetKey("group", "topic", 3)


def test_an_offset_with_an_expiry_of_its_own_is_written_as_version_1() -> None:
    committed = CommittedOffset(offset=42, commit_timestamp_ms=1_000, expire_timestamp_ms=2_000)
    value = offset_record(OffsetKey("g", "t", 0), committed).value
    assert value is not None
    assert value[:2] == b"\x00\x01"
    assert decode_offset(value) == committed


def test_kafkas_bytes_of_a_group_are_ours() -> None:
    record = group_record(
        "g",
        GroupMetadataValue(
            protocol_type="consumer",
            generation=5,
            protocol="range",
            leader="m",
            current_state_timestamp=9,
            members=[
                MemberMetadata(
                    member_id="m",
                    group_instance_id=None,
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout=60,
                    session_timeout=10,
                    subscription=b"S",
                    assignment=b"A",
                )
            ],
        ),
    )
    assert record.key == b"\x00\x02\x00\x01g"
    assert decode_key(record.key) == GroupKey("g")
    assert record.value == (
        b"\x00\x03\x00\x08consumer\x00\x00\x00\x05\x00\x05range\x00\x01m"
        b"\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x01"
        b"\x00\x01m\xff\xff\x00\x01c\x00\x02/h\x00\x00\x00\x3c\x00\x00\x00\x0a"
        b"\x00\x00\x00\x01S\x00\x00\x00\x01A"
    )


def test_a_tombstone_has_no_value() -> None:
    assert group_record("g", None).value is None
    assert offset_record(OffsetKey("g", "t", 0), None).value is None


def test_a_group_written_before_rebalance_timeouts_uses_the_session_timeout() -> None:
    driver = Driver()
    # Value version 0, as Kafka 0.10 wrote it: no rebalance timeout, no timestamp, no instance.
    value = (
        b"\x00\x00\x00\x08consumer\x00\x00\x00\x02\x00\x05range\x00\x01m\x00\x00\x00\x01"
        b"\x00\x01m\x00\x01c\x00\x02/h\x00\x00\x27\x10" + b"\x00\x00\x00\x00" * 2
    )
    driver.log.append(StateRecord(key=group_record(GROUP, None).key, value=value))
    driver.reload()
    assert driver.heartbeat("m", 2) == ErrorCode.NONE
    assert driver.shard.groups[GROUP].rebalance_timeout_ms == 10_000  # type: ignore[attr-defined]


def test_what_a_group_recorded_of_itself_is_what_it_is() -> None:
    driver = Driver()
    offered = protocols(("range", subscription("a", "b")))
    member_id = driver.joined(driver.join("", instance_id="one", offered=offered)).member_id
    driver.sync(member_id, 1, {member_id: b"x"})
    live = driver.shard.groups[GROUP]
    driver.reload()
    loaded = driver.shard.groups[GROUP]
    assert loaded.to_record() == live.to_record()  # type: ignore[attr-defined]
