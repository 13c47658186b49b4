"""The `zhumq` command: loads a subcommand on first use and prints each error as one line."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from zhumq.cli.command_end import end_command
from zhumq.model.errors import ZhumqError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # the exit code of a program that Ctrl-C ended

# A command's module is imported when the command is called: `zhumq start` does not load a client
# library, and `zhumq topic` does not load a broker.
COMMANDS = {
    "start": "zhumq.cli.start",
    "topic": "zhumq.cli.topic",
    "produce": "zhumq.cli.produce",
    "consume": "zhumq.cli.consume",
    "lookup": "zhumq.cli.lookup",
    "group": "zhumq.cli.group",
    "session": "zhumq.cli.session",
    "user": "zhumq.cli.user",
    "acl": "zhumq.cli.acl",
    "quota": "zhumq.cli.quota",
    "transaction": "zhumq.cli.transaction",
    "half": "zhumq.cli.half",
    "schedule": "zhumq.cli.schedule",
    "schema": "zhumq.cli.schema",
    "dlq": "zhumq.cli.dlq",
    "dump-log": "zhumq.cli.dump_log",
    "pipeline": "zhumq.cli.pipeline",
    "sql": "zhumq.cli.sql",
    "audit": "zhumq.cli.audit",
    "web": "zhumq.cli.web",
    "ui": "zhumq.cli.ui",
    "doctor": "zhumq.cli.doctor",
    "demo": "zhumq.cli.demo",
    "zookeeper": "zhumq.cli.zookeeper",
    "cluster": "zhumq.cli.cluster",
    "tls": "zhumq.cli.tls",
}


class Commands(TyperGroup):
    """The commands, each loaded on first use."""

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(import_module(COMMANDS[cmd_name]).app)
        command.name = cmd_name
        return command


app = typer.Typer(
    name="zhumq",
    cls=Commands,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        sys.stdout.write(f"zhumq {import_module('zhumq').__version__}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """A message queue that speaks the Kafka wire protocol."""
    del version
    if context.invoked_subcommand is None:
        context.get_help()
        raise typer.Exit(EXIT_USAGE)


def run(arguments: Sequence[str]) -> int:
    """Run one command line. The exit code is 0 only for success."""
    try:
        code = app(args=list(arguments), prog_name="zhumq", standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "zhumq"
        message = error.format_message().strip().rstrip(".")
        _print_error(f"{message[:1].lower()}{message[1:]} (see `{command} --help`)")
        return EXIT_USAGE
    except typer.Abort:
        return EXIT_INTERRUPTED
    except ZhumqError as error:
        _print_error(str(error))
        return EXIT_FAILED
    except OSError as error:
        _print_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return EXIT_FAILED
    finally:
        end_command()
    return code if isinstance(code, int) else 0


def main() -> None:
    """The entry point of the `zhumq` program."""
    sys.exit(run(sys.argv[1:]))


def _print_error(message: str) -> None:
    """Print an error as one line, as programs that read stderr expect."""
    sys.stderr.write(f"zhumq: {' '.join(message.split())}\n")
