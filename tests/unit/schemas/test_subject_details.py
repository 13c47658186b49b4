"""Subjects as an operator sees them: all versions, what refers to them, and what holds for the next one."""

import pytest
from registry_support import Log, record

from zhumq.admin.schemas import subject_details, subject_summaries
from zhumq.schemas import changes
from zhumq.schemas.errors import SubjectNotFound
from zhumq.schemas.schema import Level, Reference, SubjectConfig


def test_a_subject_has_its_versions_and_what_refers_to_them() -> None:
    log = Log()
    log.register("money", record("Money", cents="long"))
    reference = Reference(name="Money", subject="money", version=1)
    log.register("order", record("Order", price="Money"), references=[reference])
    level = SubjectConfig(level=Level.FULL)
    log.change(lambda registry: changes.set_config(registry, "order", level))
    money, order = (subject_details(log.registry, each) for each in ("money", "order"))
    (used_by,) = money.versions[0].referenced_by
    assert (used_by.subject, used_by.version) == ("order", 1)
    assert order.versions[0].references == (reference,)
    assert (money.has_own_compatibility, order.has_own_compatibility) == (False, True)
    assert (money.compatibility, order.compatibility) == (Level.BACKWARD, Level.FULL)


def test_a_deleted_subject_is_shown_only_if_it_is_asked_for() -> None:
    log = Log()
    log.register("gone", record("R", a="int"))
    log.change(lambda registry: changes.delete_subject(registry, "gone", permanent=False))
    assert subject_summaries(log.registry) == []
    (found,) = subject_summaries(log.registry, deleted=True)
    assert found.is_deleted
    assert [each.is_deleted for each in subject_details(log.registry, "gone").versions] == [True]
    with pytest.raises(SubjectNotFound):
        subject_details(log.registry, "never")
