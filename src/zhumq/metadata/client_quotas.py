"""Plans changes of client quotas, and finds the quotas that a filter describes. Pure."""

import ipaddress
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from zhumq.metadata.security import Quotas, QuotasChanged, SecurityImage
from zhumq.model.errors import InvalidRequest, UnsupportedVersion
from zhumq.security.credential import QuotaEntity
from zhumq.security.quota import CLIENT_ID, IP, USER, QuotaKey

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_FRACTION_MAX: Final = 1e-6  # of a quota that is a whole number, as in Kafka
_WHOLE_MAX: Final = {
    QuotaKey.PRODUCE: INT64_MAX,
    QuotaKey.FETCH: INT64_MAX,
    QuotaKey.CONNECTION: INT32_MAX,
}
# Kafka's limit of what creates and deletes partitions, which is not enforced here.
_NOT_ENFORCED: Final = "controller_mutation_rate"


class Match(IntEnum):
    """How a filter compares the name of an entity, with Kafka's codes."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2  # any name, and the default


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterComponent:
    entity_type: str
    match: int
    name: str | None


def check_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of these types and names. Raises InvalidRequest."""
    named: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(
                f"there are no quotas for {kind!r}: only {USER}, {CLIENT_ID} and {IP}"
            )
        if kind in named:
            raise InvalidRequest(f"{kind} is twice in one entity")
        if name == "":
            raise InvalidRequest(f"the name of a {kind} is empty")
        named[kind] = name
    if not named:
        raise InvalidRequest("the entity of a quota is empty")
    if IP in named:
        if len(named) > 1:
            raise InvalidRequest("an ip has quotas alone, not together with a user or a client id")
        named[IP] = _checked_address(named[IP])
    return tuple(sorted(named.items()))


def plan_quotas(
    image: SecurityImage, entity: QuotaEntity, changes: Mapping[str, float | None]
) -> QuotasChanged | None:
    """Change quotas of an entity; None deletes one. Returns None where nothing changes.

    Raises InvalidRequest.
    """
    kinds = {QuotaKey.CONNECTION} if entity[0][0] == IP else set(QuotaKey) - {QuotaKey.CONNECTION}
    before = image.quotas.get(entity, {})
    after = dict(before)
    for name, value in changes.items():
        if value is None:
            after.pop(name, None)
            continue
        _check_value(name, value, kinds)
        after[name] = value
    return QuotasChanged(entity=entity, quotas=after) if after != before else None


def describe_quotas(
    image: SecurityImage, components: Sequence[FilterComponent], *, strict: bool
) -> list[tuple[QuotaEntity, Quotas]]:
    """The quotas of the entities that the filter matches. Raises InvalidRequest, UnsupportedVersion."""
    matched: dict[str, FilterComponent] = {}
    for component in components:
        _check_component(component)
        if component.entity_type in matched:
            raise InvalidRequest(f"{component.entity_type} is twice in the filter")
        matched[component.entity_type] = component
    if IP in matched and len(matched) > 1:
        raise InvalidRequest("a filter by ip cannot be combined with user or client-id")
    return [
        (entity, quotas)
        for entity, quotas in image.quotas.items()
        if (not strict or len(entity) == len(matched)) and _matches(dict(entity), matched.values())
    ]


def _matches(named: Mapping[str, str | None], components: Iterable[FilterComponent]) -> bool:
    return all(
        each.entity_type in named
        and (each.match == Match.SPECIFIED or named[each.entity_type] == each.name)
        for each in components
    )


def _check_component(component: FilterComponent) -> None:
    if not component.entity_type:
        raise InvalidRequest("an entity type in the filter is empty")
    if component.entity_type not in (USER, CLIENT_ID, IP):
        raise UnsupportedVersion(f"there are no quotas for {component.entity_type!r}")
    if component.match not in list(Match):
        raise InvalidRequest(f"there is no match type {component.match}")
    if (component.match == Match.EXACT) != (component.name is not None):
        raise InvalidRequest("a name in the filter belongs to an exact match, and to no other")


def _check_value(name: str, value: float, kinds: Iterable[QuotaKey]) -> None:
    if name == _NOT_ENFORCED:
        raise InvalidRequest(f"{name} is not enforced by this broker, so it cannot be set")
    if name not in list(kinds):
        raise InvalidRequest(f"{name!r} is no quota here: {', '.join(sorted(kinds))}")
    if not (math.isfinite(value) and value > 0):
        raise InvalidRequest(f"{name} has to be greater than 0")
    largest = _WHOLE_MAX.get(QuotaKey(name))
    if largest is not None and (value > largest or abs(value % 1.0) > _FRACTION_MAX):
        raise InvalidRequest(f"{name} has to be a whole number up to {largest}")


def _checked_address(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        raise InvalidRequest(f"{name!r} is not an IP address") from None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
