"""References in comments and docs to files, functions, decisions and sections that do not exist."""

import ast
import re
from functools import cache
from pathlib import Path

from zhumq.broker.settings import BROKER_SETTINGS
from zhumq.model.topic_config import TOPIC_SETTINGS

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "src" / "zhumq"
FOLDERS = (
    "src", "docs", "tests", "tools", "examples", "simulation", "chaos", "benchmarks", "conformance",
)  # fmt: skip
ROOMS = tuple(sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()))

_FIRST = "|".join((*FOLDERS, *ROOMS))
# `net/connection`, `tests/unit/`, `client/wire.Connection`, `broker/dispatch.py: Dispatcher.handle`
_PATH = re.compile(rf"`((?:{_FIRST})/[\w/.*-]+)(?::+ ?([\w.]+))?`")
# `protocol.connection.ConnectionCodec`. Names that begin with the last three of these are
# settings of Kafka and of Spark, `admin` is also what many clients call their admin client, and `history` a file of `chaos`.
_OTHER_WORDS = ("admin", "history", "push", "share", "spark")
_DOTTED_ROOMS = "|".join(room for room in ROOMS if room not in _OTHER_WORDS)
_DOTTED = re.compile(rf"`(?:zhumq\.)?((?:{_DOTTED_ROOMS})(?:\.\w+)+)(?:\([^`]*\))?`")
_SETTINGS = {*BROKER_SETTINGS.by_name, *TOPIC_SETTINGS.by_name}
_DECISION = re.compile(r"\bdecisions?[ \n]+(\d{4})", re.IGNORECASE)
_DOCS = re.compile(r"(?<![\w/.-])docs/[\w/-]+(?:\.(?:md|png|webp))?")
# Numbers of a list that is not in the repository.
_NUMBERED = re.compile(r"\bhazards? \d+", re.IGNORECASE)
_GENERATED = re.compile(r"<!-- ([\w ]+): made by .*?<!-- end of \1 -->", re.DOTALL)


def dangling(text: str) -> list[str]:
    """The references in a text that lead nowhere."""
    text = _GENERATED.sub("", text)
    found = [
        f"{path}: {name}" if name else path
        for path, name in _PATH.findall(text)
        if not _path_exists(path, name)
    ]
    found += [
        name
        for name in _DOTTED.findall(text)
        if name not in _SETTINGS and not _module_has(name.split("."))
    ]
    found += [
        f"decision {number}"
        for number in _DECISION.findall(text)
        if not any((REPOSITORY / "docs" / "decisions").glob(f"{number}-*.md"))
    ]
    found += [path for path in _DOCS.findall(text) if not _path_exists(path, "")]
    return found + _NUMBERED.findall(text)


def _path_exists(path: str, name: str) -> bool:
    base = SOURCE if path.partition("/")[0] in ROOMS else REPOSITORY
    if "*" in path:
        return any(base.glob(path))
    # A module may be named without its suffix, and with one of its names behind a dot.
    for file, inside in ((path, ""), (f"{path}.py", ""), (f"{path}.md", ""), _split(path)):
        target = base / file
        if target.exists():
            inside = name or inside
            return not inside or (target.suffix == ".py" and has(target, inside))
    return base is REPOSITORY and (SOURCE / path).exists()


def _split(path: str) -> tuple[str, str]:
    module, _, inside = path.partition(".")
    return f"{module}.py", inside


def _module_has(words: list[str]) -> bool:
    """Whether these words lead to a module, or to a name in one."""
    for count in range(len(words), 0, -1):
        path = SOURCE.joinpath(*words[:count])
        rest = ".".join(words[count:])
        if path.with_suffix(".py").exists():
            return not rest or has(path.with_suffix(".py"), rest)
        if path.is_dir():
            return not rest
    return False


def has(path: Path, name: str) -> bool:
    """Whether a file defines this class, function, constant, or `Class.method`."""
    return name in _defined(path)


@cache
def _defined(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        for name in _names(node):
            found.add(name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for each in node.body for name in _names(each)}
            # Attributes that a method of the class sets.
            found |= {
                f"{node.name}.{each.attr}"
                for each in ast.walk(node)
                if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
            }
    return frozenset(found)


def _names(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.Assign(targets=targets):
            return [each.id for each in targets if isinstance(each, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []
