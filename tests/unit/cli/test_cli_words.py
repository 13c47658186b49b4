"""Parsing of options, positions and addresses."""

from datetime import UTC, datetime

import pytest

from zhumq.admin.offsets import Position
from zhumq.admin.reachability import addresses_of
from zhumq.cli.client import connect
from zhumq.cli.options import CommandFailed, parse_settings
from zhumq.cli.positions import parse_position


def test_settings_are_split_at_the_first_equals_sign() -> None:
    assert parse_settings(["a=b", " c = d=e ", "f="]) == {"a": "b", "c": "d=e", "f": ""}


@pytest.mark.parametrize("pair", ["a", "=b", " =b", ""])
def test_a_setting_without_a_name_or_a_value_is_refused(pair: str) -> None:
    with pytest.raises(CommandFailed, match="--set takes key=value"):
        parse_settings([pair])


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Position(edge="earliest")),
        ("latest", Position(edge="latest")),
        ("0", Position(offset=0)),
        ("42", Position(offset=42)),
        ("@1700000000000", Position(timestamp_ms=1_700_000_000_000)),
        ("2026-01-31T09:00:00Z", Position(timestamp_ms=1_769_850_000_000)),
        ("2026-01-31T10:00:00+01:00", Position(timestamp_ms=1_769_850_000_000)),
    ],
)
def test_a_place_is_an_edge_an_offset_or_a_time(text: str, position: Position) -> None:
    assert parse_position(text, option="--from") == position


def test_a_time_without_a_zone_is_local_time() -> None:
    local = datetime(2026, 1, 31, 9, tzinfo=UTC).astimezone()
    text = local.replace(tzinfo=None).isoformat()
    assert parse_position(text, option="--from") == Position(timestamp_ms=1_769_850_000_000)


@pytest.mark.parametrize("text", ["", "-1", "now", "@", "@x", "1.5", "2026-13-01", "٣"])
def test_any_other_place_is_refused_with_what_it_takes(text: str) -> None:
    with pytest.raises(CommandFailed, match="--from takes earliest, latest, an offset, a time"):
        parse_position(text, option="--from")


def test_a_bootstrap_list_is_split_into_addresses() -> None:
    found = [(each.host, each.port) for each in addresses_of("a:1, b:2,c,[::1]:9")]
    assert found == [("a", 1), ("b", 2), ("c", 9092), ("::1", 9)]


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:x", "a:0", "a:70000", "a:1,b:"])
def test_a_bad_address_is_refused(text: str) -> None:
    with pytest.raises(CommandFailed, match=r"--bootstrap .*(HOST:PORT|port 0)"):
        connect(text)
