"""Finds mistakes in the Python functions that a pipeline file names, without running their modules."""

import ast
import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from zhumq.pipelines.document import Mark, did_you_mean
from zhumq.pipelines.spec import Pipeline, PythonStep

MODULE_BYTES_MAX: Final = 1024 * 1024
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def check_functions(pipeline: Pipeline) -> None:
    """Fail for a function that is not there or does not take what it is given. Raises SpecInvalid."""
    folder = Path(pipeline.file).resolve().parent
    for step in pipeline.steps:
        if isinstance(step, PythonStep):
            _check(step.function, step.mark, folder, len(step.inputs), list(step.arguments))
    report = pipeline.report
    if report is not None:
        _check(report.function, report.mark, folder, 0, list(report.arguments))


def _check(name: str, mark: Mark, folder: Path, inputs: int, arguments: list[str]) -> None:
    module, _, function = name.partition(":")
    path = folder / f"{module}.py"
    if not path.is_file():
        _check_is_installed(module, mark, folder)
        return
    tree = _parsed(path, mark)
    names = set(_names_of(tree.body))
    if "*" in names:
        return
    if function not in names:
        near = did_you_mean(function, tuple(sorted(names)))
        raise mark.wrong(f"the module {module!r} has no function {function!r}{near}")
    found = [each for each in tree.body if isinstance(each, _Function) and each.name == function]
    # What a decorator or an import makes of the name is known when it runs.
    if found and not found[-1].decorator_list:
        _check_call(found[-1], mark, inputs, arguments)


def _check_is_installed(module: str, mark: Mark, folder: Path) -> None:
    top = module.partition(".")[0]
    if (folder / f"{top}.py").is_file() or (folder / top).is_dir():
        return
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return  # A module that this process has imported without a spec: the run imports it, too.
    if found is None:
        raise mark.wrong(
            f"cannot import {module!r}: there is no {top}.py beside the file, and no such package is"
            " installed"
        )


def _parsed(path: Path, mark: Mark) -> ast.Module:
    try:
        with path.open("rb") as file:
            raw = file.read(MODULE_BYTES_MAX + 1)
    except OSError as error:
        raise mark.wrong(f"cannot read {path}: {error.strerror}") from None
    if len(raw) > MODULE_BYTES_MAX:
        raise mark.wrong(f"{path} is larger than {MODULE_BYTES_MAX} bytes: is this a module?")
    try:
        return ast.parse(raw, filename=path.name)
    except SyntaxError as error:
        raise mark.wrong(f"{path.name}:{error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise mark.wrong(f"{path.name} is not Python: {error}") from None


def _names_of(body: list[ast.stmt]) -> Iterator[str]:
    """The names that a module may have, also those of a branch; `*` if not all are known."""
    for each in body:
        match each:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield each.name
            case ast.Import() | ast.ImportFrom():
                yield from ((name.asname or name.name).partition(".")[0] for name in each.names)
            case _:
                for part in ast.walk(each):
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                        yield part.id
                    elif isinstance(part, ast.stmt) and part is not each:
                        yield from _names_of([part])


def _check_call(function: _Function, mark: Mark, inputs: int, arguments: list[str]) -> None:
    signature = _signature(function.args)
    try:
        signature.bind(*range(inputs), **dict.fromkeys(arguments))
    except TypeError as error:
        shown = ", ".join(str(each) for each in signature.parameters.values()).replace(
            "Ellipsis", "..."
        )
        given = f"{inputs} input" if inputs == 1 else f"{inputs} inputs"
        raise mark.wrong(
            f"{function.name}({shown}) {error}: the file gives {given} and the arguments"
            f" {', '.join(arguments) or 'none'}"
        ) from None


def _signature(given: ast.arguments) -> inspect.Signature:
    """The signature of a function; a default is shown as `...`."""
    kinds = inspect.Parameter
    plain = [
        *((each.arg, kinds.POSITIONAL_ONLY) for each in given.posonlyargs),
        *((each.arg, kinds.POSITIONAL_OR_KEYWORD) for each in given.args),
    ]
    needed = len(plain) - len(given.defaults)
    found = [
        kinds(name, kind, default=kinds.empty if index < needed else ...)
        for index, (name, kind) in enumerate(plain)
    ]
    if given.vararg is not None:
        found.append(kinds(given.vararg.arg, kinds.VAR_POSITIONAL))
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        empty = kinds.empty if default is None else ...
        found.append(kinds(each.arg, kinds.KEYWORD_ONLY, default=empty))
    if given.kwarg is not None:
        found.append(kinds(given.kwarg.arg, kinds.VAR_KEYWORD))
    return inspect.Signature(found)
