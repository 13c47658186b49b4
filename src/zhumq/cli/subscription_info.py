"""Subscription groups as table rows: modes, claims, positions and consumers."""

from typing import TYPE_CHECKING, Any

from zhumq.cli.output import print_note
from zhumq.client.admin import Admin
from zhumq.client.errors import ClientError, PushUnavailable

if TYPE_CHECKING:
    from zhumq.client.subscription_groups import SubscriptionGroup


def subscription_groups(bootstrap: str, group: str = "") -> "dict[str, SubscriptionGroup]":
    """The subscription groups; empty if the brokers have no push listener, which reports them."""
    with Admin(bootstrap) as admin:
        try:
            return admin.subscription_groups(group)
        except PushUnavailable:
            return {}
        except ClientError as error:
            # The groups that Kafka's requests list are shown all the same.
            print_note(f"subscription groups are not shown: {error}")
            return {}


def claim_of(bootstrap: str, topic: str) -> "tuple[str, str] | None":
    """The group that reads a topic point-to-point, and its mode."""
    for name, group in subscription_groups(bootstrap).items():
        if topic in group.claims:
            return name, group.mode or ""
    return None


def state_of(group: "SubscriptionGroup") -> str:
    """The state as Kafka's tools name it."""
    is_read = group.consumers or any(each.consumers for each in group.partitions)
    return "Stable" if is_read else "Empty"


def mode_of(group: "SubscriptionGroup", kind: str) -> str:
    """The mode; `share` if only Kafka's share consumers read. An ordered group without a claim is psb."""
    if group.mode is not None:
        return group.mode
    return "share" if kind == "Share" else "psb"


def subscription_members(group: "SubscriptionGroup") -> list[dict[str, Any]]:
    """The connected consumers, or else the consumers that hold partitions."""
    clients: dict[str, str | None] = {each.consumer: each.client_id for each in group.consumers}
    names = clients or {name: None for each in group.partitions for name in each.consumers}
    return [
        {
            "member": name,
            "client": client,
            "host": None,
            "static_id": None,
            "partitions": sum(
                any(holder == name or holder.startswith(f"{name}.") for holder in each.consumers)
                for each in group.partitions
            ),
        }
        for name, client in sorted(names.items())
    ]


def subscription_offsets(
    group: "SubscriptionGroup", committed: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Rows by partition with the group's position, which may be ahead of its committed offsets."""
    rows = {
        (row["topic"], row["partition"]): row | {"in_flight": 0, "consumers": []}
        for row in committed
    }
    for each in group.partitions:
        known = rows.get((each.topic, each.partition), {})
        rows[each.topic, each.partition] = {
            "topic": each.topic,
            "partition": each.partition,
            "committed": each.start_offset,
            "latest": known.get("latest") if each.end_offset is None else each.end_offset,
            "lag": known.get("lag") if each.lag is None else each.lag,
            "member": known.get("member"),
            "in_flight": each.in_flight,
            "consumers": list(each.consumers),
        }
    return [rows[key] for key in sorted(rows)]
