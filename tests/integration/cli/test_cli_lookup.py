"""`zhumq lookup`: by key and by tag, the newest, a range of time, JSON, and what it refuses."""

import pytest
from cli_support import Cli


def fill(cli: Cli, topic: str) -> None:
    # The messages are of 1970: retention would delete them.
    settings = ("--set", "index.keys=true", "--set", "retention.ms=-1")
    made = cli.run("topic", "create", topic, "--partitions", "2", *settings)
    assert made.code == 0, made.err
    lines = [
        '{"key": "a", "value": "one", "timestamp": 1000, "headers": {"zhumq-tags": "red,blue"}}',
        '{"key": "b", "value": "two", "timestamp": 2000, "headers": {"zhumq-tags": "red"}}',
        '{"key": "a", "value": "three", "timestamp": 3000}',
        '{"key": "", "value": {"base64": "/w=="}, "timestamp": 4000}',
    ]
    sent = cli.run("produce", topic, "--json", lines=lines)
    assert sent.code == 0, sent.err


@pytest.mark.thorough
def test_messages_are_found_newest_first(cli: Cli, topic: str) -> None:
    fill(cli, topic)
    found = cli.run("lookup", topic, "--key", "a")
    assert found.code == 0, found.err
    assert [line.split()[-1] for line in found.lines] == ["VALUE", "three", "one"]
    document = cli.run("lookup", topic, "--tag", "red", "--json").document
    assert [each["value"] for each in document["messages"]] == ["two", "one"]
    assert document["complete"] is True
    last = cli.run("lookup", topic, "--key", "a", "--last", "--json").document
    assert [each["value"] for each in last["messages"]] == ["three"]
    empty = cli.run("lookup", topic, "--key", "", "--json").document
    assert [each["value"] for each in empty["messages"]] == [{"base64": "/w=="}]
    some = cli.run("lookup", topic, "--key", "a", "--from", "@1000", "--to", "@3000", "--json")
    assert [each["value"] for each in some.document["messages"]] == ["one"]


@pytest.mark.thorough
def test_what_is_refused_is_one_line(cli: Cli, topic: str) -> None:
    fill(cli, topic)
    plain = f"{topic}-plain"
    assert cli.run("topic", "create", plain).code == 0
    for words, text in (
        ((topic, "--key", "unknown"), "has no message with key 'unknown'"),
        ((topic, "--tag", "a"), "has no message with tag 'a'"),
        ((topic,), "give one of --key and --tag"),
        ((topic, "--key", "a", "--tag", "red"), "give one of --key and --tag"),
        ((topic, "--key", "a", "--from", "yesterday"), "--from takes"),
        ((topic, "--key", "a", "--to", "latest"), "--to takes a time"),
        ((topic, "--key", "a", "--partition", "7"), "has no partition 7"),
        (("unknown-topic", "--key", "a"), "there is no topic"),
        ((plain, "--key", "a"), f"`zhumq topic alter {plain} --set index.keys=true` builds one"),
    ):
        done = cli.run("lookup", *words)
        assert done.code != 0
        assert text in done.err
        assert done.err.count("\n") == 1
