"""Claim check: what is stored, what a message carries, and what is wrong with blobs and references."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zhumq.client.blob_reference import REFERENCE_HEADER, BlobReference
from zhumq.client.claim_check import ClaimCheck, Packed
from zhumq.client.errors import BlobDamaged, BlobMissing, BlobReferenceInvalid
from zhumq.client.file_store import FileStore
from zhumq.client.task import Task

LARGE = b"large value " * 100
NAME = "0123456789abcdef" * 2


def received(packed: Packed) -> Task:
    headers = tuple(
        (name, each.encode() if isinstance(each, str) else each) for name, each in packed.headers
    )
    return Task("t", 0, 0, None, packed.value, headers, None)


def reference_to(value: object) -> Task:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return received(Packed(text, [(REFERENCE_HEADER, b"1")]))


def blobs(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def claims(tmp_path: Path) -> ClaimCheck:
    return ClaimCheck(FileStore(tmp_path), larger_than=100, size_max=10_000)


def test_a_large_value_comes_back(claims: ClaimCheck, tmp_path: Path) -> None:
    packed = claims.pack(LARGE, headers={"source": "shop"})
    assert packed.value is not None
    assert len(packed.value) < 150
    assert packed.headers[0] == ("source", "shop")
    assert claims.unpack(received(packed)) == LARGE
    assert [path.read_bytes() for path in blobs(tmp_path)] == [LARGE]


@pytest.mark.parametrize("value", [None, b"", b"x" * 100])
def test_a_small_value_is_sent_as_it_is(
    claims: ClaimCheck, tmp_path: Path, value: bytes | None
) -> None:
    packed = claims.pack(value)
    assert packed == Packed(value, [])
    assert claims.unpack(received(packed)) == value
    assert blobs(tmp_path) == []


def test_equal_values_are_blobs_of_their_own(claims: ClaimCheck) -> None:
    first, second = received(claims.pack(LARGE)), received(claims.pack(LARGE))
    claims.delete(first)
    claims.delete(first)  # repeated after a crash: no error
    assert claims.unpack(second) == LARGE
    with pytest.raises(BlobMissing, match="it was deleted, or this is not the folder"):
        claims.unpack(first)


@pytest.mark.parametrize("damaged", [LARGE[:-1], LARGE + b"x", LARGE[:-1] + b"?", b""])
def test_a_damaged_blob_is_an_error(claims: ClaimCheck, tmp_path: Path, damaged: bytes) -> None:
    message = received(claims.pack(LARGE))
    blobs(tmp_path)[0].write_bytes(damaged)
    with pytest.raises(BlobDamaged, match=r"restore it, or send the value again"):
        claims.unpack(message)


@pytest.mark.parametrize(
    "value",
    [
        b"not json",
        b"[" * 900,
        b"x" * 1_001,
        [],
        {},
        {"blob": "../../etc/passwd", "size": 1, "sha256": "0" * 64},
        {"blob": NAME.upper(), "size": 1, "sha256": "0" * 64},
        {"blob": NAME, "size": -1, "sha256": "0" * 64},
        {"blob": NAME, "size": True, "sha256": "0" * 64},
        {"blob": NAME, "size": "1", "sha256": "0" * 64},
        {"blob": NAME, "size": 1, "sha256": "0"},
        {"blob": 1, "size": 1, "sha256": "0" * 64},
    ],
)
def test_a_reference_that_is_none_is_an_error(claims: ClaimCheck, value: object) -> None:
    with pytest.raises(BlobReferenceInvalid, match="send large values with zhumq"):
        claims.unpack(reference_to(value))


def test_a_reference_without_a_value_is_an_error(claims: ClaimCheck) -> None:
    with pytest.raises(BlobReferenceInvalid, match="no value is not a reference"):
        claims.unpack(received(Packed(None, [(REFERENCE_HEADER, b"1")])))


def test_a_reference_of_a_later_version_is_an_error(claims: ClaimCheck) -> None:
    with pytest.raises(BlobReferenceInvalid, match="of another version: update zhumq"):
        claims.unpack(received(Packed(b"{}", [(REFERENCE_HEADER, b"2")])))


def test_a_reference_to_more_than_the_limit_loads_nothing(claims: ClaimCheck) -> None:
    text = BlobReference(blob=NAME, size=10_001, sha256="0" * 64).encode()
    with pytest.raises(BlobReferenceInvalid, match="more than size_max=10000: raise size_max"):
        claims.unpack(received(Packed(text, [(REFERENCE_HEADER, b"1")])))


def test_a_value_above_the_limit_is_not_stored(claims: ClaimCheck, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a value of 10001 bytes is larger than size_max=10000"):
        claims.pack(b"x" * 10_001)
    assert blobs(tmp_path) == []


def test_the_header_of_references_cannot_be_set_by_a_program(claims: ClaimCheck) -> None:
    with pytest.raises(ValueError, match="is set by ClaimCheck"):
        claims.pack(b"small", headers={REFERENCE_HEADER: "1"})


def test_a_message_that_is_refused_leaves_no_blob(claims: ClaimCheck, tmp_path: Path) -> None:
    class Refusing:
        def send(self, topic: str, value: bytes | None, **options: Any) -> None:
            assert len(blobs(tmp_path)) == 1  # durable before it is sent
            raise RuntimeError("refused")

    with pytest.raises(RuntimeError, match="refused"):
        claims.send(Refusing(), "t", LARGE, key=b"k")
    assert blobs(tmp_path) == []


@given(blob=st.uuids(), value=st.binary(max_size=100))
def test_a_reference_survives_its_message(blob: Any, value: bytes) -> None:
    reference = BlobReference.of(blob.hex, value)
    assert BlobReference.parse(reference.encode()) == reference
    reference.check(value)


def test_blobs_are_cleaned_up_by_age_and_nothing_else_is(tmp_path: Path) -> None:
    now = [1_000_000.0]
    store = FileStore(tmp_path, now=lambda: now[0])
    old, new = "aa" + NAME[2:], "bb" + NAME[2:]
    for name, stored_at in ((old, now[0] - 100), (new, now[0] - 10)):
        store.put(name, LARGE)
        os.utime(tmp_path / name[:2] / name, (stored_at, stored_at))
    unfinished = tmp_path / "aa" / f"{old}-{NAME}.tmp"  # a crash while a blob was written
    stray = tmp_path / "aa" / "notes.txt"
    for path in (unfinished, stray):
        path.write_bytes(b"")
        os.utime(path, (now[0] - 100, now[0] - 100))
    assert store.delete_older_than(100) == 0
    assert store.delete_older_than(50) == 2
    assert sorted(path.name for path in blobs(tmp_path)) == [new, "notes.txt"]
    with pytest.raises(ValueError, match="below zero"):
        store.delete_older_than(-1)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(tmp_path)

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        store.put(NAME, LARGE)
    monkeypatch.undo()
    assert blobs(tmp_path) == []
    with pytest.raises(BlobMissing):
        store.get(NAME, 1)


@pytest.mark.parametrize("name", ["", "../x", "a" * 31, NAME + "/x", NAME + "\n"])
def test_a_store_takes_no_other_names(tmp_path: Path, name: str) -> None:
    store = FileStore(tmp_path)
    for use in (
        lambda: store.put(name, b""),
        lambda: store.get(name, 1),
        lambda: store.delete(name),
    ):
        with pytest.raises(ValueError, match="is not the name of a blob"):
            use()


def test_bounds_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="larger_than=11 is not between 0 and size_max=10"):
        ClaimCheck(FileStore(tmp_path), larger_than=11, size_max=10)
