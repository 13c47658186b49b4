"""Shell completion of commands, options, topics and groups."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import SECONDS_MAX, SOURCE, Cli

PROGRAM = f'#!/bin/sh\nexec {sys.executable} -m zhumq "$@"\n'


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH whose first `zhumq` is this one."""
    program = tmp_path / "zhumq"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def run(arguments: list[str], path: str, **variables: str) -> list[str]:
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(SOURCE), **variables}
    done = subprocess.run(
        arguments, capture_output=True, text=True, env=environment, timeout=SECONDS_MAX, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def bash(words: str, path: str, bootstrap: str = "127.0.0.1:1") -> list[str]:
    """The completions of bash with the script that the program prints."""
    script = (
        'eval "$(zhumq --show-completion)"\n'
        f"COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n"
        '_zhumq_completion zhumq\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    return run(["bash", "-c", script], path, ZHUMQ_BOOTSTRAP=bootstrap)


def test_bash_completes_commands_and_options(path: str) -> None:
    assert bash("zhumq to", path) == ["topic"]
    assert set(bash("zhumq topic de", path)) == {"delete", "delete-records", "describe"}
    assert bash("zhumq topic list --b", path) == ["--bootstrap"]


@pytest.mark.thorough
def test_names_of_topics_and_groups_are_completed(cli: Cli, topic: str, path: str) -> None:
    cli.must("topic", "create", topic)
    cli.must("produce", topic, lines=["x"])
    cli.must("consume", topic, "--group", f"g-{topic}", "--max", "1")
    for words in ("topic describe", "topic delete", "produce", "consume", "dlq show"):
        assert bash(f"zhumq {words} {topic[:-1]}", path, cli.bootstrap) == [topic], words
    assert bash(f"zhumq group describe g-{topic[:-1]}", path, cli.bootstrap) == [f"g-{topic}"]
    # Also with the address from the command line.
    words = f"zhumq topic describe --bootstrap {cli.bootstrap} {topic[:-1]}"
    assert bash(words, path) == [topic]


def test_without_a_broker_completion_is_empty_and_silent(path: str) -> None:
    assert bash("zhumq topic describe a", path) == [""]


def test_zsh_and_fish_are_offered_the_same(path: str) -> None:
    zsh = run(["zhumq"], path, _ZHUMQ_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="zhumq to")
    assert '"topic"' in zsh[0]
    fish = run(
        ["zhumq"],
        path,
        _ZHUMQ_COMPLETE="complete_fish",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        _TYPER_COMPLETE_ARGS="zhumq to",
    )
    assert fish[0].startswith("topic\t")
    # What --show-completion prints in these shells.
    assert "compdef" in "".join(run(["zhumq"], path, _ZHUMQ_COMPLETE="source_zsh"))
    assert "--command zhumq" in "".join(run(["zhumq"], path, _ZHUMQ_COMPLETE="source_fish"))


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_understands_the_script(path: str) -> None:
    script = 'autoload -U compinit && compinit -u\neval "$(zhumq --show-completion)"'
    run(["zsh", "-c", script], path)


def test_completion_is_installed_where_bash_looks_for_it(path: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    # A second command, so that bash does not replace itself with the program.
    run(["bash", "-c", "zhumq --install-completion; true"], path, HOME=str(home))
    assert ".bash_completions/zhumq.sh" in (home / ".bashrc").read_text()
    assert "_zhumq_completion" in (home / ".bash_completions" / "zhumq.sh").read_text()
