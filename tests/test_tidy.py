"""What a linter cannot see: lengths, captions, and docs that say what the code says."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import private_attributes
import references
import retired_words
from import_circles import find_circle

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "src" / "zhumq"
LINES_MAX = 500
CAPTION_CHARACTERS_MAX = 120

PACKAGES = (SOURCE, REPOSITORY / "simulation", REPOSITORY / "chaos")
MODULES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
TEXT_FOLDERS = (
    "src", "tests", "tools", "docs", "examples", "simulation", "chaos", "benchmarks", "conformance", ".ci",
)  # fmt: skip
TEXT_SUFFIXES = {"", ".md", ".py", ".toml", ".txt", ".go", ".java", ".js", ".c", ".sh", ".xml"}


def _text_files() -> list[Path]:
    found = [path for path in REPOSITORY.iterdir() if path.is_file()]
    for folder in TEXT_FOLDERS:
        for parent, folders, files in os.walk(REPOSITORY / folder):
            folders[:] = [name for name in folders if name not in ("__pycache__", "node_modules")]
            found += [Path(parent) / name for name in files]
    return sorted(path for path in found if path.suffix in TEXT_SUFFIXES and path.name != ".git")


def _name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def test_no_source_file_is_longer_than_the_limit() -> None:
    lengths = {_name(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}


def test_every_module_says_in_one_line_what_it_is() -> None:
    bad = []
    for path in MODULES:
        text = path.read_text()
        if not text:
            continue
        docstring = ast.get_docstring(ast.parse(text)) or ""
        first = docstring.partition("\n")[0]
        if not first.endswith(".") or len(first) > CAPTION_CHARACTERS_MAX:
            bad.append(_name(path))
    assert bad == []


def test_an_init_file_says_what_its_room_is_and_does_nothing() -> None:
    public_faces = {SOURCE / "__init__.py", SOURCE / "spark" / "__init__.py"}
    packages = [path for path in MODULES if path.name == "__init__.py" and path not in public_faces]
    active = [_name(path) for path in packages if len(ast.parse(path.read_text()).body) > 1]
    assert active == []


def test_the_generated_parts_of_the_docs_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, REPOSITORY / "tools" / "docs.py", "--check"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_every_name_is_used() -> None:
    pytest.importorskip("vulture")
    done = subprocess.run(
        [sys.executable, "-m", "vulture"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_every_declared_message_is_used() -> None:
    """A request or response with a key of its own is served or sent, not only declared."""
    folder = SOURCE / "protocol" / "messages"
    naming: dict[str, set[Path]] = {}
    for path in SOURCE.rglob("*.py"):
        text = re.sub(r"^class \w+", "", path.read_text(), flags=re.MULTILINE)
        for word in re.findall(r"\w+", text):
            naming.setdefault(word, set()).add(path.parent)
    unused = []
    for path in sorted(folder.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                has_key = any(each.arg == "api_key" for each in node.keywords)
                if not naming.get(node.name, set()) - ({folder} if has_key else set()):
                    unused.append(f"{_name(path)}: {node.name}")
    assert unused == []


def test_every_setting_is_documented() -> None:
    from zhumq.broker.settings import BROKER_SETTINGS, COARSER_NAMES

    text = (REPOSITORY / "docs" / "reference" / "settings.md").read_text()
    names = [*BROKER_SETTINGS.by_name, *COARSER_NAMES]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_make_target_named_in_the_docs_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = set()
    for path in [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"]:
        named |= set(re.findall(r"\bmake ([a-z]+)", _code(path.read_text())))
    assert {"run", "test"} <= named
    assert named <= targets


def test_every_command_named_in_the_docs_exists() -> None:
    from zhumq.cli.main import COMMANDS

    named = set()
    # Captions in the architecture may name commands that are still being built.
    documents = set((REPOSITORY / "docs").glob("*.md")) - {REPOSITORY / "docs" / "architecture.md"}
    for path in [REPOSITORY / "README.md", *documents]:
        named |= set(
            re.findall(r"^(?:\S*/)?zhumq ([a-z][a-z-]*)", _code(path.read_text()), re.MULTILINE)
        )
    # `zhumq ready` is what a broker prints.
    assert named - {"ready"} <= set(COMMANDS)


def test_every_link_in_the_docs_leads_somewhere() -> None:
    broken: list[str] = []
    for path in [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]:
        for target, section in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", path.read_text()):
            linked = path.parent / target if target else path
            if not linked.exists() or (section and section not in _sections(linked)):
                broken.append(f"{_name(path)}: {target}#{section}")
    assert broken == []


def _sections(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-") for each in headings}


def test_every_reference_leads_somewhere() -> None:
    """Paths, names in modules and decisions, in comments as in docs. A changelog tells what was."""
    exempt = {REPOSITORY / "CHANGELOG.md", REPOSITORY / "tests" / "test_tidy.py"}
    found = [
        f"{_name(path)}: {each}"
        for path in _text_files()
        if path not in exempt
        for each in references.dangling(_read(path))
    ]
    assert found == []


def test_every_step_of_the_journeys_names_a_file_and_a_function() -> None:
    """The check of references then holds each of them to the code."""
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    section = text.partition("## The journeys")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (?!broker |-).*", section, re.MULTILINE)
    step = re.compile(r"\| [\w ]+ \| `[a-z_/]+\.py: [\w.]+` \| .+ \|")
    assert len(rows) > 40
    assert [row for row in rows if not step.fullmatch(row)] == []


@pytest.mark.parametrize(
    "text",
    [
        "`broker/nowhere`", "`tests/unit/nowhere/`", "`docs/nowhere.md`", "see docs/nowhere", "`client/wire.Nothing`",
        "`broker/dispatch.py: Dispatcher.nothing`", "`tests/test_tidy.py::test_nothing`", "`model.nowhere`",
        "`model.state_machine.Nothing`", "decision 9999", "Hazard 6",
    ],
)  # fmt: skip
def test_a_reference_that_leads_nowhere_is_found(text: str) -> None:
    assert references.dangling(f"It is {text}.") != []
    assert (
        references.dangling("See `client/wire.Connection`, `net/`, `model.ids`, decision 0001")
        == []
    )


# Rooms that reach a log, a replica's core or its watchers through `Partition` alone.
ABOVE_REPLICATION = ("broker", "coordinators", "push", "cli")
INSIDE_OF_A_PARTITION = {"log", "driver", "core", "watch", "unwatch"}
# `.log` of these is a file with log lines, `.watch` of those is not a partition's.
OTHER_OWNERS = {"child", "store", "delivery", "sessions", "self"}


def test_no_modules_import_each_other_in_a_circle(tmp_path: Path) -> None:
    assert find_circle(REPOSITORY / "src") == []
    (tmp_path / "a.py").write_text("from typing import TYPE_CHECKING\nimport b\n")
    (tmp_path / "b.py").write_text("if TYPE_CHECKING:\n    import a\n")
    assert find_circle(tmp_path) == []
    for back in ("import a\n", "def later():\n    import a\n"):
        (tmp_path / "b.py").write_text(back)
        assert sorted(set(find_circle(tmp_path))) == ["a", "b"]


def test_partition_is_the_only_way_to_a_log() -> None:
    found = []
    for room in ABOVE_REPLICATION:
        for path in sorted((SOURCE / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and node.attr in INSIDE_OF_A_PARTITION:
                    owner = ast.unparse(node.value).rpartition(".")[2].lstrip("_")
                    if owner not in OTHER_OWNERS:
                        found.append(f"{_name(path)}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


def test_tests_use_no_more_private_attributes_than_before() -> None:
    """A test that needs fewer of them than the list says lowers the number in the list."""
    assert private_attributes.found() == private_attributes.KNOWN


def test_no_retired_word_is_used() -> None:
    """docs/glossary.md says which words are used instead."""
    assert retired_words.find(retired_words.everything()) == []


# Spelled in two halves, so that this file does not find itself.
@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME", "XX" + "X:"])
def test_nothing_is_left_for_later_in_a_comment(word: str) -> None:
    pattern = re.compile(rf"\b{re.escape(word)}")
    assert [_name(path) for path in _text_files() if pattern.search(_read(path))] == []


@pytest.mark.parametrize("place", ["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/"])
def test_no_path_of_one_machine_is_written_down(place: str) -> None:
    assert [_name(path) for path in _text_files() if place in _read(path)] == []


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    requirements = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        requirements += extra
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[\w.-]+==[\w.+!-]+", line)] == []
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in pins}
    names = {re.match(r"[\w.-]+", each).group().lower() for each in requirements}  # type: ignore[union-attr]
    assert names <= pinned


def _code(text: str) -> str:
    """What stands in code blocks and code words; one piece a line."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    words = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    indented = re.findall(r"^ {4}(.*)$", text, re.MULTILINE)
    lines = "\n".join([*blocks, *words, *indented]).splitlines()
    return "\n".join(line.strip().removeprefix("$ ") for line in lines)


def _read(path: Path) -> str:
    return path.read_text(errors="replace")
