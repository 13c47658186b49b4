"""`zhumq schema`: list, show, register, check and delete the schemas of the registry."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from zhumq.admin import schemas as admin
from zhumq.cli.client import connect
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandFailed,
    JsonOption,
    SecurityOption,
)
from zhumq.cli.output import headings, print_json, print_note, print_table
from zhumq.schemas.schema import Reference, SchemaType

app = typer.Typer(no_args_is_help=True, help="Schemas of the registry: Avro, JSON and Protobuf.")

_TYPES = {".avsc": SchemaType.AVRO, ".json": SchemaType.JSON, ".proto": SchemaType.PROTOBUF}

SubjectArgument = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="The subject, such as orders-value.")
]
FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="The schema: .avsc, .json or .proto; - reads stdin.")
]
VersionOption = Annotated[int | None, typer.Option("--version", metavar="N", min=1, help="This version.")]  # fmt: skip
TypeOption = Annotated[
    SchemaType | None,
    typer.Option("--type", case_sensitive=False, help="Its type, unless the file's name says it."),
]
ReferenceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="A schema that this one uses; may be repeated.",
    ),
]


@app.command("list")
def list_subjects(
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Subjects that begin so.")] = "",
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """List the subjects, with the versions of each."""
    found = admin.list_subjects(connect(bootstrap, security), prefix=prefix)
    rows = [asdict(each) for each in found]
    if not as_json:
        rows = [row | {"versions": _spans(row["versions"])} for row in rows]
    columns = headings("subject type versions latest_id compatibility mode")
    print_table(rows, columns, empty="no schemas", as_json=as_json)


@app.command()
def show(
    subject: SubjectArgument,
    version: VersionOption = None,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Print a schema: the latest version of a subject, or the one with a number."""
    found = admin.show_schema(connect(bootstrap, security), subject, version)
    if as_json:
        print_json(asdict(found))
        return
    sys.stdout.write(found.schema.rstrip("\n") + "\n")
    print_note(f"{found.subject} version {found.version}, {found.type}, id {found.id}")


@app.command()
def register(
    subject: SubjectArgument,
    file: FileArgument,
    type_: TypeOption = None,
    reference: ReferenceOption = None,
    normalize: Annotated[bool, typer.Option(help="Keep it in its normal form.")] = False,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Register a schema as the next version of a subject, unless it is one of its versions."""
    found = admin.register_schema(
        connect(bootstrap, security),
        subject,
        _read(file),
        type_=_type_of(file, type_),
        references=_references(reference),
        normalize=normalize,
    )
    if as_json:
        print_json(asdict(found))
    else:
        print_note(f"{subject} version {found.version} has the id {found.id}")


@app.command()
def check(
    subject: SubjectArgument,
    file: FileArgument,
    type_: TypeOption = None,
    reference: ReferenceOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Say whether a schema could be the next version of a subject, and why not. Registers nothing."""
    reasons = admin.check_schema(
        connect(bootstrap, security),
        subject,
        _read(file),
        type_=_type_of(file, type_),
        references=_references(reference),
    )
    if reasons:
        raise CommandFailed(f"{file} is not compatible: {'; '.join(reasons)}")
    print_note(f"{file} can be the next version of {subject}")


@app.command()
def delete(
    subject: SubjectArgument,
    version: VersionOption = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="Remove what is deleted already, for good.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Delete a subject, or one version: it is found by its id until it is removed with --permanent."""
    deleted = admin.delete_schema(
        connect(bootstrap, security), subject, version, permanent=permanent
    )
    done = "removed" if permanent else "deleted"
    print_note(f"{done} {subject} versions {_spans(deleted)}")


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read {file}: {error}") from None


def _type_of(file: str, type_: SchemaType | None) -> SchemaType:
    found = type_ or _TYPES.get(Path(file).suffix)
    if found is None:
        raise CommandFailed(f"say of which type {file} is: --type {'|'.join(SchemaType)}")
    return found


def _references(pairs: list[str] | None) -> list[Reference]:
    found = []
    for each in pairs or ():
        name, equals, place = each.partition("=")
        subject, colon, version = place.rpartition(":")
        if not (name and equals and subject and colon and version.isdecimal()):
            raise CommandFailed(f"--reference takes NAME=SUBJECT:VERSION, not {each!r}")
        found.append(Reference(name=name, subject=subject, version=int(version)))
    return found


def _spans(versions: "tuple[int, ...] | list[int]") -> str:
    return ", ".join(str(each) for each in versions)
