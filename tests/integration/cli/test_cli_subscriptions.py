"""`zhumq consume --mode`, `zhumq session` and `zhumq dlq`: subscriptions from a shell."""

import json
import subprocess
import time

import pytest
from cli_support import Cli, begin

from zhumq import Consumer


def lines_of(values: list[str]) -> bytes:
    return "".join(f"{value}\n" for value in values).encode()


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


def test_psb_begins_where_it_is_told(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic, "--partitions", "2")
    cli.must(
        "produce", topic, "--json", lines=[f'{{"value":"{n}","partition":1}}' for n in range(5)]
    )
    options = ("--mode", "psb", "--push", "--partition", "1", "--from", "3", "--until-end")
    assert cli.must("consume", topic, *options).lines == ["3", "4"]


def test_wishes_that_cannot_be_met_are_one_clear_line(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic)
    assert "--group NAME" in cli.fails("consume", topic, "--mode", "ptp")
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
    assert "no session 'nobody/at-all'" in cli.fails("session", "resume", "nobody/at-all")
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


def test_dead_letters_are_listed_shown_and_replayed(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic)
    cli.must("produce", topic, lines=["good", "bad"])
    with Consumer(topic, group="g", mode="ptp", bootstrap=cli.bootstrap) as consumer:
        for message in consumer:
            if message.value == b"bad":
                message.reject("tastes bad")
                break
    listed = cli.must("dlq", "list", "--json").document
    assert {"topic": f"{topic}.dlq", "letters": 1} in listed
    assert cli.must("dlq", "list", topic, "--json").document == [
        {"group": "g", "reason": "tastes bad", "letters": 1}
    ]
    (letter,) = cli.must("dlq", "show", topic, "--json").document
    assert (letter["value"], letter["from"], letter["deliveries"]) == ("bad", f"{topic}-0@1", 1)
    assert "tastes bad" in cli.must("dlq", "show", topic).out.decode()
    assert cli.must("dlq", "replay", topic).lines == [f"replayed 1 messages of {topic}"]
    assert cli.must("dlq", "replay", topic, "--json").document["replayed"] == 0
    assert cli.must("dlq", "replay", topic, "--letter", "0@0", "--json").document["replayed"] == 1
    values = cli.must("consume", topic, "--until-end").lines
    assert values == ["good", "bad", "bad", "bad"]
    assert "PARTITION@OFFSET" in cli.fails("dlq", "replay", topic, "--letter", "zero")
