"""Replicas on disk are compared byte for byte, across segments."""

import struct
from pathlib import Path

import pytest
from chaos.findings import Findings, Kind
from chaos.replicas import NotBatches, compare_replicas, stored_batches


def batch(offset: int, count: int = 1, *, epoch: int = 0, content: bytes = b"content") -> bytes:
    """A batch with the fields that the comparison reads."""
    rest = struct.pack(">ibIhi", epoch, 2, 0, 0, count - 1) + content
    return struct.pack(">qi", offset, len(rest)) + rest


def folder(place: Path, *segments: tuple[int, bytes]) -> Path:
    place.mkdir()
    for offset, data in segments:
        (place / f"{offset:020d}.log").write_bytes(data)
    (place / "quorum-state").write_bytes(b"something else")
    return place


def compare(high_watermark: int, **folders: Path) -> tuple[int, list[Kind]]:
    findings = Findings()
    compared = compare_replicas("t-0", folders, high_watermark, findings)
    return compared, [finding.kind for finding in findings]


def test_equal_replicas_may_have_other_segments(tmp_path: Path) -> None:
    one, two, three = batch(0), batch(1, 5), batch(6)
    a = folder(tmp_path / "a", (0, one + two + three))
    b = folder(tmp_path / "b", (0, one), (1, two + three))
    compared, kinds = compare(7, a=a, b=b)
    assert kinds == []
    assert compared == 2 * len(one + two + three)


def test_what_is_above_the_high_watermark_may_differ(tmp_path: Path) -> None:
    a = folder(tmp_path / "a", (0, batch(0) + batch(1, content=b"never acknowledged")))
    b = folder(tmp_path / "b", (0, batch(0)))
    assert compare(1, a=a, b=b)[1] == []
    assert compare(2, a=a, b=b)[1] == [Kind.REPLICA_SHORT]


def test_one_other_byte_is_found(tmp_path: Path) -> None:
    a = folder(tmp_path / "a", (0, batch(0) + batch(1)))
    b = folder(tmp_path / "b", (0, batch(0) + batch(1, content=b"contend")))
    assert compare(2, a=a, b=b)[1] == [Kind.REPLICAS_DIFFER]


def test_another_epoch_of_the_same_records_is_found(tmp_path: Path) -> None:
    a = folder(tmp_path / "a", (0, batch(0, epoch=1)))
    b = folder(tmp_path / "b", (0, batch(0, epoch=2)))
    assert compare(1, a=a, b=b)[1] == [Kind.REPLICAS_DIFFER]


def test_an_epoch_that_goes_back_is_found(tmp_path: Path) -> None:
    a = folder(tmp_path / "a", (0, batch(0, epoch=2) + batch(1, epoch=1)))
    assert compare(2, a=a)[1] == [Kind.EPOCH_WENT_BACK]


def test_a_replica_without_files_is_short(tmp_path: Path) -> None:
    a = folder(tmp_path / "a", (0, batch(0)))
    assert compare(1, a=a, b=tmp_path / "nothing")[1] == [Kind.REPLICA_SHORT]
    assert compare(0, a=a, b=tmp_path / "nothing")[1] == []


@pytest.mark.parametrize(
    "data",
    [
        batch(0)[:-1],
        batch(0) + b"x",
        batch(0) + bytes(100),
        batch(5) + batch(0),
    ],
)
def test_bytes_that_are_not_batches_in_order_are_damaged(tmp_path: Path, data: bytes) -> None:
    a = folder(tmp_path / "a", (0, data))
    with pytest.raises(NotBatches):
        list(stored_batches(a))
    assert compare(1, a=a) == (0, [Kind.REPLICA_DAMAGED])
