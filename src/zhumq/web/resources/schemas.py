"""Subjects of the schema registry, as the console lists them. The registry itself is below /registry."""

from typing import Annotated

import msgspec
from msgspec import Meta

from zhumq.admin import schemas
from zhumq.web.brokers import Brokers
from zhumq.web.names import AnyName, SearchText
from zhumq.web.paging import PageQuery, page_of


class SubjectQuery(PageQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which subjects."""

    search: SearchText = ""
    deleted: Annotated[bool, Meta(description="Those with all versions deleted, too.")] = False


class SubjectPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of subjects. `missing` are the packages of zhumq[registry] that are not installed."""

    items: list[schemas.SubjectSummary]
    next: str | None
    missing: list[str]


def list_subjects(brokers: Brokers, query: SubjectQuery) -> SubjectPage:
    """List the subjects of the schema registry by name, with what holds for their next versions."""
    found = brokers.schemas.read(
        brokers.schema_link,
        lambda registry: schemas.subject_summaries(registry, deleted=query.deleted),
    )
    sought = query.search.lower()
    found = [each for each in found if sought in each.subject.lower()]
    page = page_of(found, lambda each: each.subject, limit=query.limit, after=query.after)
    return SubjectPage(items=list(page.items), next=page.next, missing=schemas.missing_packages())


def describe_subject(brokers: Brokers, subject: AnyName) -> schemas.SubjectDetails:
    """Show a subject with all its versions, what they refer to, and what refers to them."""
    return brokers.schemas.read(
        brokers.schema_link, lambda registry: schemas.subject_details(registry, subject)
    )
