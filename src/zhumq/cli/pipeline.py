"""`zhumq pipeline`: run pipeline files on Spark, list them, and show the state of runs."""

import importlib.util
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from zhumq.cli.options import CommandFailed, JsonOption, parse_settings
from zhumq.cli.output import headings, print_json, print_note, print_table
from zhumq.cli.pipeline_display import count_words
from zhumq.cli.pipeline_options import (
    BootstrapOption,
    CheckpointsOption,
    ConfigOption,
    FileArgument,
    SetOption,
    SinksOption,
    StateDirOption,
    StreamOptions,
    YesOption,
    program,
    security_in,
)
from zhumq.pipelines.library_files import shipped
from zhumq.pipelines.status import STATE_DIR_DEFAULT, StatusFile, known_runs

app = typer.Typer(help="Run data pipelines on Spark.", no_args_is_help=True)


@app.command()
def run(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE.yml...", help="Files, or names of `zhumq pipeline list`."),
    ],
    values: SetOption = None,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Spark's master, e.g. spark://host:7077.")
    ] = "local[*]",
    bootstrap: BootstrapOption = None,
    config: ConfigOption = None,
    state_dir: StateDirOption = Path(STATE_DIR_DEFAULT),
    checkpoints: CheckpointsOption = None,
    publish: Annotated[
        bool,
        typer.Option(
            "--publish",
            envvar="ZHUMQ_PIPELINES_PUBLISH",
            show_envvar=False,
            help="Publish the progress to the topic _pipelines: the console shows it.",
        ),
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Run now and end, whatever the schedule in the file.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run pipelines, one after the other, in one Spark session; with a `schedule`, at its times until a stop.

    Ctrl-C or SIGTERM finishes the current batch and ends with exit code 0; a second Ctrl-C does
    not wait. Exit codes: 1 the run failed, 2 the file is wrong, 3 the data is wrong (audit).
    """
    code = program("pipeline_run").run_files(
        files,
        parse_settings(values or []),
        master=master,
        bootstrap=bootstrap,
        security=security_in(config),
        state_dir=state_dir,
        checkpoint_root=checkpoints,
        as_json=as_json,
        publish=publish,
        once=once,
    )
    raise typer.Exit(code)


@app.command()
def check(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE.yml...", help="Files, or names of `zhumq pipeline list`."),
    ],
    values: SetOption = None,
) -> None:
    """Find mistakes in pipeline files and their tests, without Spark and without a broker.

    Exit code: 2 a file is wrong. `preview` finds what only Spark knows, such as a missing column.
    """
    raise typer.Exit(program("pipeline_check").check_files(files, parse_settings(values or [])))


@app.command()
def deploy(
    file: FileArgument,
    master: Annotated[
        str, typer.Option(metavar="URL", help="A cluster: spark://host:7077, yarn or k8s://...")
    ],
    values: SetOption = None,
    python: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="The Python of the workers, and on this machine: of the version that runs this command.",
        ),
    ] = "python3",
    bootstrap: BootstrapOption = None,
    config: ConfigOption = None,
    state_dir: StateDirOption = Path(STATE_DIR_DEFAULT),
    checkpoints: CheckpointsOption = None,
    image: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The image of Kubernetes' pods, with --print."),
    ] = None,
    upload: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where Kubernetes' pods get files from, with --print."),
    ] = None,
    prints: Annotated[
        bool, typer.Option("--print", help="Print the spark-submit line for yarn or k8s://.")
    ] = False,
) -> None:
    """Run a pipeline on a cluster whose workers have only Spark and Python: zhumq is shipped.

    Exit codes are those of `zhumq pipeline run`.
    """
    code = program("pipeline_deploy").deploy_file(
        file,
        parse_settings(values or []),
        master=master,
        python=python,
        bootstrap=bootstrap,
        config=config,
        security=security_in(config),
        state_dir=state_dir,
        checkpoints=checkpoints,
        image=image,
        upload=upload,
        prints=prints,
    )
    raise typer.Exit(code)


@app.command("test")
def run_tests(
    file: FileArgument,
    values: SetOption = None,
    tests: Annotated[
        Path | None,
        typer.Option(metavar="FILE.yml", help="Other tests than those of NAME.tests.yml."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run the tests of a pipeline: given rows, expected rows. Needs no broker.

    Exit codes: 1 a test failed, 2 the file is wrong.
    """
    code = program("pipeline_trial").run_tests(
        file, parse_settings(values or []), tests=tests, as_json=as_json
    )
    raise typer.Exit(code)


@app.command()
def preview(
    file: FileArgument,
    values: SetOption = None,
    rows: Annotated[int, typer.Option(min=1, max=1000, help="How many rows to show.")] = 5,
    records: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="How many records of each source to read.")
    ] = 1000,
    plans: Annotated[bool, typer.Option("--plan", help="Show Spark's plan of each sink.")] = False,
    bootstrap: BootstrapOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the first rows and the columns after each step, without writing anything.

    Exit codes: 1 a step would fail, 2 the file is wrong.
    """
    code = program("pipeline_trial").preview_file(
        file,
        parse_settings(values or []),
        rows=rows,
        records=records,
        plans=plans,
        bootstrap=bootstrap,
        security=security_in(config),
        as_json=as_json,
    )
    raise typer.Exit(code)


@app.command()
def graph(
    file: FileArgument,
    values: SetOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.svg", help="Default: stdout.")
    ] = None,
) -> None:
    """Draw what a pipeline reads, does and writes, as SVG."""
    code = program("pipeline_graph").draw_file(file, parse_settings(values or []), output=output)
    raise typer.Exit(code)


@app.command()
def reset(
    pipeline: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE.yml",
            help="A pipeline that has run, or its file. It must be stopped.",
        ),
    ],
    values: SetOption = None,
    sinks: SinksOption = None,
    place: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="earliest, latest, a time (2026-01-31T09:00:00Z) or @MILLISECONDS;"
            " where the file begins if left out.",
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    config: ConfigOption = None,
    state_dir: StateDirOption = Path(STATE_DIR_DEFAULT),
    checkpoints: CheckpointsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen, and change nothing.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Forget how far a pipeline has read, so that its next run begins elsewhere.

    Says first which messages are read again and what each sink gets twice. Old checkpoints are kept aside.
    """
    code = program("pipeline_reset").reset_pipeline(
        pipeline,
        StreamOptions.of(values, bootstrap, config, state_dir, checkpoints),
        sinks=sinks or [],
        place=place,
        yes=yes,
        dry_run=dry_run,
        as_json=as_json,
    )
    raise typer.Exit(code)


