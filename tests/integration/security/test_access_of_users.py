"""The matrix of rights for users who authenticate with SCRAM, where nothing is permitted without an ACL."""

from collections.abc import Iterator

import pytest
from sasl_support import sasl_broker
from tests.access_check import Client, World, check_row
from tests.access_matrix import ROWS, Row
from tests.sasl_client import USER, SaslClient

from zhumq.protocol.api import ApiKey

TESTED, PASSWORD = "tested", "the password of tested"
# They are for clients that have yet to authenticate.
BEFORE = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    settings = {"transaction__two__phase__commit__enable": "true"}
    with sasl_broker(
        authorizer__class__name="zhumq", super__users=f"User:{USER}", **settings
    ) as running:

        def connect(*login: str) -> SaslClient:
            client = SaslClient(running.bootstrap)
            assert not client.log_in("SCRAM-SHA-256", *login).error_code
            return client

        admin = Client(connect=connect, principal=f"User:{USER}")
        with connect() as client:
            client.create_user(TESTED, PASSWORD)
        tested = Client(connect=lambda: connect(TESTED, PASSWORD), principal=f"User:{TESTED}")
        made = World(admin, tested)
        yield made
        made.close()


@pytest.mark.parametrize("row", [row for row in ROWS if row.key not in BEFORE], ids=str)
def test_a_user_needs_exactly_these_rights(world: World, row: Row) -> None:
    assert list(check_row(world, row)) == []
