"""Push addresses of a connection: a program that asks often is given those that were found a moment ago."""

from collections.abc import Iterator

import pytest

from zhumq.admin.connection import ClusterConnection
from zhumq.client.errors import PushUnavailable


@pytest.fixture(params=[True, False])
def connection(request: pytest.FixtureRequest) -> Iterator[ClusterConnection]:
    # Nothing is asked of the brokers here.
    with ClusterConnection("127.0.0.1:1", asks_often=request.param) as made:
        yield made


def test_they_are_asked_for_again_unless_they_were_just_found(
    connection: ClusterConnection, request: pytest.FixtureRequest
) -> None:
    is_often = request.node.callspec.params["connection"]
    asked: list[int] = []

    def ask() -> list[str]:
        asked.append(1)
        return ["127.0.0.1:2"]

    for _ in range(3):
        assert connection.push_addresses(ask) == ["127.0.0.1:2"]
    assert len(asked) == (1 if is_often else 3)
    connection.forget_push_addresses()
    connection.push_addresses(ask)
    assert len(asked) == (2 if is_often else 4)


def test_that_there_are_none_is_known_for_a_moment_as_well(
    connection: ClusterConnection, request: pytest.FixtureRequest
) -> None:
    is_often = request.node.callspec.params["connection"]
    asked: list[int] = []

    def ask() -> list[str]:
        asked.append(1)
        raise PushUnavailable("the brokers do not push")

    for _ in range(3):
        with pytest.raises(PushUnavailable, match="do not push"):
            connection.push_addresses(ask)
    assert len(asked) == (1 if is_often else 3)
