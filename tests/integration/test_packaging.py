"""What a packaged broker may do: the systemd unit, the container file, the modes of the data folder."""

import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from zhumq.testing.process import broker_process

PACKAGING = Path(__file__).parents[2] / "packaging"
SECONDS_MAX = 30
EXPOSURE_MAX = 2.0  # of 10, by systemd's own measure


UNITS = ("zhumq.service", "zhumq-web.service")


@pytest.mark.parametrize("unit", UNITS)
def test_a_systemd_unit_gives_few_rights(unit: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(PACKAGING / "systemd" / unit)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(rf"exposure level for {unit}: ([0-9.]+)", done.stdout)
    assert found is not None
    assert float(found.group(1)) <= EXPOSURE_MAX


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    text = (PACKAGING / "systemd" / unit).read_text()
    # The program is not installed here.
    (tmp_path / unit).write_text(text.replace("/opt/zhumq/bin/zhumq", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(tmp_path / unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_container_runs_as_a_user_without_rights() -> None:
    text = (PACKAGING / "Containerfile").read_text()
    last_stage = text.rpartition("\nFROM ")[2]
    users = re.findall(r"^USER (\S+)$", last_stage, re.MULTILINE)
    assert users
    assert int(users[-1]) > 0
    for image in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
        assert "/" not in image  # no registry is named


def test_only_its_owner_reads_a_data_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with broker_process(folder) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        admin.create_topics([NewTopic("t")])["t"].result(SECONDS_MAX)
        assert process.stop() == 0
    modes = {
        (path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in [folder, *folder.rglob("*")]
    }
    assert modes == {(True, 0o700), (False, 0o600)}
