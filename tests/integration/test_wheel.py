"""The package: what the wheel and the sdist hold, and that the wheel works. `make package-test` installs it with every extra."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS_MAX = 100
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the sdist."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        timeout=SECONDS_MAX,
    )
    return folder


def test_the_wheel_holds_the_packages_with_all_their_files_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    expected = {
        path.relative_to(REPOSITORY / "src").as_posix()
        for path in (REPOSITORY / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {
        "zhumq/py.typed",
        "zhumq/web/console/index.html",
        "zhumq/web/console/main.js",
        "zhumq/web/console/style.css",
        "zhumq/pipelines/library/archive.yml",
        "zhumq/protocol/push/push_pb2.py",
    } <= expected
    information = {name for name in names if re.match(r"zhumq-[^/]+\.dist-info/", name)}
    assert names - information == expected
    assert {name.partition("/")[0] for name in expected} == {"zhumq", "pyspark_zhumq"}


def test_the_sdist_holds_what_the_wheel_is_built_from(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt"} <= names
    assert "src/zhumq/__init__.py" in names
    folders = {name.partition("/")[0] for name in names if "/" in name}
    assert folders == {"src", "packaging"}


@pytest.mark.thorough
def test_the_wheel_works_without_the_repository(dist: Path, tmp_path: Path) -> None:
    """With the dependencies of this environment, which are not downloaded again."""
    (wheel,) = dist.glob("*.whl")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--no-index", "--target", str(tmp_path / "installed"), str(wheel)),
        ],
        check=True,
        timeout=SECONDS_MAX,
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "tools" / "package_smoke.py"), "core"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == (
        f"core: works, with zhumq {PROJECT['version']}\n",
        "",
        0,
    )
    installed = {path.name for path in (tmp_path / "installed" / "bin").iterdir()}
    assert installed == {"zhumq"}


def test_every_extra_has_a_smoke_test() -> None:
    text = (REPOSITORY / "tools" / "package_smoke.py").read_text()
    tested = set(re.findall(r'^    "(\w+)": \1,$', text, re.MULTILINE))
    assert set(PROJECT["optional-dependencies"]) - {"bench", "dev"} == tested - {"core"}


def test_the_version_is_that_of_the_changelog_or_a_later_one_in_the_making() -> None:
    """One place has the version: pyproject.toml. The changelog names releases, the newest one first."""
    text = (REPOSITORY / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[([^]]+)\](.*)$", text, re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    releases = [tuple(map(int, name.split("."))) for name, _ in headings[1:]]
    assert releases == sorted(releases, reverse=True)
    assert all(re.fullmatch(r" - \d{4}-\d\d-\d\d", date) for _, date in headings[1:])
    number, _, in_the_making = PROJECT["version"].partition(".dev")
    version = tuple(map(int, number.split(".")))
    if in_the_making:
        assert version > releases[0]
    else:
        assert version == releases[0]
        assert not text.partition("## [Unreleased]")[2].partition("## [")[0].strip()
    for path in (REPOSITORY / "src").rglob("*.py"):
        assert not re.search(r"^__version__\s*=", path.read_text(), re.MULTILINE), path
