"""The program as a whole: help, errors in one line, exit codes."""

import pytest

from zhumq.cli.main import COMMANDS, EXIT_FAILED, EXIT_USAGE, run
from zhumq.host.ports import free_ports


def test_without_a_command_the_usage_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == EXIT_USAGE
    assert "Usage: zhumq" in capsys.readouterr().out


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert f"Usage: zhumq {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["frob"], "no such command 'frob' (see `zhumq --help`)"),
        (["topic"], "missing command (see `zhumq topic --help`)"),
        (["topic", "create"], "missing argument 'NAME' (see `zhumq topic create --help`)"),
        (["consume", "t", "--frob"], "no such option: --frob"),
        (["topic", "create", "t", "--partitions", "0"], "'--partitions'"),
        (["produce", "t", "--acks", "2"], "'--acks'"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == EXIT_USAGE
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("zhumq: ")
    assert output.err.count("\n") == 1
    assert expected in output.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["topic", "create", "t"],
        ["topic", "describe", "t"],
        ["topic", "alter", "t", "--partitions", "2"],
        ["topic", "delete", "t"],
        ["group", "list"],
        ["group", "describe", "g"],
        ["group", "reset", "g", "--topic", "t", "--to", "earliest"],
        ["group", "delete", "g"],
        ["consume", "t"],
        ["produce", "t"],
    ],
)
def test_without_a_broker_every_command_prints_what_to_do(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = f"127.0.0.1:{free_ports(1)[0]}"
    assert run([*arguments, "--bootstrap", bootstrap]) == EXIT_FAILED
    assert capsys.readouterr().err == (
        f"zhumq: no broker at {bootstrap} (Connection refused): start one with `zhumq start`, "
        "or name another with --bootstrap HOST:PORT\n"
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["consume", "t", "--group", "g", "--from", "5"], "`zhumq group reset g --topic t"),
        (
            ["consume", "t", "--group", "g", "--partition", "0"],
            "--partition and --group need --mode",
        ),
        (["consume", "t", "--group", ""], "--group cannot be empty"),
        (["consume", "t", "--from", "noon"], "--from takes earliest"),
        (["produce", "t", "--json", "--key-separator", ":"], "JSON lines name their key"),
        (["produce", "t", "--key-separator", ""], "cannot be empty"),
        (["topic", "alter", "t"], "nothing to alter"),
        (["topic", "list", "--bootstrap", "nowhere:x"], "--bootstrap 'nowhere:x' is not HOST:PORT"),
        (["start", "--set", "no.such.setting=1"], "no.such.setting"),
        (["start", "--set", "num.partitions=many"], "num.partitions"),
        (["start", "--listen", "nonsense"], "--listen"),
        (["start", "--listen", "0.0.0.0:0"], "--insecure"),
        (["start", "--config", "no-such-file.toml"], "no-such-file.toml"),
    ],
)
def test_invalid_options_are_refused_in_one_line(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == EXIT_FAILED
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert expected in error
