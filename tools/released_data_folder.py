"""Writes the data folder of a release, which the test of upgrades opens: tests/integration/upgrade.

The release is a commit of this repository: its broker runs from an archive of that commit, with today's dependencies and
today's clients. Usage: `python tools/released_data_folder.py fcb7352 0.1.0`.
"""

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = REPOSITORY / "tests" / "integration" / "upgrade"
ENDINGS: Final = ["stopped", "killed"]  # how the broker ended
BYTES_MAX: Final = 100_000
sys.path.insert(0, str(REPOSITORY))

from tests.integration.upgrade.released_contents import SETTINGS, fill  # noqa: E402

from zhumq.testing.process import NO_WATERMARKS, BrokerProcess  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("version")
    parser.add_argument("endings", nargs="*", default=ENDINGS, help=" or ".join(ENDINGS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = export(arguments.commit, folder / "source")
        for ending in arguments.endings:
            data_dir = folder / ending
            run_broker(source, data_dir, is_killed=ending == "killed")
            pack(data_dir, FOLDER / f"{arguments.version}-{ending}.tar.xz")


def export(commit: str, target: Path) -> Path:
    """The sources of that commit."""
    archive = subprocess.run(
        ["git", "archive", commit, "src"], cwd=REPOSITORY, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(target, filter="data")
    return target / "src"


def run_broker(source: Path, data_dir: Path, *, is_killed: bool) -> None:
    """Fill the data folder by a broker of these sources, which then is stopped, or killed."""
    broker = BrokerProcess(
        data_dir,
        settings={**SETTINGS, **NO_WATERMARKS},
        environment={"PYTHONPATH": str(source)},
    )
    broker.start()
    try:
        fill(broker.bootstrap, broker.push)
    except BaseException:
        print(broker.log)
        raise
    finally:
        if is_killed:
            broker.kill()
        else:
            broker.stop()


def pack(data_dir: Path, archive: Path) -> None:
    with tarfile.open(archive, "w:xz", preset=9) as opened:
        opened.add(data_dir, "data", filter=_without_owner)
    size = archive.stat().st_size
    print(f"{archive.relative_to(REPOSITORY)}: {size} bytes")
    if size > BYTES_MAX:
        sys.exit(f"{archive.name} has more than {BYTES_MAX} bytes: write less in `fill`")


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(uid=0, gid=0, uname="", gname="", deep=False)


if __name__ == "__main__":
    main()
