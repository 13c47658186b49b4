"""`zhumq consume --mode`, `zhumq session` and `zhumq dlq`: subscriptions from a shell."""

import json
import subprocess
import time
from typing import Any

import pytest
from cli_support import Cli, begin
from confluent_kafka import ShareConsumer

from zhumq import Admin, Consumer
from zhumq.admin.settings import Origin, Setting, group_settings


@pytest.mark.thorough
@pytest.mark.parametrize("push", [(), ("--push",)], ids=["pull", "push"])
@pytest.mark.parametrize("mode", ["psb", "ptp", "ptp-shared"])
def test_a_topic_is_read_in_every_mode(
    cli: Cli, topic: str, mode: str, push: tuple[str, ...]
) -> None:
    cli.must("topic", "create", topic, "--set", "retention.ms=-1")
    cli.must("produce", topic, lines=["a", "b", "c"])
    done = cli.must("consume", topic, "--mode", mode, "--group", f"of-{topic}", *push, "--max", "3")
    assert sorted(done.lines) == ["a", "b", "c"]
    cli.must("produce", topic, lines=["d"])
    again = cli.must(
        "consume", topic, "--mode", mode, "--group", f"of-{topic}", *push, "--max", "1", "--json"
    )
    document = json.loads(again.out)
    assert (document["value"], document["offset"], document["topic"]) == ("d", 3, topic)


def test_psb_begins_at_the_given_offset(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic, "--partitions", "2")
    cli.must(
        "produce", topic, "--json", lines=[f'{{"value":"{n}","partition":1}}' for n in range(5)]
    )
    options = ("--mode", "psb", "--push", "--partition", "1", "--from", "3", "--until-end")
    assert cli.must("consume", topic, *options).lines == ["3", "4"]


@pytest.mark.thorough
def test_requests_that_cannot_be_served_fail_with_one_clear_line(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic)
    cli.must("consume", topic, "--mode", "ptp", "--group", "first", "--push", "--timeout", "0.2")
    for more in ((), ("--push",)):
        wrong = cli.fails(
            "consume", topic, "--mode", "ptp", "--group", "second", "--timeout", "5", *more
        )
        assert "'first'" in wrong
    assert "credit 0" in cli.fails(
        "consume", topic, "--mode", "psb", "--push", "--credits", "0", "--timeout", "5"
    )
    assert "--idle-exit" in cli.fails(
        "consume", topic, "--mode", "ptp", "--group", "first", "--push", "--until-end"
    )
    assert "no session 'absent/absent'" in cli.fails("session", "resume", "absent/absent")
    assert "dead-letter topic" in cli.fails("dlq", "show", topic)


def test_sessions_are_listed(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic)
    process = begin(cli.bootstrap, "consume", topic, "--mode", "psb", "--group", "listed", "--push")
    try:
        deadline = time.monotonic() + 30
        while not (found := cli.must("session", "list", "--group", "listed", "--json").document):
            assert time.monotonic() < deadline
        assert found[0]["name"] == "listed/listed"
        assert (found[0]["state"], found[0]["topics"]) == ("active", [topic])
        table = cli.must("session", "list").lines
        assert table[0].split()[:3] == ["SESSION", "MODE", "TOPICS"]
        assert any(line.startswith("listed/listed") for line in table)
    finally:
        process.send_signal(subprocess.signal.SIGINT)  # type: ignore[attr-defined]
        process.communicate(timeout=30)


