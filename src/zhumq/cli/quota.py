"""`zhumq quota`: set, list and delete client quotas."""

from typing import Annotated, Any, Final

import typer

from zhumq.admin import quotas
from zhumq.cli.client import connect
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandFailed,
    JsonOption,
    SecurityOption,
)
from zhumq.cli.output import headings, print_note, print_table

app = typer.Typer(no_args_is_help=True, help="How much clients may use.")

# The options of the quotas, and Kafka's names of these.
_NAMES: Final = {
    "produce": "producer_byte_rate",
    "fetch": "consumer_byte_rate",
    "request": "request_percentage",
    "connections": "connection_creation_rate",
}

UserOption = Annotated[str | None, typer.Option("--user", metavar="NAME", help="Of this user.")]
ClientOption = Annotated[
    str | None, typer.Option("--client-id", metavar="ID", help="Of clients with this id.")
]
AddressOption = Annotated[
    str | None, typer.Option("--ip", metavar="ADDRESS", help="Of connections from this address.")
]
DefaultUserOption = Annotated[
    bool, typer.Option("--default-user", help="Of each user without a quota of its own.")
]
DefaultClientOption = Annotated[
    bool, typer.Option("--default-client-id", help="Of each client id without one of its own.")
]
DefaultAddressOption = Annotated[
    bool, typer.Option("--default-ip", help="Of each address without one of its own.")
]


@app.command("set")
def set_quotas(
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientOption = None,
    default_client_id: DefaultClientOption = False,
    ip: AddressOption = None,
    default_ip: DefaultAddressOption = False,
    produce: Annotated[
        int | None, typer.Option(metavar="BYTES", min=1, help="Bytes produced a second.")
    ] = None,
    fetch: Annotated[
        int | None, typer.Option(metavar="BYTES", min=1, help="Bytes fetched a second.")
    ] = None,
    request: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", help="Percentage of a broker's time for its requests."),
    ] = None,
    connections: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Connections opened a second; for --ip only."),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Set quotas, each for every broker. `--user` with `--client-id`: of that user's clients with that id."""
    entity = _entity((user, default_user), (client_id, default_client_id), (ip, default_ip))
    given = {"produce": produce, "fetch": fetch, "request": request, "connections": connections}
    changes = {_NAMES[name]: value for name, value in given.items() if value is not None}
    if not changes:
        raise CommandFailed("no quota is given: add --produce, --fetch, --request or --connections")
    quotas.alter_quotas(connect(bootstrap, security), entity, changes)
    print_note(f"set {', '.join(changes)} of {_words(entity)}")


@app.command()
def delete(
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientOption = None,
    default_client_id: DefaultClientOption = False,
    ip: AddressOption = None,
    default_ip: DefaultAddressOption = False,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Only this kind: produce, fetch, request, connections. Default: all.",
        ),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """Delete quotas: the next less specific ones apply."""
    entity = _entity((user, default_user), (client_id, default_client_id), (ip, default_ip))
    for kind in quota or ():
        if kind not in _NAMES:
            raise CommandFailed(f"there is no quota {kind!r}: {', '.join(_NAMES)}")
    connection = connect(bootstrap, security)
    present = [each.quotas for each in quotas.list_quotas(connection) if each.entity == entity]
    names = [_NAMES[kind] for kind in quota] if quota else [key for each in present for key in each]
    if not present or not set(names) <= set(present[0]):
        raise CommandFailed(f"{_words(entity)} has no such quota: see `zhumq quota list`")
    quotas.alter_quotas(connection, entity, dict.fromkeys(names))
    print_note(f"deleted {', '.join(names)} of {_words(entity)}")


@app.command("list")
def list_quotas(
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
) -> None:
    """List all quotas."""
    rows: list[dict[str, Any]] = [
        {
            "entity": each.entity if as_json else _words(each.entity),
            **{option: _number(each.quotas.get(name)) for option, name in _NAMES.items()},
        }
        for each in quotas.list_quotas(connect(bootstrap, security))
    ]
    rows.sort(key=lambda row: str(row["entity"]))
    columns = headings("entity produce fetch request connections", entity="OF")
    print_table(rows, columns, empty="no quotas", as_json=as_json)


def _entity(
    user: tuple[str | None, bool], client_id: tuple[str | None, bool], ip: tuple[str | None, bool]
) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for kind, (name, is_default) in (("client-id", client_id), ("ip", ip), ("user", user)):
        if name is not None and is_default:
            raise CommandFailed(
                f"--{kind} and --default-{kind} exclude each other: give one of them"
            )
        if name is not None or is_default:
            entity[kind] = name
    if not entity:
        raise CommandFailed("of whom? Add --user, --client-id or --ip, or --default-user and so on")
    return entity


def _words(entity: quotas.Entity) -> str:
    return ", ".join(
        f"default {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items()
    )


def _number(value: float | None) -> float | None:
    return int(value) if value is not None and value.is_integer() else value
