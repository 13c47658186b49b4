"""One worker of pytest-xdist has all tests that share the Spark session, and others have the rest."""

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
CONFTEST = """
import pytest
from tests.schedule import scheduler

def pytest_xdist_make_scheduler(config, log):
    return scheduler(config, log)

@pytest.fixture
def note(worker_id, request):
    with open("workers", "a") as file:
        file.write(f"{request.path.parent.name} {worker_id}\\n")
"""
TEST = """
import pytest

@pytest.mark.parametrize("path", ["a/b"])
def test_{name}(note, path):
    pass
"""


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_tests_of_spark_go_to_one_worker(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for folder in ("tests/integration/spark", "tests/integration/web"):
        (tmp_path / folder).mkdir(parents=True)
        for name in "abcd":
            (tmp_path / folder / f"test_{folder[-3:]}_{name}.py").write_text(TEST.format(name=name))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"]
    done = subprocess.run(
        [*command, "-p", "no:randomly", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "8 passed" in done.stdout, done.stdout + done.stderr
    workers: dict[str, set[str]] = defaultdict(set)
    for line in (tmp_path / "workers").read_text().splitlines():
        folder, worker = line.split()
        workers[folder].add(worker)
    assert len(workers["spark"]) == 1
    assert len(workers["spark"] | workers["web"]) == 2
