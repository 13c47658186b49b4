"""`zhumq topic` against a running broker."""

import os
import subprocess

import pytest
from cli_support import Cli, command, environment

from zhumq.admin.connection import ClusterConnection
from zhumq.admin.retention import kept_for


def test_a_created_topic_is_listed_and_described(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic, "--partitions", "3", "--set", "retention.ms=60000")
    rows = cli.must("topic", "list", "--json").document
    assert {"topic": topic, "partitions": 3, "replicas": 1} in rows
    described = cli.must("topic", "describe", topic, "--json").document
    assert described["settings"] == {"retention.ms": "60000"}
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]
    assert all(row["in_sync"] == row["replicas"] for row in described["partitions"])


def test_tables_name_their_columns(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic, "--partitions", "2")
    listed = cli.must("topic", "list").lines
    assert listed[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS"]
    assert [topic, "2", "1"] in [line.split() for line in listed]
    described = cli.must("topic", "describe", topic).lines
    assert described[0].split() == ["topic", topic]
    assert described[-1].split()[0] == "1"


def test_creating_a_topic_twice_fails_without_if_not_exists(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic)
    assert "it exists already" in cli.fails("topic", "create", topic)
    cli.must("topic", "create", topic, "--if-not-exists")


def test_an_unknown_setting_is_refused(cli: Cli, topic: str) -> None:
    assert "no.such.setting" in cli.fails("topic", "create", topic, "--set", "no.such.setting=1")


def test_asking_for_an_unknown_topic_does_not_create_it(cli: Cli, topic: str) -> None:
    for arguments in (
        ("describe", topic),
        ("delete", topic),
        ("alter", topic, "--partitions", "2"),
    ):
        assert f"there is no topic '{topic}'" in cli.fails("topic", *arguments)
    assert f"there is no topic '{topic}'" in cli.fails("consume", topic)
    assert topic not in [row["topic"] for row in cli.must("topic", "list", "--json").document]


def test_altering_adds_partitions_and_changes_settings(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic, "--set", "retention.ms=1000")
    cli.must("topic", "alter", topic, "--partitions", "4", "--set", "segment.bytes=2000000")
    described = cli.must("topic", "describe", topic, "--json").document
    assert len(described["partitions"]) == 4
    assert described["settings"] == {"retention.ms": "1000", "segment.bytes": "2000000"}
    cli.must("topic", "alter", topic, "--unset", "retention.ms")
    described = cli.must("topic", "describe", topic, "--json").document
    assert described["settings"] == {"segment.bytes": "2000000"}
    assert "retention.mz" in cli.fails("topic", "alter", topic, "--unset", "retention.mz")


def test_partitions_cannot_become_fewer(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic, "--partitions", "3")
    assert "add partitions" in cli.fails("topic", "alter", topic, "--partitions", "2")


@pytest.mark.thorough
def test_the_oldest_messages_are_deleted(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic, "--partitions", "1")
    cli.must("produce", topic, lines=["a", "b", "c"])
    change = ("topic", "delete-records", topic, "--before")
    shown = cli.must(*change, "2", "--dry-run", "--json").document
    assert shown == [{"partition": 0, "from": 0, "to": 2, "messages": 2}]
    assert cli.must("consume", topic, "--until-end").out == b"a\nb\nc\n"
    assert cli.must(*change, "2", "--yes", "--json").document == shown
    assert cli.must("consume", topic, "--until-end").out == b"c\n"
    assert "cleanup.policy=compact" in cli.fails(
        "topic", "delete-records", "__consumer_offsets", "--before", "latest", "--yes"
    )
    assert "takes earliest, latest" in cli.fails(*change, "yesterday", "--yes")


def test_a_deleted_topic_is_gone(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic)
    cli.must("topic", "delete", topic)
    assert f"there is no topic '{topic}'" in cli.fails("topic", "describe", topic)


def test_the_topics_of_the_broker_are_shown_only_when_asked_for(cli: Cli, topic: str) -> None:
    cli.must("produce", topic, lines=["x"])
    cli.must("consume", topic, "--group", topic, "--until-end")
    hidden = cli.must("topic", "list").out
    assert b"__consumer_offsets" not in hidden
    assert b"__consumer_offsets" in cli.must("topic", "list", "--internal").out


def test_the_retention_of_a_topic_is_shown_and_explained(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic, "--set", "segment.bytes=1000")
    for _ in range(2):
        cli.must("produce", topic, lines=["x" * 600])
    shown = cli.must("topic", "retention", topic).lines
    facts = dict(line.split("  ", 1) for line in shown if line)
    assert facts["rule"].strip() == "it keeps messages for 72 h (retention.ms)"
    assert f"zhumq topic alter {topic} --set retention.ms=345600000" in facts["24 h more"]
    assert "no watermarks" in facts["disk of broker 0"]
    explained = cli.must("topic", "retention", topic, "--explain").lines
    assert explained[: len(shown)] == shown
    table = explained[len(shown) :]
    assert table[0].split() == [
        *("PARTITION", "OFFSETS", "BYTES", "NEWEST", "GOES", "WHY", "AT", "FULL", "DISK")
    ]
    assert "retention.ms" in table[1]
    assert table[1].endswith("goes")
    assert table[-1].endswith("stays: active segment")
    assert "there is no topic 'absent'" in cli.fails("topic", "retention", "absent")


def test_what_a_topic_keeps_is_in_words(cli: Cli, topic: str) -> None:
    for settings, words in (
        ("retention.ms=-1", "it keeps messages for ever (no limit is set)"),
        ("retention.ms=1500", "it keeps messages for 1.5 s (retention.ms)"),
        (
            "retention.bytes=7",
            "it keeps messages for 72 h (retention.ms) and up to 7 bytes of a partition (retention.bytes)",
        ),
        (
            "cleanup.policy=compact",
            "it keeps the last message of each key (cleanup.policy=compact)",
        ),
    ):
        name = f"{topic}-{len(words)}"
        cli.must("topic", "create", name, "--set", settings)
        with ClusterConnection(cli.bootstrap) as connection:
            assert kept_for(connection, name) == words


def test_at_a_terminal_a_new_topic_is_shown_with_what_it_keeps(cli: Cli, topic: str) -> None:
    terminal, other_end = os.openpty()
    done = subprocess.run(
        command("topic", "create", topic),
        stdin=other_end,
        stderr=other_end,
        env=environment(cli.bootstrap),
        timeout=60,
        check=False,
    )
    os.close(other_end)
    shown = os.read(terminal, 1000).decode()
    os.close(terminal)
    assert done.returncode == 0
    assert shown.strip() == f"created topic {topic}: it keeps messages for 72 h (retention.ms)"
