"""Every API with no rights, with all but one of the rights that it needs, and with exactly these."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.access_check import World, check_row
from tests.access_matrix import ROWS, Row

from zhumq.protocol.api import ApiKey
from zhumq.protocol.messages.metadata import ApiVersionsRequest
from zhumq.testing.broker import broker

SETTINGS = {
    "authorizer.class.name": "zhumq",
    "allow.everyone.if.no.acl.found": "true",
    "transaction.two.phase.commit.enable": "true",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("access")
    with broker(data_dir=folder, settings=SETTINGS) as running:
        made = World.by_address(running.bootstrap)
        yield made
        made.close()


def test_the_matrix_has_every_api_that_is_served(world: World) -> None:
    served = world.admin.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(), 0).api_keys
    missing = {ApiKey(each.api_key) for each in served} - {row.key for row in ROWS}
    assert not missing, "write rows for it in tests/access_matrix.py"


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_request_needs_exactly_these_rights(world: World, row: Row) -> None:
    assert list(check_row(world, row)) == []
