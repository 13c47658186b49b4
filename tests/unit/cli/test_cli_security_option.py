"""Every command that connects to a broker takes Kafka's client settings."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zhumq.cli.main import COMMANDS, Commands, run
from zhumq.cli.options import CONFIG_VARIABLE


def commands() -> Iterator[tuple[str, Any]]:
    group = Commands(name="zhumq")
    for name in COMMANDS:
        found = group.get_command(None, name)
        for part, command in getattr(found, "commands", {"": found}).items():
            yield f"{name} {part}".strip(), command


def options_of(command: Any) -> dict[str, Any]:
    return {option: each for each in command.params for option in each.opts}


# The REST API connects with the credentials of its callers: a file that has some is refused.
OF_CALLERS = "web"
CONNECTING = [
    name
    for name, command in commands()
    if "--bootstrap" in options_of(command) and name != OF_CALLERS
]


def test_there_are_commands_that_connect() -> None:
    assert {"topic list", "produce", "consume", "user create", "pipeline run"} <= set(CONNECTING)


@pytest.mark.parametrize("name", CONNECTING)
def test_a_command_that_connects_takes_client_properties(name: str) -> None:
    options = options_of(dict(commands())[name])
    assert options["--config"].envvar == CONFIG_VARIABLE


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot read"),
        ("security.protocol=TLS", "security.protocol is one of"),
        ("security.protocol=SASL_SSL", "sasl.mechanism is one of"),
    ],
)
def test_a_wrong_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, why: str
) -> None:
    file = tmp_path / "client.properties"
    if content is not None:
        file.write_text(content)
    assert run(["topic", "list", "--config", str(file)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("zhumq: --config: ")
    assert str(file) in line
    assert why in line
