"""`zhumq acl` as a user runs it, against a broker with an authorizer and one without."""

from collections.abc import Iterator

import pytest
from cli_support import Cli

from zhumq.testing.broker import broker


@pytest.fixture(scope="module")
def secured() -> Iterator[Cli]:
    settings = {"authorizer.class.name": "zhumq", "super.users": "User:ANONYMOUS"}
    with broker(settings=settings) as running:
        yield Cli(running.bootstrap)


def listed(cli: Cli, *options: str) -> list[tuple[str, ...]]:
    return [
        (each["principal"], each["operation"], each["resource"], each["name"], each["pattern"])
        for each in cli.must("acl", "list", "--json", *options).document
    ]


@pytest.mark.thorough
def test_rights_are_added_listed_and_removed(secured: Cli) -> None:
    for arguments in (
        ("--principal", "User:alice", "--producer", "--topic", "orders"),
        ("--principal", "User:bob", "--consumer", "--topic", "orders", "--group", "billing"),
        ("--principal", "User:carol", "--operation", "read", "--topic", "ord", "--prefixed"),
        ("--principal", "User:dora", "--deny", "--operation", "ALL", "--cluster"),
    ):
        secured.must("acl", "add", *arguments)
    orders = ("TOPIC", "orders", "LITERAL")
    assert listed(secured, "--topic", "orders") == [
        ("User:carol", "READ", "TOPIC", "ord", "PREFIXED"),
        ("User:alice", "WRITE", *orders),
        ("User:alice", "CREATE", *orders),
        ("User:alice", "DESCRIBE", *orders),
        ("User:bob", "READ", *orders),
        ("User:bob", "DESCRIBE", *orders),
    ]
    assert listed(secured, "--principal", "User:dora") == [
        ("User:dora", "ALL", "CLUSTER", "kafka-cluster", "LITERAL")
    ]
    table = secured.must("acl", "list", "--group", "billing").lines
    assert table[0].split() == [
        "RESOURCE",
        "NAME",
        "PATTERN",
        "PERMISSION",
        "PRINCIPAL",
        "HOST",
        "OPERATION",
    ]
    assert table[1].split() == ["GROUP", "billing", "LITERAL", "ALLOW", "User:bob", "*", "READ"]
    removed = secured.must("acl", "remove", "--principal", "User:bob", "--json")
    assert len(removed.document) == 3
    some = ("--topic", "orders", "--operation", "WRITE", "--operation", "CREATE")
    removed = secured.must("acl", "remove", *some, "--json")
    assert [each["operation"] for each in removed.document] == ["WRITE", "CREATE"]
    assert listed(secured, "--principal", "User:alice") == [("User:alice", "DESCRIBE", *orders)]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("add", "--principal", "User:a", "--topic", "t"), "say what is allowed"),
        (("add", "--principal", "User:a", "--consumer", "--topic", "t"), "--topic and --group"),
        (("add", "--principal", "User:a", "--producer", "--deny", "--topic", "t"), "--deny"),
        (("add", "--principal", "User:a", "--topic", "t", "--operation", "fly"), "no operation"),
        (("add", "--principal", "a", "--topic", "t", "--operation", "READ"), "User:alice"),
        (("remove",), "say which ACLs"),
    ],
)
def test_a_wrong_command_says_what_to_do(
    secured: Cli, arguments: tuple[str, ...], reason: str
) -> None:
    assert reason in secured.fails("acl", *arguments)


def test_a_broker_without_an_authorizer_says_how_to_get_one() -> None:
    with broker() as running:
        assert "authorizer.class.name" in Cli(running.bootstrap).fails("acl", "list")
