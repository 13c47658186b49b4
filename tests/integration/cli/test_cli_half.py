"""`zhumq half` as an operator runs it: pending, failed and given-up half messages."""

from collections.abc import Iterator

import pytest
from cli_support import Cli

import zhumq
from zhumq.testing.broker import broker


@pytest.fixture(scope="module")
def operator() -> Iterator[Cli]:
    with broker() as running, zhumq.Admin(running.bootstrap) as admin:
        admin.create_topic("orders", partitions=1)
        yield Cli(running.bootstrap)


@pytest.fixture
def halves(operator: Cli) -> Iterator[list[zhumq.HalfMessage]]:
    with zhumq.HalfMessageProducer(operator.bootstrap, group="shop", check=None) as producer:
        prepared = [
            producer.prepare("orders", f"order {number}", key="k", headers={"h": b"\xff"})
            for number in range(2)
        ]
        yield prepared


@pytest.mark.thorough
def test_an_operator_looks_at_half_messages_and_decides(
    operator: Cli, halves: list[zhumq.HalfMessage]
) -> None:
    first, second = halves
    rows = operator.must("half", "list", "--json").document
    assert {row["id"] for row in rows} == {first.id, second.id}
    assert {(row["group"], row["topic"], row["state"]) for row in rows} == {
        ("shop", "orders", "pending")
    }
    table = operator.must("half", "list", "--group", "shop", "--state", "pending").lines
    assert table[0].split() == ["ID", "GROUP", "TOPIC", "STATE", "AGE", "CHECKS", "REASON"]
    assert operator.must("half", "list", "--group", "other", "--json").document == []
    assert operator.must("half", "list", "--state", "failed", "--json").document == []
    assert len(operator.must("half", "list", "--limit", "1", "--json").document) == 1

    shown = operator.must("half", "show", first.id).out.decode()
    assert "order 0" in shown
    document = operator.must("half", "show", first.id, "--json").document
    assert (document["key"], document["value"]) == ("k", "order 0")
    assert document["headers"] == {"h": "\\xff"}

    operator.run("half", "commit", first.id)
    operator.run("half", "rollback", second.id)
    seen = operator.must("consume", "orders", "--from", "earliest", "--max", "1").lines
    assert seen == ["order 0"]
    assert operator.must("half", "show", second.id, "--json").document["state"] == "rolled-back"
    assert operator.must("half", "list", "--json").document == []
    assert "was rolled back" in operator.fails("half", "commit", second.id)
    assert "was committed" in operator.fails("half", "rollback", first.id)


def test_errors_say_what_to_do(operator: Cli) -> None:
    assert "there is no half message 'nothing'" in operator.fails("half", "show", "nothing")
    assert "there is no half message 'nothing'" in operator.fails("half", "commit", "nothing")
    assert "one of pending" in operator.fails("half", "list", "--state", "lost")
