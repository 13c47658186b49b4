"""The audit log: who did what, from where, allowed or denied."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta

from zhumq.admin import audit_log
from zhumq.admin.audit_log import AuditPlace
from zhumq.web.brokers import Brokers
from zhumq.web.names import INT64_MAX
from zhumq.web.paging import Page, PageQuery
from zhumq.web.problems import invalid

NamePart = Annotated[
    str, Meta(max_length=512, description="Only lines that have this in it, in any case.")
]
_RESULTS: Final = {"all": None, "allowed": True, "denied": False}
_PLACE: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,19}|-1):([0-9]{1,19})", re.ASCII)


class AuditQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which lines of the audit log."""

    principal: NamePart = ""
    resource: NamePart = ""
    result: Annotated[
        Literal["all", "allowed", "denied"], Meta(description="What was allowed, denied, or all.")
    ] = "all"


def read_audit(brokers: Brokers, query: AuditQuery) -> Page[audit_log.AuditRecord]:
    """Read the audit log of all brokers, newest first.

    A page looks at a bounded number of lines: it may have few or none although `next` is not null. The caller needs the right to alter the
    cluster. Logins, refusals and changes are in it; without authentication and an authorizer there are none.
    """
    found = audit_log.read_audit(
        brokers.connection,
        limit=query.limit,
        begin=_parse(query.after) if query.after else None,
        principal=query.principal,
        resource=query.resource,
        allowed=_RESULTS[query.result],
    )
    return Page(items=found.records, next=_format(found.next) if found.next else None)


def _format(places: Mapping[int, AuditPlace]) -> str:
    """A cursor of the place of each broker: `1:131:4096,2:77:0`."""
    return ",".join(
        f"{broker}:{place.file}:{place.position}" for broker, place in sorted(places.items())
    )


def _parse(text: str) -> dict[int, AuditPlace]:
    found = {}
    for part in text.split(","):
        match = _PLACE.fullmatch(part)
        if match is None or max(map(int, match.groups())) > INT64_MAX:
            raise invalid(
                f"after={text[:64]!r} is no cursor", "give `next` of the page before as it is"
            )
        found[int(match[1])] = AuditPlace(int(match[2]), int(match[3]))
    return found
