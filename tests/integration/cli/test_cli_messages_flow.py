"""`zhumq produce` and `zhumq consume` against a running broker."""

import json
import signal

import pytest
from cli_support import SECONDS_MAX, Cli, begin


def test_lines_go_in_and_come_out(cli: Cli, topic: str) -> None:
    lines = [f"line {number}" for number in range(2_000)]
    cli.must("produce", topic, lines=lines)
    assert cli.must("consume", topic, "--until-end").lines == lines


def test_any_bytes_but_a_line_end_survive(cli: Cli, topic: str) -> None:
    line = bytes(value for value in range(256) if value not in b"\r\n")
    cli.must("produce", topic, lines=[line, b""])
    assert cli.must("consume", topic, "--until-end").out == line + b"\n\n"


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_comes_back(cli: Cli, topic: str, compression: str) -> None:
    lines = ["same words again"] * 500
    cli.must("produce", topic, "--compression", compression, lines=lines)
    assert cli.must("consume", topic, "--until-end").lines == lines


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_every_kind_of_acknowledgement_works(cli: Cli, topic: str, acks: str) -> None:
    cli.must("produce", topic, "--acks", acks, lines=["a", "b"])
    assert cli.must("consume", topic, "--max", "2", "--timeout", "20").lines == ["a", "b"]


def test_keys_come_before_the_separator(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic, "--partitions", "4")
    lines = [f"key-{number % 7}=value-{number}" for number in range(200)]
    cli.must("produce", topic, "--key-separator", "=", lines=lines)
    rows = [json.loads(line) for line in cli.must("consume", topic, "--until-end", "--json").lines]
    assert sorted(f"{row['key']}={row['value']}" for row in rows) == sorted(lines)
    places = {(row["key"], row["partition"]) for row in rows}
    assert len(places) == 7, "one key, one partition"
    printed = cli.must("consume", topic, "--until-end", "--key-separator", "=").lines
    assert sorted(printed) == sorted(lines)


def test_json_lines_carry_everything(cli: Cli, topic: str) -> None:
    # The timestamp is years old: the default retention could delete the message at once.
    cli.must("topic", "create", topic, "--partitions", "2", "--set", "retention.ms=-1")
    message = {
        "key": "k",
        "value": {"base64": "/w=="},
        "headers": [["trace", "1"], ["trace", None]],
        "partition": 1,
        "timestamp": 1_700_000_000_000,
    }
    cli.must("produce", topic, "--json", lines=[json.dumps(message), '{"key":"t","value":null}'])
    printed = cli.must("consume", topic, "--until-end", "--json").lines
    first = next(row for row in map(json.loads, printed) if row["key"] == "k")
    assert first == {**message, "topic": topic, "offset": 0}


def test_a_bad_line_stops_the_command_and_what_came_before_is_sent(cli: Cli, topic: str) -> None:
    error = cli.fails("produce", topic, "--json", lines=['{"value":"good"}', "bad"])
    assert "line 2 is not JSON" in error
    assert cli.must("consume", topic, "--until-end").lines == ["good"]


def test_a_partition_that_is_not_there_is_refused(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic, "--partitions", "2")
    assert "no such partition" in cli.fails("produce", topic, "--partition", "5", lines=["x"])
    assert "has no partition 5" in cli.fails("consume", topic, "--partition", "5")


@pytest.mark.thorough
def test_the_topic_and_not_the_library_limits_the_size_of_a_line(cli: Cli, topic: str) -> None:
    line = "x" * 3_000_000
    assert "max.message.bytes" in cli.fails("produce", topic, lines=[line])
    cli.must("topic", "alter", topic, "--set", "max.message.bytes=4000000")
    cli.must("produce", topic, lines=[line])
    assert cli.must("consume", topic, "--until-end").lines == [line]


def test_a_message_that_is_too_large_is_refused(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic, "--set", "max.message.bytes=1000")
    assert "max.message.bytes" in cli.fails("produce", topic, lines=["x" * 5_000])


@pytest.mark.thorough
def test_reading_begins_at_the_given_position(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic, "--set", "retention.ms=-1")
    stamped = [
        json.dumps({"value": str(number), "timestamp": 1_700_000_000_000 + number * 1_000})
        for number in range(10)
    ]
    for line in stamped:  # one batch each, so that a time means exactly one message
        cli.must("produce", topic, "--json", lines=[line])

    def begins(place: str) -> list[str]:
        return cli.must("consume", topic, "--from", place, "--until-end").lines

    assert begins("earliest")[0] == "0"
    assert begins("7") == ["7", "8", "9"]
    assert begins("@1700000008000") == ["8", "9"]
    assert begins("2023-11-14T22:13:29Z") == ["9"]
    assert begins("latest") == []
    assert begins("@1900000000000") == []
    assert begins("1000000") == []


def test_one_partition_can_be_read_alone(cli: Cli, topic: str) -> None:
    cli.must("topic", "create", topic, "--partitions", "2")
    cli.must("produce", topic, "--partition", "0", lines=["zero"])
    cli.must("produce", topic, "--partition", "1", lines=["one"])
    assert cli.must("consume", topic, "--partition", "1", "--until-end").lines == ["one"]


def test_too_few_messages_in_time_is_a_failure(cli: Cli, topic: str) -> None:
    cli.must("produce", topic, lines=["a"])
    error = cli.fails("consume", topic, "--max", "3", "--idle-exit", "0.5")
    assert "only 1 of 3 messages arrived" in error
    assert cli.must("consume", topic, "--idle-exit", "0.5").lines == ["a"]


def test_a_group_continues_at_its_position(cli: Cli, topic: str) -> None:
    cli.must("produce", topic, lines=["a", "b", "c"])
    assert cli.must("consume", topic, "--group", topic, "--max", "2").lines == ["a", "b"]
    assert cli.must("consume", topic, "--group", topic, "--until-end").lines == ["c"]


def test_ctrl_c_is_quiet(cli: Cli, topic: str) -> None:
    cli.must("produce", topic, lines=["a"])
    with begin(cli.bootstrap, "consume", topic) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"a\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_a_closed_pipe_is_quiet(cli: Cli, topic: str) -> None:
    cli.must("produce", topic, lines=["words " * 100] * 5_000)
    with begin(cli.bootstrap, "consume", topic) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(SECONDS_MAX) != 0
        assert process.stderr.read() == b""
