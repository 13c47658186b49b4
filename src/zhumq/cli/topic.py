"""`zhumq topic`: create, list, describe, alter, release and delete topics."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from zhumq.cli import completion
from zhumq.cli.client import Cluster, TopicExists, kafka_errors
from zhumq.cli.options import (
    DEFAULT_BOOTSTRAP,
    INT32_MAX,
    BootstrapOption,
    CommandFailed,
    JsonOption,
    parse_settings,
)
from zhumq.cli.output import print_facts, print_json, print_note, print_table
from zhumq.cli.positions import EARLIEST, LATEST, Position, resolve_offsets
from zhumq.cli.subscription import client_errors
from zhumq.cli.subscription_info import claim_of
from zhumq.client.admin import Admin
from zhumq.model.replication_mode import MODES_SETTING, Mode, read_modes

app = typer.Typer(help="Create, list, describe, alter and delete topics.")

BROKER_DEFAULT = -1  # the protocol's value for the broker's default

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The topic.", autocompletion=completion.topics)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A topic setting, such as retention.ms=60000."),
]


@app.command()
def create(
    name: NameArgument,
    partitions: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=INT32_MAX, help="Default: the broker's setting."),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=INT32_MAX, help="Default: the broker's setting."),
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="The replication mode. Default: the broker's setting.")
    ] = None,
    settings: SetOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists already.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Create a topic."""
    cluster = Cluster(bootstrap)

    chosen = parse_settings(settings or [])
    if mode is not None:
        chosen["replication.mode"] = mode
    try:
        with kafka_errors(f"create {name!r}"):
            topic = NewTopic(
                name,
                num_partitions=partitions or BROKER_DEFAULT,
                replication_factor=replicas or BROKER_DEFAULT,
                config=chosen,
            )
        cluster.create_topic(topic)
    except TopicExists:
        if not if_not_exists:
            raise
        print_note(f"topic {name} exists already")
        return
    print_note(f"created topic {name}")


