"""Options that commands of `zhumq pipeline` share, and the loading of their modules, which need Spark."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from zhumq.cli.options import CONFIG_VARIABLE, CommandFailed, parse_settings
from zhumq.client.security import read_properties

NEEDED_PACKAGES: Final = ("pyspark", "pyarrow", "pandas", "yaml", "fastavro")

StateDirOption = Annotated[
    Path,
    typer.Option(
        metavar="DIR", envvar="ZHUMQ_PIPELINES", show_envvar=False,
        help="The directory of checkpoints, status and Spark's log.",
    ),
]  # fmt: skip

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE.yml", help="A file, or a name of `zhumq pipeline list`.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the file. Repeatable."),
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", envvar="ZHUMQ_BOOTSTRAP", show_envvar=False,
        help="The address of a broker; overrides the file.",
    ),
]  # fmt: skip
ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="FILE.properties", envvar=CONFIG_VARIABLE, show_envvar=False,
        help="Kafka's client.properties with the security settings; overrides the file's security.",
    ),
]  # fmt: skip
CheckpointsOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Another place for checkpoints, e.g. shared storage of a cluster."
    ),
]

SinksOption = Annotated[
    list[str] | None,
    typer.Option("--sink", metavar="SINK", help="Only this sink. Repeatable; all if left out."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What a command about a stream was given: values of its file, its brokers, and where its state is."""

    values: Mapping[str, str]
    bootstrap: str | None
    security: Mapping[str, str] | None
    state_dir: Path
    checkpoint_root: str | None

    @staticmethod
    def of(
        values: list[str] | None,
        bootstrap: str | None,
        config: str | None,
        state_dir: Path,
        checkpoints: str | None,
    ) -> "StreamOptions":
        return StreamOptions(
            values=parse_settings(values or []),
            bootstrap=bootstrap,
            security=security_in(config),
            state_dir=state_dir,
            checkpoint_root=checkpoints,
        )


def security_in(config: str | None) -> Mapping[str, str] | None:
    """The security settings of a file; None: those of the pipeline count."""
    return read_properties(config) if config is not None else None


def program(name: str) -> Any:
    """A module of commands that needs the Spark extra; its import is slow."""
    for package in NEEDED_PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise CommandFailed(
                f"pipelines need Spark, and {package} is not installed: pip install 'zhumq[spark]'"
            )
    return importlib.import_module(f"zhumq.cli.{name}")
