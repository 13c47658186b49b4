"""`zhumq user`: list, create and delete users, and set their passwords."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zhumq.admin import users as admin
from zhumq.admin.connection import ClusterConnection
from zhumq.cli.client import connect
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandFailed,
    JsonOption,
    SecurityOption,
    parse_settings,
)
from zhumq.cli.output import headings, print_note, print_table
from zhumq.cli.passwords import password_of
from zhumq.client.security import ClientSecurity
from zhumq.model.password import Password

if TYPE_CHECKING:
    from zhumq.broker.users import StoredUsers

app = typer.Typer(
    no_args_is_help=True, help="Users, who authenticate with PLAIN or SCRAM and a password."
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the user.")]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file", metavar="FILE", help="A file whose first line is the password."
    ),
]
PasswordOption = Annotated[
    str | None,
    typer.Option(
        "--password",
        metavar="REFERENCE",
        help="A reference such as '${env:NAME}' or '${file:PATH}'; without it: asked for.",
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Instead of a running broker: the data directory of a stopped one."
    ),
]
BrokerIdOption = Annotated[
    int, typer.Option(metavar="N", help="With --data-dir: the id of that broker.")
]
ZookeeperOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT,.../PATH",
        help="Instead of a running broker: the ZooKeeper ensemble of the cluster.",
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="With --zookeeper: settings for it, as for a broker."
    ),
]


class _Place:
    """Where the users are: a running broker, a data folder, or ZooKeeper."""

    def __init__(
        self,
        bootstrap: str,
        security: ClientSecurity | None,
        data_dir: Path | None,
        broker_id: int,
        zookeeper: str | None,
        settings: list[str] | None,
    ) -> None:
        if data_dir is not None and zookeeper is not None:
            raise CommandFailed("give --data-dir or --zookeeper, not both")
        self.is_stored = data_dir is not None or zookeeper is not None
        self._bootstrap = bootstrap
        self._security = security
        self._data_dir = data_dir
        self._broker_id = broker_id
        self._zookeeper = zookeeper
        self._settings = settings or []

    def run(
        self,
        online: Callable[[ClusterConnection], None],
        stored: Callable[["StoredUsers"], Awaitable[None]],
    ) -> None:
        if self.is_stored:
            asyncio.run(self._run_stored(stored))
        else:
            with connect(self._bootstrap, self._security) as connection:
                online(connection)

    async def _run_stored(self, work: Callable[["StoredUsers"], Awaitable[None]]) -> None:
        # Imported here: a command that talks to a broker does not load one.
        from zhumq.broker.config import DEFAULT_DATA_DIR, BrokerConfig  # noqa: PLC0415
        from zhumq.broker.users import stored_users  # noqa: PLC0415

        config = BrokerConfig.load(
            data_dir=self._data_dir or DEFAULT_DATA_DIR,
            broker_id=self._broker_id,
            zookeeper=self._zookeeper,
            settings=parse_settings(self._settings),
        )
        async with stored_users(config) as users:
            await work(users)


@app.command("list")
def list_users(
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
    data_dir: DataDirOption = None,
    broker_id: BrokerIdOption = 0,
    zookeeper: ZookeeperOption = None,
    settings: SettingsOption = None,
) -> None:
    """List the users and how they can authenticate, beside PLAIN."""
    found: list[admin.User] = []

    async def stored(users: "StoredUsers") -> None:
        found.extend(
            admin.User(user=name, mechanisms=mechanisms)
            for name, mechanisms in users.names().items()
        )

    place = _Place(bootstrap, security, data_dir, broker_id, zookeeper, settings)
    place.run(lambda connection: found.extend(admin.list_users(connection)), stored)
    rows = [asdict(each) for each in found]
    empty = "no users yet: `zhumq user create NAME`"
    print_table(rows, headings("user mechanisms"), empty=empty, as_json=as_json)


@app.command()
def create(
    name: NameArgument,
    password_file: PasswordFileOption = None,
    password: PasswordOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
    data_dir: DataDirOption = None,
    broker_id: BrokerIdOption = 0,
    zookeeper: ZookeeperOption = None,
    settings: SettingsOption = None,
) -> None:
    """Create a user. The password is asked for, or read from a file or a reference."""
    place = _Place(bootstrap, security, data_dir, broker_id, zookeeper, settings)
    secret = _password(name, password_file, password)
    place.run(
        lambda connection: admin.create_user(connection, name, secret),
        lambda users: users.create(name, secret),
    )
    print_note(f"created user {name}")


@app.command()
def passwd(
    name: NameArgument,
    password_file: PasswordFileOption = None,
    password: PasswordOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
    data_dir: DataDirOption = None,
    broker_id: BrokerIdOption = 0,
    zookeeper: ZookeeperOption = None,
    settings: SettingsOption = None,
) -> None:
    """Set the password of a user. Connections that are open stay open."""
    place = _Place(bootstrap, security, data_dir, broker_id, zookeeper, settings)
    secret = _password(name, password_file, password)
    place.run(
        lambda connection: admin.set_password(connection, name, secret),
        lambda users: users.set_password(name, secret),
    )
    print_note(f"set the password of user {name}")


@app.command()
def delete(
    name: NameArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    security: SecurityOption = None,
    data_dir: DataDirOption = None,
    broker_id: BrokerIdOption = 0,
    zookeeper: ZookeeperOption = None,
    settings: SettingsOption = None,
) -> None:
    """Delete a user. Connections that are open stay open."""
    place = _Place(bootstrap, security, data_dir, broker_id, zookeeper, settings)
    place.run(
        lambda connection: admin.delete_user(connection, name),
        lambda users: users.delete(name),
    )
    print_note(f"deleted user {name}")


def _password(name: str, file: Path | None, reference: str | None) -> Password:
    given = password_of(file=file, reference=reference, option="--password")
    if given is None:
        prompt = f"Password of {name}"
        given = Password(typer.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True))
    return given
