"""The disk interface of storage: the system disk and the disk in memory pass the same tests."""

import errno
import os
import resource
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from zhumq.host.disk import Disk, SystemDisk
from zhumq.model.errors import DataDirUnusable, DiskFull, StorageFailed
from zhumq.testing.disk import MemoryDisk


@pytest.fixture(params=["system", "memory"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return SystemDisk() if request.param == "system" else MemoryDisk()


@pytest.fixture
def folder(disk: Disk, tmp_path: Path) -> str:
    disk.make_directory(str(tmp_path))
    return str(tmp_path)


def test_parts_are_appended_one_after_the_other(disk: Disk, folder: str) -> None:
    file = disk.open_file(f"{folder}/a", create=True)
    assert file.append([b"one", memoryview(b"two"), bytearray(b"")]) == 0
    assert file.append([b"three"]) == 6
    assert (file.size, file.read_at(3, 100), file.read_at(0, 3)) == (11, b"twothree", b"one")
    assert file.read_at(11, 5) == b""
    file.sync()
    file.close()


def test_very_many_parts_go_in_as_well(disk: Disk, folder: str) -> None:
    file = disk.open_file(f"{folder}/a", create=True)
    file.append([b"%d," % place for place in range(5000)])
    assert file.read_at(0, 10) == b"0,1,2,3,4,"
    assert file.size == len("".join(f"{place}," for place in range(5000)))


def test_a_truncated_file_goes_on_at_its_new_end(disk: Disk, folder: str) -> None:
    file = disk.open_file(f"{folder}/a", create=True)
    file.append([b"0123456789"])
    file.truncate(4)
    assert file.append([b"x"]) == 4
    assert file.read_at(0, 100) == b"0123x"
    file.truncate(7)
    assert file.read_at(0, 100) == b"0123x\x00\x00"


def test_an_absent_file_is_only_made_on_demand(disk: Disk, folder: str) -> None:
    with pytest.raises(StorageFailed):
        disk.open_file(f"{folder}/absent")
    with pytest.raises(StorageFailed):
        disk.open_file(f"{folder}/no/such/folder", create=True)
    assert disk.read_file(f"{folder}/absent") is None
    assert disk.list_directory(f"{folder}/absent") == []
    disk.unlink(f"{folder}/absent")
    disk.remove_tree(f"{folder}/absent")
    disk.sync_file(f"{folder}/absent")


def test_small_files_are_replaced_as_a_whole(disk: Disk, folder: str) -> None:
    for content in (b"first", b"the second", b""):
        disk.write_file(f"{folder}/small", content, sync=True)
        assert disk.read_file(f"{folder}/small") == content
    assert [entry.name for entry in disk.list_directory(folder)] == ["small"]
    with pytest.raises(StorageFailed):
        disk.write_file(f"{folder}/no/such", b"x", sync=False)


def test_two_threads_can_replace_one_file_at_once(tmp_path: Path) -> None:
    disk = SystemDisk()
    path = f"{tmp_path}/small"

    def write(content: bytes) -> None:
        for _ in range(300):
            disk.write_file(path, content, sync=False)

    with ThreadPoolExecutor(2) as pool:
        for work in [pool.submit(write, b"one" * 100), pool.submit(write, b"two" * 100)]:
            work.result()
    assert disk.read_file(path) in (b"one" * 100, b"two" * 100)
    assert [entry.name for entry in disk.list_directory(str(tmp_path))] == ["small"]


def test_a_listing_has_folders_and_sizes(disk: Disk, folder: str) -> None:
    disk.write_file(f"{folder}/file", b"12345", sync=False)
    disk.make_directory(f"{folder}/sub/below")
    found = {entry.name: (entry.is_directory, entry.size) for entry in disk.list_directory(folder)}
    assert found["file"] == (False, 5)
    assert found["sub"][0]


def test_files_and_folders_can_be_renamed_and_removed(disk: Disk, folder: str) -> None:
    disk.make_directory(f"{folder}/old")
    disk.write_file(f"{folder}/old/a", b"x", sync=False)
    disk.rename(f"{folder}/old/a", f"{folder}/old/b")
    disk.rename(f"{folder}/old", f"{folder}/new")
    assert disk.read_file(f"{folder}/new/b") == b"x"
    assert disk.list_directory(f"{folder}/old") == []
    disk.remove_tree(f"{folder}/new")
    assert disk.list_directory(folder) == []
    with pytest.raises(StorageFailed):
        disk.rename(f"{folder}/absent", f"{folder}/x")


def test_an_open_file_outlives_its_name(disk: Disk, folder: str) -> None:
    file = disk.open_file(f"{folder}/a", create=True)
    file.append([b"still here"])
    disk.unlink(f"{folder}/a")
    assert file.read_at(0, 100) == b"still here"


def test_a_folder_is_held_by_one_at_a_time(disk: Disk, folder: str) -> None:
    lock = disk.lock(f"{folder}/.lock")
    with pytest.raises(DataDirUnusable, match="another broker is using"):
        disk.lock(f"{folder}/.lock")
    lock.release()
    disk.lock(f"{folder}/.lock").release()


def test_a_file_gives_its_descriptor_back_with_the_last_reference(tmp_path: Path) -> None:
    file = SystemDisk().open_file(str(tmp_path / "a"), create=True)
    descriptor = file.fileno()
    os.fstat(descriptor)
    del file
    with pytest.raises(OSError) as caught:
        os.fstat(descriptor)
    assert caught.value.errno == errno.EBADF


@pytest.fixture
def small_files_only() -> Iterator[None]:
    """No file may grow past 1000 bytes: a full disk for one process."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_files_only")
def test_a_write_without_room_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = SystemDisk().open_file(str(tmp_path / "a"), create=True)
    file.append([bytes(900)])
    for parts in ([bytes(50), bytes(100)], [bytes(101)], [bytes(5000)]):
        with pytest.raises(DiskFull):
            file.append(parts)  # the kernel writes what fits and fails for the rest
        assert file.size == 900
        assert (tmp_path / "a").stat().st_size == 900
    assert file.append([bytes(100)]) == 900
    with pytest.raises(DiskFull):
        SystemDisk().write_file(str(tmp_path / "b"), bytes(2000), sync=False)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_unwritable_folder_is_not_usable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataDirUnusable):
        SystemDisk().lock(str(tmp_path / "file" / ".lock"))
    with pytest.raises(StorageFailed):
        SystemDisk().make_directory(str(tmp_path / "file" / "folder"))
