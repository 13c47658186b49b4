"""Assignments of any members and topics: complete, without duplicates, even, with few moves."""

import uuid
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from zhumq.groups.assignors import ASSIGNORS, AssignedMember, Assignor, Partitions, range_, uniform

DETERMINISTIC = settings(derandomize=True, database=None, max_examples=150)
TOPICS = [uuid.UUID(int=number) for number in range(1, 6)]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)
IDS = st.sets(st.sampled_from([f"m{number:02}" for number in range(12)]), min_size=1)


def members(
    subscribed: dict[str, frozenset[uuid.UUID]], before: dict[str, Partitions]
) -> list[AssignedMember]:
    return [
        AssignedMember(member_id=name, subscribed=topics, before=before.get(name, {}))
        for name, topics in subscribed.items()
    ]


def flat(assignment: dict[str, Partitions]) -> dict[tuple[uuid.UUID, int], str]:
    """The owner of every partition; fails if there are two."""
    owners: dict[tuple[uuid.UUID, int], str] = {}
    for name, partitions in assignment.items():
        for topic_id, indexes in partitions.items():
            for index in indexes:
                assert (topic_id, index) not in owners, "nothing is assigned twice"
                owners[topic_id, index] = name
    return owners


def check_whole(
    assignment: dict[str, Partitions],
    subscribed: dict[str, frozenset[uuid.UUID]],
    counts: dict[uuid.UUID, int],
) -> None:
    owners = flat(assignment)
    assert assignment.keys() == subscribed.keys()
    read = frozenset().union(*subscribed.values())
    assert owners.keys() == {
        (topic_id, index)
        for topic_id, count in counts.items()
        if topic_id in read
        for index in range(count)
    }
    assert all(topic_id in subscribed[name] for (topic_id, _), name in owners.items())


@DETERMINISTIC
@given(st.data())
def test_an_assignment_is_whole_whatever_members_read(data: st.DataObject) -> None:
    counts = data.draw(COUNTS)
    topics = st.frozensets(st.sampled_from(TOPICS))
    subscribed = data.draw(st.dictionaries(st.sampled_from("abcdefgh"), topics, min_size=1))
    before: dict[str, Partitions] = {}
    for _ in range(3):
        assignor: Assignor = ASSIGNORS[data.draw(st.sampled_from(sorted(ASSIGNORS)))]
        before = assignor(members(subscribed, before), counts)
        check_whole(before, subscribed, counts)
        counts = data.draw(COUNTS)
        subscribed = {**subscribed, data.draw(st.sampled_from("abcdefgh")): data.draw(topics)}


@DETERMINISTIC
@given(COUNTS, st.lists(IDS, min_size=1, max_size=4))
def test_uniform_is_even_within_one_and_moves_no_more_than_it_must_unless_a_member_joins(
    counts: dict[uuid.UUID, int], crowds: list[set[str]]
) -> None:
    before: dict[str, Partitions] = {}
    for crowd in crowds:
        subscribed = dict.fromkeys(sorted(crowd), frozenset(counts))
        stayed = {name: each for name, each in before.items() if name in crowd}
        after = uniform(members(subscribed, stayed), counts)
        owners, owners_before = flat(after), flat(stayed)
        check_whole(after, subscribed, counts)
        loads = Counter(dict.fromkeys(crowd, 0))
        loads.update(owners.values())
        assert max(loads.values()) - min(loads.values()) <= 1
        # Only what exceeds a member's share has to move, and odd partitions stay where possible.
        share, odd = divmod(sum(counts.values()), len(crowd))
        over = 0
        for name in sorted(crowd):
            had = sum(1 for owner in owners_before.values() if owner == name)
            if had > share and odd:
                odd -= 1
                over += had - share - 1
            else:
                over += max(had - share, 0)
        moved = sum(1 for each, owner in owners_before.items() if owners[each] != owner)
        if all(stayed.get(name) for name in crowd) or not share:
            assert moved == over
        else:
            assert moved >= over
        assert uniform(members(subscribed, after), counts) == after, (
            "a balanced assignment does not change"
        )
        assert uniform(members(subscribed, stayed)[::-1], counts) == after, (
            "the order of members does not matter"
        )
        before = after


def readers_by_topic(assignment: dict[str, Partitions]) -> Counter[uuid.UUID]:
    """Number of members of each topic."""
    return Counter(topic_id for partitions in assignment.values() for topic_id in partitions)