@pytest.mark.thorough
def test_dead_letters_are_listed_shown_and_replayed(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic)
    cli.must("produce", topic, lines=["good", "bad"])
    with Consumer(topic, group="g", mode="ptp", bootstrap=cli.bootstrap) as consumer:
        for message in consumer:
            if message.value == b"bad":
                message.reject("tastes bad")
                break
    listed = cli.must("dlq", "list", "--json").document
    assert {"topic": f"{topic}.dlq", "letters": 1, "replayed": 0} in listed
    assert cli.must("dlq", "list", topic, "--json").document == [
        {"group": "g", "reason": "tastes bad", "letters": 1, "replayed": 0}
    ]
    (dead_letter,) = cli.must("dlq", "show", topic, "--json").document
    assert (dead_letter["value"], dead_letter["from"], dead_letter["deliveries"]) == (
        "bad",
        f"{topic}-0@1",
        1,
    )
    assert "tastes bad" in cli.must("dlq", "show", topic).out.decode()
    assert cli.must("dlq", "replay", topic).lines == [f"replayed 1 messages of {topic}"]
    assert cli.must("dlq", "replay", topic, "--json").document["replayed"] == 0
    listed = cli.must("dlq", "list", "--json").document
    assert {"topic": f"{topic}.dlq", "letters": 0, "replayed": 1} in listed
    assert cli.must("dlq", "list", topic, "--json").document == [
        {"group": "g", "reason": "tastes bad", "letters": 0, "replayed": 1}
    ]
    assert cli.must("dlq", "show", topic, "--json").document[0]["replayed"] is True
    assert cli.must("dlq", "replay", topic, "--letter", "0@0", "--json").document["replayed"] == 1
    values = cli.must("consume", topic, "--until-end").lines
    assert values == ["good", "bad", "bad", "bad"]
    assert "PARTITION@OFFSET" in cli.fails("dlq", "replay", topic, "--letter", "zero")


@pytest.mark.parametrize("push", [(), ("--push",)], ids=["pull", "push"])
def test_ptp_reads_one_partition_from_an_offset_without_naming_a_group(
    cli: Cli, topic: str, push: tuple[str, ...]
) -> None:
    cli.must("topic", "create", topic, "--partitions", "3")
    messages = [f'{{"value":"{n}","partition":2}}' for n in range(1030)]
    cli.must("produce", topic, "--json", lines=messages)
    options = ("--mode", "ptp", "--partition", "2", "--from", "1024", *push)
    assert cli.must("consume", topic, *options, "--max", "4").lines == [
        "1024",
        "1025",
        "1026",
        "1027",
    ]
    # The same command again continues at the group's position.
    assert cli.must("consume", topic, *options, "--max", "2").lines == ["1028", "1029"]
    assert "no partition 7" in cli.fails("consume", topic, "--mode", "ptp", "--partition", "7")


@pytest.mark.thorough
def test_a_claim_is_shown_and_can_be_released(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic)
    cli.must("produce", topic, lines=["a", "b"])
    group = f"first-{topic}"
    cli.must("consume", topic, "--mode", "ptp", "--group", group, "--max", "1")
    claim = {"group": group, "mode": "ptp"}
    assert cli.must("topic", "describe", topic, "--json").document["point_to_point"] == claim
    assert f"group {group} (ptp)" in cli.must("topic", "describe", topic).out.decode()
    listed = {each["group"]: each for each in cli.must("group", "list", "--json").document}
    assert (listed[group]["mode"], listed[group]["claims"]) == ("ptp", [topic])
    assert group in cli.fails("consume", topic, "--mode", "ptp", "--group", "second", "--max", "1")
    cli.must("topic", "release", topic)
    assert cli.must("topic", "describe", topic, "--json").document["point_to_point"] is None
    assert "by no group" in cli.fails("topic", "release", topic)
    second = ("consume", topic, "--mode", "ptp", "--group", f"second-{topic}", "--max", "2")
    assert cli.must(*second).lines == ["a", "b"]
    cli.must("group", "delete", f"second-{topic}")
    assert cli.must("topic", "describe", topic, "--json").document["point_to_point"] is None


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["ptp", "ptp-shared", "psb"])
def test_groups_of_subscriptions_are_listed_and_described(cli: Cli, topic: str, mode: str) -> None:
    cli.must("topic", "create", topic)
    cli.must("produce", topic, lines=["a", "b", "c", "d", "e"])
    group = f"{mode}-{topic}"
    with Consumer(
        topic, group=group, mode=mode, bootstrap=cli.bootstrap, auto_ack=False, credits=4
    ) as consumer:
        held = []
        while len(held) < 4:
            held += consumer.poll(1.0)
        held[0].ack()
        held[1].ack()

        def described() -> dict[str, Any]:
            return cli.must("group", "describe", group, "--json").document  # type: ignore[no-any-return]

        deadline = time.monotonic() + 30
        while (
            described()["offsets"][0]["in_flight"] != 3
        ):  # one more was delivered after the two acks
            assert time.monotonic() < deadline
        found = described()
        assert (found["group"], found["mode"], found["state"]) == (group, mode, "Stable")
        assert found["claims"] == ([] if mode == "psb" else [topic])
        (row,) = found["offsets"]
        assert (row["committed"], row["latest"], row["lag"]) == (2, 5, 3)
        assert len(row["consumers"]) == 1
        assert len(found["members"]) == 1
        assert "IN FLIGHT" in cli.must("group", "describe", group).out.decode()
    listed = {each["group"]: each for each in cli.must("group", "list", "--json").document}
    assert listed[group]["mode"] == mode
    assert (described()["state"], described()["offsets"][0]["lag"]) == ("Empty", 3)


