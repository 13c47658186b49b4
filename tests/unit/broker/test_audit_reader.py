"""Reading the audit log from its end: filters, pages, rotations, damaged lines, and a bound on what is looked at."""

import json
from pathlib import Path

import pytest

from zhumq.broker.audit_reader import CHUNK_BYTES, AuditReader, Place
from zhumq.host.rotated_file import RotatedFile
from zhumq.security.audit import AuditFilter

ALL = AuditFilter()


def line(number: int, **fields: object) -> bytes:
    event = {
        "time": f"2026-01-01T00:00:{number % 60:02}.000Z",
        "principal": "User:alice",
        "resource": f"topic:t{number}",
        "allowed": True,
        "count": number,
        **fields,
    }
    return json.dumps(event).encode() + b"\n"


def numbers(reader: AuditReader, limit: int = 100, selection: AuditFilter = ALL) -> list[int]:
    """The counts of all lines, read in pages."""
    found: list[int] = []
    place: Place | None = None
    while True:
        page = reader.read(place, limit, selection)
        assert len(page.lines) <= limit
        found += [each.event["count"] for each in page.lines]
        if page.next is None:
            return found
        assert page.next != place
        place = page.next


@pytest.mark.parametrize("limit", [1, 3, 1_000])
@pytest.mark.parametrize("padding", [0, 3_000, CHUNK_BYTES + 1])
def test_pages_have_every_line_once_newest_first(tmp_path: Path, limit: int, padding: int) -> None:
    file = RotatedFile(path=tmp_path / "audit.log", bytes_max=1 << 30, files=2)
    for number in range(20):
        file.append(line(number, host="x" * padding))
    assert numbers(AuditReader(file), limit) == list(range(20))[::-1]


def test_lines_of_rotated_files_follow_and_a_page_goes_on_after_a_rotation(tmp_path: Path) -> None:
    file = RotatedFile(path=tmp_path / "audit.log", bytes_max=400, files=20)
    for number in range(10):
        file.append(line(number))
    assert len(list(tmp_path.iterdir())) > 2
    reader = AuditReader(file)
    first = reader.read(None, 4, ALL)
    for number in range(10, 16):
        file.append(line(number))
    second = reader.read(first.next, 100, ALL)
    assert [each.event["count"] for each in (*first.lines, *second.lines)] == list(range(10))[::-1]
    assert numbers(reader) == list(range(16))[::-1]


def test_a_page_of_a_file_that_is_gone_is_the_last_one(tmp_path: Path) -> None:
    file = RotatedFile(path=tmp_path / "audit.log", bytes_max=400, files=2)
    assert AuditReader(file).read(None, 10, ALL).lines == ()
    file.append(line(1))
    page = AuditReader(file).read(Place(1, 100), 10, ALL)
    assert (page.lines, page.next) == ((), None)


def test_half_a_line_and_damaged_lines_are_left_out(tmp_path: Path) -> None:
    file = RotatedFile(path=tmp_path / "audit.log", bytes_max=1 << 20, files=2)
    for each in (line(1), b"\xff\xfe\n", b"[1]\n", b"\n", line(2), line(3)[:20]):
        file.append(each)
    assert numbers(AuditReader(file)) == [2, 1]


def test_filters_are_parts_of_names_in_any_case(tmp_path: Path) -> None:
    file = RotatedFile(path=tmp_path / "audit.log", bytes_max=1 << 20, files=2)
    file.append(line(1, principal="User:Bob") + line(2, allowed=False) + line(3))
    file.append(json.dumps({"time": "t", "dropped": 7, "count": 9}).encode() + b"\n")
    reader = AuditReader(file)
    assert numbers(reader, selection=AuditFilter(principal="bob")) == [1]
    assert numbers(reader, selection=AuditFilter(resource="TOPIC:T3")) == [3]
    assert numbers(reader, selection=AuditFilter(allowed=False)) == [2]
    assert numbers(reader, selection=AuditFilter(allowed=True)) == [3, 1]
    assert numbers(reader) == [9, 3, 2, 1]


def test_a_call_looks_at_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    file = RotatedFile(path=tmp_path / "audit.log", bytes_max=1 << 20, files=2)
    for number in range(100):
        file.append(line(number, principal="User:rare" if number == 0 else "User:alice"))
    reader = AuditReader(file, scanned_bytes_max=2_000)
    page = reader.read(None, 10, AuditFilter(principal="rare"))
    assert page.lines == ()
    assert page.next is not None
    assert page.oldest_time != ""
    assert numbers(reader, selection=AuditFilter(principal="rare")) == [0]
