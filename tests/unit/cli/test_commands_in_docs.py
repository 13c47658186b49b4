"""Every command line in the docs names commands and options that exist, also where the line is not run."""

import re
import shlex
from pathlib import Path
from typing import Any

import typer

from zhumq.cli.main import COMMANDS, app

REPOSITORY = Path(__file__).resolve().parents[3]
# What they say is generated from the commands, or is about what was and may be.
EXEMPT = {"docs/reference/cli.md", "docs/architecture.md", "CHANGELOG.md"}


def command_lines(text: str) -> list[str]:
    """Lines that begin with zhumq, in blocks and indented; a line that ends with a backslash goes on in the next."""
    joined = re.sub(r"\\\n\s*", " ", text)
    found = re.findall(r"^(?: {4})?(?:\.venv/bin/)?(zhumq [a-z].*)$", joined, re.MULTILINE)
    return [line for line in found if line.split()[1] in COMMANDS]


def resolve(line: str) -> tuple[Any, list[str]]:
    """The innermost command of a line, and the words behind it."""
    # What a pipe leads to, and synopses in brackets, are not of this command.
    line = re.split(r"\s[|>#&;]\s?|\s2>", line)[0].replace("[", " ").replace("]", " ")
    _, name, *words = shlex.split(line.replace("'", "").replace('"', ""))
    command: Any = typer.main.get_command(app).get_command(None, name)  # type: ignore[attr-defined]
    while words and getattr(command, "commands", None):
        assert words[0].partition("|")[0] in command.commands, f"no such command: {line}"
        command = command.commands[words.pop(0).partition("|")[0]]
    return command, words


def test_every_command_line_in_the_docs_has_options_that_exist() -> None:
    wrong: list[str] = []
    seen = 0
    for page in [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]:
        name = page.relative_to(REPOSITORY).as_posix()
        if name in EXEMPT or "/decisions/" in name:
            continue
        for line in command_lines(page.read_text()):
            seen += 1
            command, words = resolve(line)
            known = {option for each in command.params for option in each.opts}
            known |= {option for each in command.params for option in each.secondary_opts}
            options = [word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)]
            wrong += [
                f"{name}: {line}: {each}" for each in options if each not in {*known, "--help"}
            ]
    assert wrong == []
    assert seen > 100


def test_a_wrong_option_is_found() -> None:
    command, words = resolve("zhumq topic create orders --partition 3")
    assert words == ["orders", "--partition", "3"]
    assert "--partition" not in {option for each in command.params for option in each.opts}
    assert command_lines("    zhumq start --listen x \\\n        --insecure\n") == [
        "zhumq start --listen x  --insecure"
    ]