def test_a_share_group_of_kafka_clients_is_listed_and_described(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic)
    group = f"share-{topic}"
    consumer = ShareConsumer({"bootstrap.servers": cli.bootstrap, "group.id": group})
    consumer.subscribe([topic])
    try:
        deadline = time.monotonic() + 30
        listed: dict[str, Any] = {}
        while group not in listed:
            assert time.monotonic() < deadline
            consumer.poll(0.2)
            listed = {each["group"]: each for each in cli.must("group", "list", "--json").document}
        assert (listed[group]["type"], listed[group]["mode"]) == ("Share", "share")
        found = cli.must("group", "describe", group, "--json").document
        assert (found["state"], found["offsets"][0]["lag"]) == ("Stable", 0)
    finally:
        consumer.close()


@pytest.mark.thorough
@pytest.mark.parametrize("more", [(), ("--mode", "psb"), ("--mode", "psb", "--push")])
def test_a_filter_leaves_messages_out(cli: Cli, topic: str, more: tuple[str, ...]) -> None:
    cli.must("topic", "create", topic)
    lines = [
        json.dumps({"value": json.dumps({"n": n}), "key": f"k-{n}", "headers": {"zhumq-tags": tag}})
        for n, tag in enumerate(["new", "old", "new,big", "old"])
    ]
    cli.must("produce", topic, "--json", lines=lines)
    for text, expected in (
        ("new", [0, 2]),
        ("big || old", [1, 2, 3]),
        ("value.n >= 1 AND key < 'k-3'", [1, 2]),
        ("none", []),
    ):
        done = cli.must("consume", topic, *more, "--filter", text, "--until-end")
        assert [json.loads(line)["n"] for line in done.lines] == expected, text
    wrong = cli.fails("consume", topic, *more, "--filter", "value.n > > 1")
    assert "the filter is invalid at character 11: " in wrong


def test_the_filter_of_a_share_group_is_set_and_unset(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic)
    group = f"of-{topic}"
    cli.must("group", "alter", group, "--set", "zhumq.filter=key = 'k-1'")
    wrong = cli.fails("group", "alter", group, "--set", "zhumq.filter=key == 'k-1'")
    assert "the filter is invalid at character 5: " in wrong
    assert "nothing to alter" in cli.fails("group", "alter", group)
    assert "no such setting" in cli.fails("group", "alter", group, "--unset", "zhumq.filters")
    with Admin(cli.bootstrap) as admin:
        assert group_settings(admin, group)["zhumq.filter"] == Setting(
            value="key = 'k-1'", default="", origin=Origin.OWN
        )
        cli.must("group", "alter", group, "--unset", "zhumq.filter")
        assert group_settings(admin, group)["zhumq.filter"] == Setting(
            value="", default="", origin=Origin.DEFAULT
        )