@app.command()
def backfill(
    file: FileArgument,
    values: SetOption = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="The first message: a time (2026-01-31T09:00:00Z), @MILLISECONDS, earliest, or"
            " TOPIC:PARTITION:OFFSET,...",
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="The first message that is not in the range: as --from, or latest.",
        ),
    ] = None,
    sinks: SinksOption = None,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing", help="Take what is there of a range that is deleted in part."
        ),
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Write once more what a backfill has written.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="In Delta tables, in place of the rows of these offsets that are there.",
        ),
    ] = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Give up the backfill that is not finished.")
    ] = False,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Spark's master, e.g. spark://host:7077.")
    ] = "local[*]",
    bootstrap: BootstrapOption = None,
    config: ConfigOption = None,
    state_dir: StateDirOption = Path(STATE_DIR_DEFAULT),
    checkpoints: CheckpointsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen, and change nothing.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Process a past range of a pipeline's topics again, beside the running stream.

    Says first which offsets are read and what each sink gets. Without a range it goes on with the backfill that was
    stopped, failed or was killed. Exit codes: 1 it failed or was refused, 2 the file is wrong.
    """
    code = program("pipeline_backfill").backfill_pipeline(
        file,
        StreamOptions.of(values, bootstrap, config, state_dir, checkpoints),
        begin=begin,
        end=end,
        sinks=sinks or [],
        allow_missing=allow_missing,
        again=again,
        replace=replace,
        abandon=abandon,
        master=master,
        yes=yes,
        dry_run=dry_run,
        as_json=as_json,
    )
    raise typer.Exit(code)


@app.command()
def upgrade(
    file: FileArgument,
    values: SetOption = None,
    bootstrap: BootstrapOption = None,
    config: ConfigOption = None,
    state_dir: StateDirOption = Path(STATE_DIR_DEFAULT),
    checkpoints: CheckpointsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what it means, and change nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a changed file means for each sink of a stopped pipeline, and let it go on if it can.

    Exit codes: 1 a sink cannot go on from its checkpoint, 2 the file is wrong.
    """
    code = program("pipeline_upgrade").upgrade_pipeline(
        file,
        StreamOptions.of(values, bootstrap, config, state_dir, checkpoints),
        dry_run=dry_run,
        as_json=as_json,
    )
    raise typer.Exit(code)