@DETERMINISTIC
@given(COUNTS, st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_members_read_few_topics_each_however_they_came(
    counts: dict[uuid.UUID, int], arrivals: list[int]
) -> None:
    """A share that ends within a topic has at least one topic more. That cannot be avoided for every member and every
    topic, and it does not happen much more often."""
    subscribed: dict[str, frozenset[uuid.UUID]] = {}
    after: dict[str, Partitions] = {}
    for newcomers in arrivals:
        for _ in range(newcomers):
            subscribed[f"m{len(subscribed):02}"] = frozenset(counts)
        after = uniform(members(subscribed, after), counts)
        assert readers_by_topic(after).total() < len(subscribed) + 2 * len(counts)


@DETERMINISTIC
@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 5), st.booleans())
def test_topics_alike_get_equally_many_members_where_that_goes(
    topics: int, readers: int, each_reads: int, one_by_one: bool
) -> None:
    counts = {uuid.UUID(int=number): readers * each_reads for number in range(1, topics + 1)}
    names = [f"m{number:03}" for number in range(topics * readers)]
    after: dict[str, Partitions] = {}
    for end in range(1, len(names) + 1) if one_by_one else [len(names)]:
        subscribed = dict.fromkeys(names[:end], frozenset(counts))
        after = uniform(members(subscribed, after), counts)
    assert readers_by_topic(after) == dict.fromkeys(counts, readers)
    assert all(len(partitions) == 1 for partitions in after.values())


@DETERMINISTIC
@given(st.data())
def test_no_single_move_makes_uniform_more_even(data: st.DataObject) -> None:
    counts = data.draw(COUNTS)
    topics = st.frozensets(st.sampled_from(sorted(counts)), min_size=1)
    subscribed = data.draw(st.dictionaries(st.sampled_from("abcdefgh"), topics, min_size=1))
    after = uniform(members(subscribed, {}), counts)
    loads = {name: sum(map(len, partitions.values())) for name, partitions in after.items()}
    for (topic_id, _), owner in flat(after).items():
        for name, read in subscribed.items():
            if topic_id in read:
                assert loads[owner] - loads[name] <= 1
    assert uniform(members(subscribed, after), counts) == after, (
        "a balanced assignment does not change"
    )


@DETERMINISTIC
@given(COUNTS, IDS)
def test_range_gives_runs_and_cuts_equal_topics_at_the_same_places(
    counts: dict[uuid.UUID, int], crowd: set[str]
) -> None:
    subscribed = dict.fromkeys(sorted(crowd), frozenset(counts))
    after = range_(members(subscribed, {}), counts)
    check_whole(after, subscribed, counts)
    for partitions in after.values():
        for topic_id, indexes in partitions.items():
            run = sorted(indexes)
            assert run == list(range(run[0], run[0] + len(run)))
            for other, count in counts.items():
                if count == counts[topic_id]:
                    assert partitions.get(other) == indexes


def test_a_hundred_consumers_share_twenty_topics_evenly() -> None:
    counts = {uuid.UUID(int=number): 25 for number in range(1, 21)}
    subscribed = {f"m{number:03}": frozenset(counts) for number in range(100)}
    after = uniform(members(subscribed, {}), counts)
    assert {sum(map(len, each.values())) for each in after.values()} == {5}
    assert readers_by_topic(after) == dict.fromkeys(counts, 5)
    # One leaves: only its partitions move.
    gone = after.pop("m050")
    del subscribed["m050"]
    again = flat(uniform(members(subscribed, after), counts))
    assert sum(1 for each, owner in flat(after).items() if again[each] != owner) == 0
    assert {each for each in again if each not in flat(after)} == set(flat({"m050": gone}))
    # It returns: each topic has five consumers again.
    subscribed["m050"] = frozenset(counts)
    assert readers_by_topic(
        uniform(members(subscribed, uniform(members(subscribed, after), counts)), counts)
    ) == dict.fromkeys(counts, 5)
    by_topic = {
        number: frozenset({uuid.UUID(int=number)}) for number in range(1, 21)
    }  # five readers for each topic of five partitions
    fives = dict.fromkeys(counts, 5)
    only = {f"m{number:03}": by_topic[number % 20 + 1] for number in range(100)}
    loads = [sum(map(len, each.values())) for each in uniform(members(only, {}), fives).values()]
    assert loads == [1] * 100


def test_a_hundred_that_come_one_by_one_move_little_more_than_they_must() -> None:
    counts = {uuid.UUID(int=number): 25 for number in range(1, 21)}
    after: dict[str, Partitions] = {}
    moved = least = 0
    for size in range(1, 101):
        subscribed = {f"m{number:03}": frozenset(counts) for number in range(size)}
        before, after = after, uniform(members(subscribed, after), counts)
        owners = flat(after)
        moved += sum(1 for each, owner in flat(before).items() if owners[each] != owner)
        # Everything that a new member gets belonged to another member.
        least += sum(map(len, after[f"m{size - 1:03}"].values())) if before else 0
    assert readers_by_topic(after) == dict.fromkeys(counts, 5)
    assert moved < least * 1.5
