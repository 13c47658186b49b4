"""Runs `zhumq pipeline deploy`: a pipeline on a cluster whose machines do not have zhumq."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from zhumq.cli.output import print_note
from zhumq.cli.pipeline_errors import EXIT_SPEC_INVALID, print_error
from zhumq.cli.pipeline_run import run_files
from zhumq.pipelines.connect import is_connect
from zhumq.pipelines.document import SpecInvalid
from zhumq.pipelines.functions import modules_beside
from zhumq.pipelines.library_files import find_pipeline
from zhumq.pipelines.shipping import (
    ARCHIVE,
    CannotShip,
    Submission,
    build_archive,
    check_python,
    distributions,
    driver_path,
    settings_for,
    submit_line,
)
from zhumq.pipelines.spec import Pipeline
from zhumq.pipelines.spec_reader import load_pipeline


def deploy_file(
    word: str,
    values: Mapping[str, str],
    *,
    master: str,
    python: str,
    bootstrap: str | None,
    config: str | None,
    security: Mapping[str, str] | None,
    state_dir: Path,
    checkpoints: str | None,
    image: str | None,
    upload: str | None,
    prints: bool,
) -> int:
    """Run the pipeline on a cluster, or print how it is submitted. Returns the exit code; raises ZhumqError."""
    path = find_pipeline(word)
    try:
        pipeline = load_pipeline(path, values)
    except SpecInvalid as error:
        return print_error(error, EXIT_SPEC_INVALID)
    _check_master(master, prints=prints)
    archive = state_dir / pipeline.name / ARCHIVE
    print_note(f"{_pack(archive)}: {archive} ({archive.stat().st_size / 2**20:.0f} MiB)")
    if prints:
        if checkpoints is None:
            raise CannotShip(
                "give --checkpoints URL: the disk of a driver in the cluster goes with it"
            )
        arguments = [word for each in values.items() for word in ("--set", "=".join(each))]
        if bootstrap is not None:
            arguments += ["--bootstrap", bootstrap]
        if config is not None:
            arguments += ["--config", config]
        line = submit_line(
            Submission(
                master=master,
                file=path.absolute(),
                modules=modules_beside(pipeline),
                archive=archive.absolute(),
                python=python,
                checkpoints=checkpoints,
                arguments=arguments,
                image=image,
                upload=upload,
            )
        )
        sys.stdout.write(f"{line}\n")
        return 0
    return _run(
        word, values, pipeline, archive,
        master=master, python=python, bootstrap=bootstrap, security=security, state_dir=state_dir,
        checkpoints=checkpoints,
    )  # fmt: skip


def _run(
    word: str,
    values: Mapping[str, str],
    pipeline: Pipeline,
    archive: Path,
    *,
    master: str,
    python: str,
    bootstrap: str | None,
    security: Mapping[str, str] | None,
    state_dir: Path,
    checkpoints: str | None,
) -> int:
    check_python(python)
    # Spark's driver starts the same Python as the workers, which find zhumq in the archive.
    os.environ["PYSPARK_PYTHON"] = python
    os.environ["PYTHONPATH"] = driver_path()
    return run_files(
        [word],
        values,
        master=master,
        bootstrap=bootstrap,
        security=security,
        state_dir=state_dir,
        checkpoint_root=checkpoints,
        as_json=False,
        settings=settings_for(archive, pipeline.spark),
    )


def _check_master(master: str, *, prints: bool) -> None:
    """Say what this command cannot do."""
    if is_connect(master):
        raise CannotShip(
            f"{master} is Spark Connect, where zhumq has to be installed for the Python of the server: then use"
            f" `zhumq pipeline run FILE --master {master} --checkpoints URL`"
        )
    by_print = master == "yarn" or master.startswith("k8s://")
    if not by_print and not master.startswith("spark://"):
        raise CannotShip(f"{master} is no cluster: spark://HOST:PORT, yarn or k8s://HOST:PORT")
    if by_print and not prints:
        raise CannotShip(f"{master} runs the driver in the cluster: --print says how to submit it")
    if prints and not by_print:
        raise CannotShip(
            "--print is for yarn and k8s://; with spark:// the command runs the pipeline"
        )


def _pack(archive: Path) -> str:
    is_new = build_archive(archive, distributions())
    return "packed zhumq and its packages" if is_new else "the packages are the same"
