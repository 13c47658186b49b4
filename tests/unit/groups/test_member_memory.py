"""The memory for members is limited by group and by shard, and freed when members leave."""

from consumer_driver import ConsumerDriver
from group_driver import Driver, protocols

from zhumq.groups.settings import GroupSettings
from zhumq.model.errors import ErrorCode
from zhumq.protocol.messages.groups import JoinGroupRequest
from zhumq.protocol.messages.share import ShareGroupHeartbeatRequest

LARGE = protocols(("range", b"x" * 40_000))


def test_a_group_keeps_no_more_than_its_bound_of_subscriptions() -> None:
    driver = Driver(GroupSettings(group_metadata_bytes_max=100_000))
    (first,), generation = driver.stable_group()
    joins = [driver.join("", version=3, offered=LARGE) for _ in range(4)]
    refused = [driver.joined(each).error_code for each in joins if not driver.is_parked(each)]
    assert refused == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
    assert driver.heartbeat(first, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_joins_again_counts_once() -> None:
    driver = Driver(GroupSettings(group_metadata_bytes_max=50_000))
    member_id = driver.joined(driver.join("", version=3, offered=LARGE)).member_id
    for _ in range(5):
        assert driver.joined(driver.join(member_id, offered=LARGE)).error_code == ErrorCode.NONE


def test_a_shard_keeps_no_more_than_its_bound_and_has_room_again_when_members_leave() -> None:
    driver = Driver(GroupSettings(shard_member_bytes_max=100_000))

    def join(group_id: str) -> tuple[int, str]:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=LARGE,
        )
        response = driver.ask(request, 3)
        return response.error_code, response.member_id  # type: ignore[union-attr]

    assert [join(group)[0] for group in ("a", "b", "c")] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    driver.advance(60_000)  # the sessions of both end
    assert join("c")[0] == ErrorCode.NONE


def test_names_of_topics_in_heartbeats_count_too() -> None:
    driver = ConsumerDriver(settings=GroupSettings(shard_member_bytes_max=100_000))
    names = [f"topic-{number}" for number in range(500)]
    errors = [
        driver.beat(member, 0, topics=names, owned={}, rebalance_timeout_ms=1_000).error_code
        for member in ("one", "two")
    ]
    assert errors == [ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]
    response = driver.ask(
        ShareGroupHeartbeatRequest(
            group_id="share", member_id="three", member_epoch=0, subscribed_topic_names=names
        ),
        1,
    )
    assert response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED  # type: ignore[union-attr]
