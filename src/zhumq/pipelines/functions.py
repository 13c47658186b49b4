"""Functions of users that a pipeline file names: finds them here, and sends their modules to the workers."""

import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from zhumq.pipelines.document import Mark
from zhumq.pipelines.spec import Pipeline, PythonStep, Report


def load_function(name: str, mark: Mark) -> Callable[..., Any]:
    """The function `module:name`."""
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise mark.wrong(f"cannot import {module_name!r}: {error}") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise mark.wrong(f"the module {module_name!r} has no function {function_name!r}")
    checked: Callable[..., Any] = function
    return checked


def findings_of(report: Report) -> Mapping[str, Any] | None:
    """What the function `findings` beside that of a report returns: figures to publish. None: there is none."""
    module = importlib.import_module(report.function.partition(":")[0])
    function = getattr(module, "findings", None)
    if not callable(function):
        return None
    found: Mapping[str, Any] = function(**report.arguments)
    return found


def make_importable(spark: SparkSession, pipeline: Pipeline, *, remote: bool = False) -> None:
    """Make modules beside the pipeline file importable, here and on the workers; `remote`: of Spark Connect."""
    for beside in modules_beside(pipeline):
        folder = str(beside.parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)
        if remote:
            spark.addArtifact(str(beside), pyfile=True)
        else:
            spark.sparkContext.addPyFile(str(beside))
            _let_driver_workers_import(spark, folder)


def _let_driver_workers_import(spark: SparkSession, folder: str) -> None:
    """Spark prepares `transformWithState` in a worker beside the driver, which does not look at added files."""
    environment = spark.sparkContext.environment
    known = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]
    if folder not in known:
        environment["PYTHONPATH"] = os.pathsep.join([*known, folder])


def code_of(pipeline: Pipeline) -> dict[str, str]:
    """Digests of the modules beside the file, by the steps whose functions are in them."""
    digests = {
        path.stem: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in modules_beside(pipeline)
    }
    steps = (each for each in pipeline.steps if isinstance(each, PythonStep))
    named = ((each.name, each.function.partition(":")[0].partition(".")[0]) for each in steps)
    return {name: digests[module] for name, module in named if module in digests}


def modules_beside(pipeline: Pipeline) -> list[Path]:
    """The modules beside the pipeline file whose functions it names."""
    folder = Path(pipeline.file).resolve().parent
    functions = [step.function for step in pipeline.steps if isinstance(step, PythonStep)]
    if pipeline.report is not None:
        functions.append(pipeline.report.function)
    names = dict.fromkeys(each.partition(":")[0].partition(".")[0] for each in functions)
    return [path for name in names if (path := folder / f"{name}.py").exists()]
