"""The seed determines the damage to files, and replicas are equal only if all bytes are."""

import random
from pathlib import Path

import pytest
from chaos.damage import DamageKind, are_equal, do_damage, end_offset
from test_replica_comparison import batch, folder

WHOLE = b"".join(batch(number, content=b"content %d" % number) for number in range(50))


def data_dir(place: Path) -> Path:
    place.mkdir()
    folder(place / "t-0", (0, WHOLE))
    return place


def content(place: Path) -> bytes:
    return (place / "t-0" / f"{0:020d}.log").read_bytes()


@pytest.mark.parametrize("seed", range(20))
def test_one_bit_is_flipped(tmp_path: Path, seed: int) -> None:
    place = data_dir(tmp_path / "a")
    do_damage(DamageKind.FLIP, place, ["t-0"], random.Random(seed))
    changed = [a ^ b for a, b in zip(content(place), WHOLE, strict=True) if a != b]
    assert [each.bit_count() for each in changed] == [1]


@pytest.mark.parametrize("seed", range(20))
def test_zeros_never_make_the_file_longer(tmp_path: Path, seed: int) -> None:
    place = data_dir(tmp_path / "a")
    do_damage(DamageKind.ZERO, place, ["t-0"], random.Random(seed))
    assert len(content(place)) == len(WHOLE)
    assert content(place) != WHOLE


@pytest.mark.parametrize("seed", range(20))
def test_a_lost_tail_leaves_the_beginning(tmp_path: Path, seed: int) -> None:
    place = data_dir(tmp_path / "a")
    do_damage(DamageKind.CUT, place, ["t-0"], random.Random(seed))
    assert len(content(place)) < len(WHOLE)
    assert WHOLE.startswith(content(place))


def test_an_empty_disk_has_nothing(tmp_path: Path) -> None:
    place = data_dir(tmp_path / "a")
    do_damage(DamageKind.WIPE, place, ["t-0"], random.Random(1))
    assert not place.exists()


def test_a_partition_without_data_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "a"
    folder_of = place / "t-0"
    place.mkdir()
    folder(folder_of, (0, b""))
    assert "nothing" in do_damage(DamageKind.FLIP, place, ["t-0"], random.Random(1))


def test_replicas_are_equal_only_with_all_bytes_up_to_the_offset(tmp_path: Path) -> None:
    a = folder(tmp_path / "a", (0, WHOLE))
    b = folder(tmp_path / "b", (0, WHOLE))
    short = folder(tmp_path / "c", (0, WHOLE[: len(WHOLE) // 2]))
    other = folder(tmp_path / "d", (0, WHOLE.replace(b"content 7", b"contend 7")))
    assert end_offset(a) == 50
    assert are_equal({"a": a, "b": b}, 50)
    assert not are_equal({"a": a, "c": short}, 50)
    assert are_equal({"a": a, "c": short}, end_offset(short))
    assert not are_equal({"a": a, "d": other}, 50)
    assert are_equal({"a": a, "d": other}, 7)
    assert not are_equal({"a": a, "e": tmp_path / "nothing"}, 1)
    assert are_equal({"a": a, "e": tmp_path / "nothing"}, 0)


def test_a_half_written_tail_is_read_up_to_the_last_complete_batch(tmp_path: Path) -> None:
    growing = folder(tmp_path / "a", (0, WHOLE + b"half a ba"))
    assert end_offset(growing) == 50
