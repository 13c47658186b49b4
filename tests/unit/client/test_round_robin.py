"""Messages without a key, in turn over the partitions."""

from zhumq.client.round_robin import COUNT_SECONDS, RoundRobin


def test_partitions_take_turns_by_topic_and_new_ones_join_in() -> None:
    counts = {"a": 3, "b": 2, "new": 0}
    now = [0.0]
    turns = RoundRobin(lambda topic: counts[topic], lambda: now[0])
    assert [turns.partition("a") for _ in range(4)] == [0, 1, 2, 0]
    assert [turns.partition("b") for _ in range(3)] == [0, 1, 0]
    counts["a"] = 4
    assert [turns.partition("a") for _ in range(2)] == [1, 2]
    now[0] += COUNT_SECONDS
    assert [turns.partition("a") for _ in range(2)] == [3, 0]


def test_a_topic_without_partitions_is_asked_for_again() -> None:
    counts = {"new": 0}
    turns = RoundRobin(lambda topic: counts[topic], lambda: 0.0)
    assert turns.partition("new") is None
    counts["new"] = 2
    assert [turns.partition("new") for _ in range(3)] == [0, 1, 0]
