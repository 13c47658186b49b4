"""The Python that Spark starts: the running one, without the zips of PySpark in its path."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from zhumq.host.java import find_java
from zhumq.spark.worker_python import worker_python

SAY = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('PYTHONPATH')]))"


def run(script: Path, python_path: str | None, *words: str) -> list[object]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if python_path is not None:
        environment["PYTHONPATH"] = python_path
    done = subprocess.run(
        [script, "-c", SAY, *words], env=environment, check=True, capture_output=True, text=True
    )
    found: list[object] = json.loads(done.stdout)
    return found


def test_only_the_zips_of_spark_are_left_out(tmp_path: Path) -> None:
    home = tmp_path / "a folder" / "pyspark"
    script = worker_python(tmp_path / "cache", spark_home=home)
    library = home / "python" / "lib"
    others = [str(tmp_path / "mine.zip"), str(tmp_path / "with space"), str(library)]
    given = [str(library / "pyspark.zip"), *others, str(library / "py4j-0.10-src.zip")]
    words = ("one two", "*", "")
    assert run(script, ":".join(given), *words) == [list(words), ":".join(others)]
    assert run(script, None) == [[], ""]


def test_it_is_the_running_python_with_its_exit_code(tmp_path: Path) -> None:
    script = worker_python(tmp_path, spark_home=tmp_path)
    done = subprocess.run(
        [script, "-c", "import sys; print(sys.prefix); sys.exit(7)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == (sys.prefix, 7)


def test_it_is_made_once_for_each_python_and_each_spark(tmp_path: Path) -> None:
    first = worker_python(tmp_path, spark_home=tmp_path / "one")
    made_at = first.stat().st_mtime_ns
    assert worker_python(tmp_path, spark_home=tmp_path / "one") == first
    assert first.stat().st_mtime_ns == made_at
    assert worker_python(tmp_path, spark_home=tmp_path / "two") != first
    assert len(list(tmp_path.iterdir())) == 2


def test_a_session_starts_without_it_if_the_cache_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = pytest.importorskip("zhumq.spark.session")
    (tmp_path / "zhumq").write_text("a file where the folder of the cache would be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(find_java().home))  # finding Java may need the cache
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", "what is set here is put back after the test")
    monkeypatch.delenv("PYSPARK_PYTHON")
    session.prepare_environment(workers_are_here=True)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    session.prepare_environment(workers_are_here=True)
    assert Path(os.environ["PYSPARK_PYTHON"]).parent == tmp_path / "empty" / "zhumq"
