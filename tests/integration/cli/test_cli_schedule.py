"""`zhumq schedule`: lists and cancels delayed messages, and what it refuses."""

import pytest
from cli_support import Cli

SETTING = ("--set", "delay.enable=true")


def fill(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic, "--partitions", "1", *SETTING)
    cli.must(
        "produce",
        topic,
        "--json",
        lines=[
            f'{{"value": "{delay}", "headers": {{"zhumq-delay-level": "{delay}"}}}}'
            for delay in ("1h", "2h", "30m")
        ],
    )
    while len(cli.must("schedule", "list", topic, "--json").document) < 3:
        pass  # They are acknowledged before they are staged.


@pytest.mark.thorough
def test_delayed_messages_are_listed_and_cancelled(cli: Cli, topic: str) -> None:
    fill(cli, topic)
    rows = cli.must("schedule", "list", topic, "--json").document
    assert [row["offset"] for row in rows] == [2, 0, 1]
    table = cli.must("schedule", "list", topic).lines
    assert table[0].split() == ["ID", "DUE", "SCHEDULED", "SIZE", "BYTES"]
    assert [line.split()[0] for line in table[1:]] == [row["id"] for row in rows]
    cli.must("schedule", "cancel", topic, "--id", rows[0]["id"])
    assert cli.must("schedule", "list", topic, "--json").document == rows[1:]
    cli.must("schedule", "cancel", topic, "--to", f"@{rows[1]['due_ms'] + 1}")
    assert cli.must("schedule", "list", topic, "--json").document == rows[2:]
    cli.must("schedule", "cancel", topic, "--all")
    assert cli.must("schedule", "list", topic, "--json").document == []


def test_what_is_refused_is_one_line(cli: Cli, topic: str) -> None:
    fill(cli, topic)
    for words, text in (
        (("cancel", topic), "say what to cancel"),
        (("cancel", topic, "--id", "0:77"), "has no delayed message 0:77"),
        (("cancel", topic, "--id", "first"), "it is PARTITION:OFFSET"),
        (("list", topic, "--from", "latest"), "--from takes a time"),
        (("list", topic, "--partition", "7"), "has no partition 7"),
        (("list", "unknown-topic"), "there is no topic"),
    ):
        done = cli.run("schedule", *words)
        assert done.code != 0
        assert text in done.err
        assert done.err.count("\n") == 1
