"""Finds modules of src that import each other in a circle."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path


def find_circle(root: Path) -> list[str]:
    """The modules of one circle of imports, or nothing. Imports for type checkers do not count; those in functions do."""
    modules = {_name(path, root): path for path in root.rglob("*.py")}
    graph = {
        name: {each for each in _imported(ast.parse(path.read_text()), modules) if each != name}
        for name, path in modules.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as circle:
        return list(circle.args[1])
    return []


def _name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(node: ast.AST, modules: dict[str, Path]) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and child.module is not None:
            for alias in child.names:
                full = f"{child.module}.{alias.name}"
                yield from (full,) if full in modules else {child.module} & modules.keys()
        elif isinstance(child, ast.Import):
            yield from {alias.name for alias in child.names} & modules.keys()
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            yield from _imported(ast.Module(body=child.orelse, type_ignores=[]), modules)
        else:
            yield from _imported(child, modules)