@app.command()
def upkeep(
    tables: Annotated[
        list[str],
        typer.Argument(metavar="TABLE...", help="Folders of `merge` and `format: delta` tables."),
    ],
    older_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Remove files not needed for so long; 7d if left out."),
    ] = None,
    deletes_older_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Forget deletes of a merge; 30d if left out."),
    ] = None,
    expire: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN=TIME",
            help="Remove partitions whose day in this column is longer ago, as date=90d.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed, and change nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make the files of Delta tables fewer, also while a pipeline writes to them.

    Small files become large ones. A delete that is forgotten cannot stop an older change of its key.
    """
    for package in ("deltalake", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            raise CommandFailed(f"the upkeep of tables needs {package}: pip install 'zhumq[delta]'")
    importlib.import_module("zhumq.cli.pipeline_upkeep").keep_up_tables(
        tables,
        older_than=older_than,
        deletes_older_than=deletes_older_than,
        expire=expire,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command("list")
def list_pipelines(
    state_dir: StateDirOption = Path(STATE_DIR_DEFAULT), as_json: JsonOption = False
) -> None:
    """List the pipelines that come with zhumq, and those that have run here."""
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "state": "comes with zhumq",
            "about": path.read_text().partition("\n")[0].lstrip("# "),
        }
        for name, path in shipped().items()
    ]
    rows += [
        {"name": status.name, "state": str(status.state), "about": status.file}
        for status in known_runs(state_dir)
    ]
    print_table(rows, headings("name state about"), empty="", as_json=as_json)


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="All if left out.")] = None,
    state_dir: StateDirOption = Path(STATE_DIR_DEFAULT),
    as_json: JsonOption = False,
) -> None:
    """Show the state of the last run of each pipeline."""
    if name is None:
        found = known_runs(state_dir)
    else:
        one = StatusFile(state_dir, name).read()
        if one is None:
            raise CommandFailed(f"no pipeline {name!r} has run with {state_dir}: see --state-dir")
        found = [one]
    if as_json:
        print_json([each.document() for each in found])
        return
    rows = [
        {"name": each.name, "state": str(each.state), "sink": sink.name, "batch": sink.batch,
         "rows_in": sink.rows_in, "rows_out": sink.rows_out, "lag": sink.lag,
         "batch_ms": sink.batch_ms, "updated": each.updated_at}
        for each in found
        for sink in each.sinks.values()
    ]  # fmt: skip
    columns = headings("name state sink batch rows_in rows_out lag batch_ms updated")
    print_table(rows, columns, empty=f"no pipeline has run with {state_dir}")
    for each in found:
        if any(each.counts.values()):
            sys.stdout.write(f"{each.name}: {count_words(each)}\n")
        for read in each.reads:
            sys.stdout.write(f"{each.name}: {read.words()}\n")
        for step, table in each.tables.items():
            sys.stdout.write(f"{each.name}: step {step}: {table.words()}\n")
        for sink in each.sinks.values():
            if sink.error is not None:
                sys.stdout.write(f"{each.name}: sink {sink.name} fails: {sink.error}\n")
        if each.error is not None:
            sys.stdout.write(f"{each.name}: {each.error}\n")


@app.command()
def copy(
    name: Annotated[str, typer.Argument(metavar="NAME", help="One that comes with zhumq.")],
    target: Annotated[Path | None, typer.Argument(metavar="[FILE.yml]")] = None,
) -> None:
    """Copy a pipeline that comes with zhumq, to change it."""
    known = shipped()
    if name not in known:
        raise CommandFailed(f"zhumq comes with {', '.join(known)}, not {name!r}")
    path = target or Path(f"{name}.yml")
    try:
        with path.open("x") as file:
            file.write(known[name].read_text())
    except FileExistsError:
        raise CommandFailed(f"{path} exists already: name another file") from None
    print_note(f"wrote {path}")