@app.command("list")
def list_command(
    internal: Annotated[
        bool, typer.Option("--internal", help="Also the internal topics of the brokers.")
    ] = False,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """List the topics."""
    metadata = Cluster(bootstrap).metadata()
    rows: list[dict[str, Any]] = []
    for name, topic in sorted(metadata.topics.items()):
        if name.startswith("__") and not internal:
            continue
        replicas = max((len(entry.replicas) for entry in topic.partitions.values()), default=0)
        rows.append({"topic": name, "partitions": len(topic.partitions), "replicas": replicas})
    if as_json:
        print_json(rows)
    else:
        headings = {"topic": "TOPIC", "partitions": "PARTITIONS", "replicas": "REPLICAS"}
        print_table(
            rows, headings, empty="no topics yet: create one with `zhumq topic create NAME`"
        )


@app.command()
def describe(
    name: NameArgument,
    as_json: JsonOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Show a topic's partitions, offsets and settings."""
    cluster = Cluster(bootstrap)
    topic = cluster.describe_topic(name)
    numbers = [entry.id for entry in topic.partitions]
    earliest = resolve_offsets(cluster, name, numbers, Position(edge=EARLIEST))
    latest = resolve_offsets(cluster, name, numbers, Position(edge=LATEST))
    entries = _settings(cluster, name)
    modes = _modes(entries, numbers)
    partitions = [
        {
            "partition": entry.id,
            "leader": entry.leader.id if entry.leader is not None else None,
            "replicas": [node.id for node in entry.replicas],
            "in_sync": [node.id for node in entry.isr],
            **modes[entry.id],
            "earliest": earliest[entry.id],
            "latest": latest[entry.id],
            "messages": latest[entry.id] - earliest[entry.id],
        }
        for entry in sorted(topic.partitions, key=lambda entry: entry.id)
    ]
    settings = _changed(entries)
    # Kafka's tools write an id in the URL-safe base64 alphabet.
    topic_id = str(topic.topic_id).replace("+", "-").replace("/", "_")
    claim = claim_of(bootstrap, name)
    if as_json:
        document = {
            "topic": name,
            "topic_id": topic_id,
            "point_to_point": None if claim is None else {"group": claim[0], "mode": claim[1]},
            "settings": settings,
            "partitions": partitions,
        }
        print_json(document)
        return
    whose = {} if claim is None else {"point-to-point": f"group {claim[0]} ({claim[1]})"}
    print_facts({"topic": name, "topic id": topic_id, **whose, **settings})
    headings = {
        "partition": "PARTITION",
        "leader": "LEADER",
        "replicas": "REPLICAS",
        "in_sync": "IN SYNC",
        **({"mode": "MODE"} if any(row["mode"] for row in partitions) else {}),
        "earliest": "EARLIEST",
        "latest": "LATEST",
        "messages": "MESSAGES",
    }
    for row in partitions:
        if row["mode"] != row["wanted_mode"]:
            row["mode"] = f"{row['mode']} -> {row['wanted_mode']}"
    print_table(partitions, headings, empty="the topic has no partitions")


@app.command()
def release(
    name: NameArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove a group's point-to-point claim on a topic. The group must have no consumers."""
    Cluster(bootstrap).describe_topic(name)
    with client_errors(), Admin(bootstrap) as admin:
        group = admin.release_topic(name)
    print_note(f"topic {name} is no longer read point-to-point by group {group}")


@app.command()
def alter(
    name: NameArgument,
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=INT32_MAX, help="Raise the number of partitions to N."
        ),
    ] = None,
    settings: SetOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="Reset a setting to its default."),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Add partitions, or change settings."""
    if partitions is None and not settings and not unset:
        raise CommandFailed("nothing to alter: give --partitions N, --set KEY=VALUE or --unset KEY")
    changes = parse_settings(settings or [])
    cluster = Cluster(bootstrap)
    cluster.describe_topic(name)

    if changes or unset:
        resource = _topic_resource(name)
        for key, value in changes.items():
            resource.add_incremental_config(
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            )
        known = _settings(cluster, name) if unset else {}
        for key in unset or []:
            # Brokers ignore the deletion of an unknown setting, as Kafka does.
            if key not in known:
                raise CommandFailed(f"cannot unset {key!r}: topics have no such setting")
            resource.add_incremental_config(
                ConfigEntry(key, "", incremental_operation=AlterConfigOpType.DELETE)
            )
        cluster.ask(
            f"change the settings of {name!r}",
            lambda admin, seconds: admin.incremental_alter_configs(
                [resource], request_timeout=seconds
            )[resource].result(),
        )
    if partitions is not None:
        more = [NewPartitions(name, partitions)]
        cluster.change(
            f"add partitions to {name!r}",
            lambda admin, seconds: admin.create_partitions(more, request_timeout=seconds)[
                name
            ].result(),
        )
    print_note(f"altered topic {name}")


@app.command()
def delete(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="The topics.", autocompletion=completion.topics),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete topics with all their messages. Asks first at a terminal."""
    cluster = Cluster(bootstrap)
    for name in names:
        cluster.describe_topic(name)
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {', '.join(names)} and all messages in it?", abort=True, err=True)
    for name in names:
        cluster.delete_topic(name)
        print_note(f"deleted topic {name}")


def _changed(entries: Mapping[str, Any]) -> dict[str, str | None]:
    """The settings of this topic without the defaults."""
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {key: entry.value for key, entry in sorted(entries.items()) if entry.source == own}


def _modes(entries: Mapping[str, Any], partitions: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The current and the target mode of each partition; None if the broker reports none."""
    described = entries.get(MODES_SETTING)
    if described is None:
        return {each: {"mode": None, "wanted_mode": None} for each in partitions}
    modes = read_modes(described.value)
    target = entries["replication.mode"].value
    return {
        # A partition that was just added is not described yet.
        each: {"mode": modes[each] if each < len(modes) else target, "wanted_mode": target}
        for each in partitions
    }


def _settings(cluster: Cluster, name: str) -> dict[str, Any]:
    """All settings of a topic by name, as ConfigEntry, whose type of `source` is wrong."""
    resource = _topic_resource(name)
    found: dict[str, Any] = cluster.ask(
        f"read the settings of {name!r}",
        lambda admin, seconds: admin.describe_configs([resource], request_timeout=seconds)[
            resource
        ].result(),
    )
    return found


def _topic_resource(name: str) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name)
