"""Today's broker on a data folder of an earlier release: nothing is lost, and everything goes on."""

import tarfile
from pathlib import Path

import pytest
from released_contents import SETTINGS, check, fill

from zhumq.host.ports import HOST, free_ports
from zhumq.testing.process import NO_WATERMARKS, BrokerProcess

FOLDERS = sorted(Path(__file__).parent.glob("*.tar.xz"))
BYTES_MAX = 100_000


def start(data_dir: Path) -> tuple[BrokerProcess, str]:
    """A broker of today with two listeners; the second one asks for a user."""
    plain, sasl = (f"{HOST}:{port}" for port in free_ports(2))
    listeners = f"PLAINTEXT://{plain},SASL_PLAINTEXT://{sasl}"
    settings = {**SETTINGS, **NO_WATERMARKS, "listeners": listeners}
    process = BrokerProcess(data_dir, settings=settings)
    process.start()
    return process, sasl


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.parametrize("archive", FOLDERS, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_a_data_folder_of_an_earlier_release_is_opened_and_used(
    archive: Path, tmp_path: Path
) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    process, sasl = start(tmp_path / "data")
    try:
        check(process.bootstrap, process.push, sasl)
        assert process.stop() == 0
        assert " ERROR " not in process.log
    finally:
        process.kill()


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_what_the_check_looks_for_is_what_is_written(tmp_path: Path) -> None:
    """A restart is an upgrade from today's release: the folder of the next release will pass."""
    process, _ = start(tmp_path / "data")
    try:
        fill(process.bootstrap, process.push)
        process.kill()
        process, sasl = start(tmp_path / "data")
        check(process.bootstrap, process.push, sasl)
    finally:
        process.kill()


def test_there_is_a_folder_of_each_ending_and_it_is_small() -> None:
    assert {path.name.rpartition("-")[2] for path in FOLDERS} == {"stopped.tar.xz", "killed.tar.xz"}
    assert all(path.stat().st_size < BYTES_MAX for path in FOLDERS)
