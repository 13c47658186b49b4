"""`zhumq group` against a running broker."""

import pytest
from cli_support import SECONDS_MAX, Cli, begin


@pytest.fixture
def group(cli: Cli, topic: str) -> str:
    """A group that has read two of four messages, named like its topic."""
    cli.must("produce", topic, lines=["a", "b", "c", "d"])
    cli.must("consume", topic, "--group", topic, "--max", "2")
    return topic


def _committed(cli: Cli, group: str) -> int:
    rows = cli.must("group", "describe", group, "--json").document["offsets"]
    return int(rows[0]["committed"])


def test_a_group_is_listed_with_its_state(cli: Cli, group: str) -> None:
    rows = cli.must("group", "list", "--json").document
    facts = {"group": group, "state": "Empty", "type": "Classic", "mode": None, "claims": []}
    assert facts in rows
    assert cli.must("group", "list").lines[0].split() == [
        "GROUP",
        "STATE",
        "TYPE",
        "MODE",
        "POINT-TO-POINT",
    ]


def test_a_group_is_described_with_its_lag(cli: Cli, topic: str, group: str) -> None:
    described = cli.must("group", "describe", group, "--json").document
    assert described["offsets"] == [
        {
            "topic": topic,
            "partition": 0,
            "committed": 2,
            "latest": 4,
            "lag": 2,
            "member": None,
        }
    ]
    assert described["members"] == []
    assert cli.must("group", "describe", group).lines[-1].split() == [
        topic,
        "0",
        "2",
        "4",
        "2",
        "-",
    ]


def test_members_are_shown_with_what_they_hold(cli: Cli, topic: str, group: str) -> None:
    with begin(cli.bootstrap, "consume", topic, "--group", group) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has joined, and holds the partition
        described = cli.must("group", "describe", group, "--json").document
        refused = [
            cli.fails("group", "reset", group, "--topic", topic, "--to", "earliest"),
            cli.fails("group", "delete", group),
        ]
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)
    assert described["state"] == "Stable"
    assert [member["partitions"] for member in described["members"]] == [1]
    assert described["offsets"][0]["member"] == described["members"][0]["member"]
    assert all("has members" in error for error in refused)


@pytest.mark.parametrize(("place", "offset"), [("earliest", 0), ("latest", 4), ("3", 3), ("99", 4)])
def test_a_reset_moves_the_group(cli: Cli, topic: str, group: str, place: str, offset: int) -> None:
    rows = cli.must("group", "reset", group, "--topic", topic, "--to", place, "--json").document
    assert rows == [{"topic": topic, "partition": 0, "from": 2, "to": offset}]
    assert _committed(cli, group) == offset


def test_a_dry_run_moves_nothing(cli: Cli, topic: str, group: str) -> None:
    cli.must("group", "reset", group, "--topic", topic, "--to", "earliest", "--dry-run")
    assert _committed(cli, group) == 2


def test_a_group_forgets_one_topic(cli: Cli, topic: str, group: str) -> None:
    cli.must("group", "delete", group, "--topic", topic)
    refused = cli.fails("group", "delete", group, "--topic", topic)
    assert "there is no group" in refused or "has no offsets in" in refused


def test_a_deleted_group_is_gone(cli: Cli, group: str) -> None:
    cli.must("group", "delete", group)
    assert f"there is no group '{group}'" in cli.fails("group", "describe", group)
    assert "there is no such group" in cli.fails("group", "delete", group)
